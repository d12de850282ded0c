"""Environments of other packages by their own ids: POPGym, MiniGrid (with BabyAI) and PushT, and those of plug-ins.

A plug-in files a :class:`Suite` under a name; its package is imported when one of its ids is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import gymnasium as gym

from seqrl.core.errors import EnvError
from seqrl.core.registry import Registry

Maker = Callable[..., gym.Env[Any, Any]]


@dataclass(frozen=True)
class Suite:
    """The environments of a package.

    Attributes:
        prefixes: How its ids begin.
        make: Called like ``gymnasium.make``, or ``module:function``, which is imported when an id is first asked for.
        install: What to type if the package is missing.
    """

    prefixes: tuple[str, ...]
    make: Maker | str
    install: str = ""


SUITES: Registry[Suite] = Registry("environment suite")
"""Name of a package -> its environments."""

SUITES.register("popgym")(Suite(("popgym-",), "seqrl.envs.suites.popgym:make", "pip install 'seqrl[popgym]'"))
SUITES.register("minigrid")(
    Suite(("MiniGrid-", "BabyAI-"), "seqrl.envs.suites.minigrid:make", "pip install 'seqrl[minigrid]'")
)
SUITES.register("gym_pusht")(Suite(("gym_pusht/",), "seqrl.envs.suites.pusht:make", "pip install 'seqrl[pusht]'"))


def suite_maker(env_id: str) -> Maker | None:
    """Return what makes an environment of this id instead of ``gymnasium.make``, with the same arguments, or None.

    Raises:
        EnvError: If its package is not installed, or two suites own the id.
    """
    owners = {name: prefix for name in SUITES.names() if (prefix := _prefix(SUITES.get(name), env_id))}
    if not owners:
        return None
    longest = max(map(len, owners.values()))
    name, *others = (name for name, prefix in owners.items() if len(prefix) == longest)
    if others:
        raise EnvError(f"environment {env_id!r} is one of the suite {name}, and of {', '.join(others)} as well")
    return _maker(env_id, name, SUITES.get(name))


def _prefix(suite: Suite, env_id: str) -> str:
    """Return the longest prefix of a suite with which an id begins; "" if there is none."""
    return max((prefix for prefix in suite.prefixes if env_id.startswith(prefix)), key=len, default="")


def _maker(env_id: str, name: str, suite: Suite) -> Maker:
    if not isinstance(suite.make, str):
        return suite.make
    module, _, function = suite.make.partition(":")
    try:
        make: Maker = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        advice = f": {suite.install}" if suite.install else ""
        raise EnvError(
            f"environment {env_id!r} is one of the package {name}, and {error.name} is not installed{advice}"
        ) from error
    return make
