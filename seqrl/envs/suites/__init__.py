"""Environments of other packages by their own ids: POPGym and MiniGrid (with BabyAI), each behind its extra."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import gymnasium as gym

from seqrl.core.errors import EnvError

_SUITES = {"popgym-": "popgym", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
"""Beginning of an id -> module of this package, which is also the package's and the extra's name."""


def suite_maker(env_id: str) -> Callable[..., gym.Env[Any, Any]] | None:
    """Return what makes an environment of this id instead of ``gymnasium.make``, with the same arguments, or None.

    Raises:
        EnvError: If the package is not installed.
    """
    name = next((module for prefix, module in _SUITES.items() if env_id.startswith(prefix)), None)
    if name is None:
        return None
    try:
        module = import_module(f"seqrl.envs.suites.{name}")
    except ModuleNotFoundError as error:
        raise EnvError(
            f"environment {env_id!r} is one of the package {name}, and {error.name} is not installed: "
            f"pip install 'seqrl[{name}]'"
        ) from error
    make: Callable[..., gym.Env[Any, Any]] = module.make
    return make
