"""Environments of other packages by their own ids, and those of plug-ins.

A plug-in files a :class:`Suite` under a name; its package is imported when one of its ids is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from seqrl.core.errors import EnvError
from seqrl.core.extras import install_command
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
        make_vector: Called with an id, the number of environments and their arguments, or ``module:function``; "" if
            the suite has no vectors of its own.
        one_per_process: Whether a process can hold only one of its environments.

    Raises:
        EnvError: If ``prefixes`` are not a tuple of strings, or one is empty.
    """

    prefixes: tuple[str, ...]
    make: Maker | str
    install: str = ""
    example: str = ""
    make_vector: Callable[..., Any] | str = ""
    one_per_process: bool = False

    def __post_init__(self) -> None:
        """Refuse prefixes that would take the ids of others."""
        if not isinstance(self.prefixes, tuple) or not all(isinstance(p, str) and p for p in self.prefixes):
            raise EnvError(f"Suite.prefixes must be a tuple of strings, such as ('rooms-',), got {self.prefixes!r}")


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
    "crafter": (("Crafter",), "crafter", "crafter", "Crafter-v1"),
    "dm_control": (("dm_control/",), "dm_control", "dm-control", "dm_control/walker-walk-v0"),
    "envpool": (("envpool/",), "envpool", "envpool", "envpool/CartPole-v1"),
    "gym": (("gym/",), "old_gym", "old-gym", "gym/CartPole-v1"),
    "gym_pusht": (("gym_pusht/",), "pusht", "pusht", "gym_pusht/PushT-v0"),
    "gymnax": (("gymnax/",), "gymnax", "gymnax", "gymnax/CartPole-v1"),
    "gymnasium_robotics": (_ROBOTICS, "robotics", "robotics", "FetchReach-v4"),
    "metaworld": (("Meta-World/",), "metaworld", "metaworld", "Meta-World/reach-v3"),
    "minigrid": (("MiniGrid-", "BabyAI-"), "minigrid", "minigrid", "MiniGrid-MemoryS7-v0"),
    "mo_gymnasium": (_MULTI_OBJECTIVE, "mo_gymnasium", "mo-gymnasium", "mo-mountaincar-v0"),
    "popgym": (("popgym-",), "popgym", "popgym", "popgym-RepeatFirstEasy-v0"),
    "xminigrid": (("XLand-MiniGrid-", "XLand/"), "xminigrid", "xland", "XLand-MiniGrid-R1-9x9"),
    "stable_retro": (("retro/",), "retro", "retro", "retro/Airstriker-Genesis-v0"),
    "robosuite": (("robosuite/",), "robosuite", "robosuite", "robosuite/Lift"),
}
"""Name -> prefixes, module here, extra that brings the package, an id."""

_VECTORS = ("envpool", "gymnax", "xminigrid")

for _name, (_prefixes, _module, _extra, _example) in _BUILT_IN.items():
    _vector = f"{_HERE}.{_module}:make_vector" if _name in _VECTORS else ""
    _made = f"{_HERE}.{_module}:make"
    _alone = _name == "stable_retro"
    SUITES.register(_name)(Suite(_prefixes, _made, install_command(_extra), _example, _vector, _alone))


def suite_maker(env_id: str) -> Maker | None:
    """Return what makes an environment of this id instead of ``gymnasium.make``, with the same arguments, or None.

    Raises:
        EnvError: If its package is not installed, or two suites own the id.
    """
    owner = _owner(env_id)
    return None if owner is None else _imported(env_id, owner[0], owner[1], owner[1].make)


def suite_vector_maker(env_id: str) -> Callable[..., Any] | None:
    """Return what makes a vector of this id instead of ``gymnasium.make_vec``: called with the id and the number.

    Raises:
        EnvError: As :func:`suite_maker`.
    """
    owner = _owner(env_id)
    if owner is None or not owner[1].make_vector:
        return None
    return _imported(env_id, owner[0], owner[1], owner[1].make_vector)


def is_one_per_process(env_id: str) -> bool:
    """Tell whether a process can hold only one environment of this id.

    Raises:
        EnvError: If two suites own the id.
    """
    owner = _owner(env_id)
    return owner is not None and owner[1].one_per_process


def _owner(env_id: str) -> tuple[str, Suite] | None:
    owners = {name: prefix for name in SUITES.names() if (prefix := _prefix(SUITES.get(name), env_id))}
    owners = {name: prefix for name, prefix in owners.items() if not _is_of_another(env_id, name, prefix)}
    if not owners:
        return None
    longest = max(map(len, owners.values()))
    name, *others = (name for name, prefix in owners.items() if len(prefix) == longest)
    if others:
        raise EnvError(f"environment {env_id!r} belongs to the suite {name}, and to {', '.join(others)} as well")
    return name, SUITES.get(name)


def _is_of_another(env_id: str, name: str, prefix: str) -> bool:
    """Tell whether an id that only begins like those of a package is registered by somebody else, for another class."""
    spec = gym.registry.get(env_id)
    if spec is None or spec.entry_point is None or "/" in prefix or name not in _BUILT_IN:
        return False
    entry: Any = spec.entry_point
    if isinstance(entry, str):
        if entry.partition(":")[0].partition(".")[0] == name:
            return False
        with suppress(ImportError, AttributeError):
            entry = load_env_creator(entry)
    kinds = entry.__mro__ if isinstance(entry, type) else (entry,)
    return all(getattr(kind, "__module__", "").partition(".")[0] != name for kind in kinds)


def _prefix(suite: Suite, env_id: str) -> str:
    """Return the longest prefix of a suite with which an id begins; "" if there is none."""
    return max((prefix for prefix in suite.prefixes if env_id.startswith(prefix)), key=len, default="")


def _imported(env_id: str, name: str, suite: Suite, target: Callable[..., Any] | str) -> Callable[..., Any]:
    if not isinstance(target, str):
        return target
    module, _, function = target.partition(":")
    try:
        make: Callable[..., Any] = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        advice = f": {suite.install}" if suite.install else ""
        raise EnvError(
            f"environment {env_id!r} belongs to the package {name}, but {error.name} is not installed{advice}"
        ) from error
    except (
        Exception
    ) as error:  # what a package does while it is imported is its own affair, such as looking for a display
        raise EnvError(
            f"environment {env_id!r} is of the package {name}, whose import failed: {type(error).__name__}: {error}"
        ) from error
    return make
