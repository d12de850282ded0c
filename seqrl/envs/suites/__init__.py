"""Environments of other packages by their own ids, and those of plug-ins.

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
        example: One of its ids.
    """

    prefixes: tuple[str, ...]
    make: Maker | str
    install: str = ""
    example: str = ""


SUITES: Registry[Suite] = Registry("environment suite")
"""Name of a package -> its environments."""

_HERE = "seqrl.envs.suites"
_ROBOTICS = ("Fetch", "HandManipulate", "HandReach", "AdroitHand", "AntMaze_", "PointMaze_", "FrankaKitchen-")
_MULTI_OBJECTIVE = (
    "mo-", "breakable-bottles-", "deep-sea-treasure-", "fishwood-", "four-room-", "fruit-tree-", "minecart-",
    "resource-gathering-", "water-reservoir-",
)  # fmt: skip
_BUILT_IN = {
    "ale_py": (("ALE/",), "atari", "atari", "ALE/Pong-v5"),
    "dm_control": (("dm_control/",), "dm_control", "dm_control", "dm_control/walker-walk-v0"),
    "gym_pusht": (("gym_pusht/",), "pusht", "pusht", "gym_pusht/PushT-v0"),
    "gymnasium_robotics": (_ROBOTICS, "robotics", "robotics", "FetchReach-v4"),
    "metaworld": (("Meta-World/",), "metaworld", "metaworld", "Meta-World/reach-v3"),
    "minigrid": (("MiniGrid-", "BabyAI-"), "minigrid", "minigrid", "MiniGrid-MemoryS7-v0"),
    "mo_gymnasium": (_MULTI_OBJECTIVE, "mo_gymnasium", "mo-gymnasium", "mo-mountaincar-v0"),
    "popgym": (("popgym-",), "popgym", "popgym", "popgym-RepeatFirstEasy-v0"),
}
"""Name -> prefixes, module here, extra that brings the package, an id."""

for _name, (_prefixes, _module, _extra, _example) in _BUILT_IN.items():
    SUITES.register(_name)(Suite(_prefixes, f"{_HERE}.{_module}:make", f"pip install 'seqrl[{_extra}]'", _example))


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
    except (
        Exception
    ) as error:  # what a package does while it is imported is its own affair, such as looking for a display
        raise EnvError(
            f"environment {env_id!r} is one of the package {name}, whose import failed: {type(error).__name__}: {error}"
        ) from error
    return make
