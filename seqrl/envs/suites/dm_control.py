"""The DeepMind Control Suite (Tunyasuvunakool et al., 2020) by shimmy's ids, such as ``dm_control/walker-walk-v0``."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium as gym

importlib.import_module("dm_control")  # first, so that a missing package is named
gym.register_envs(importlib.import_module("shimmy"))


def make(env_id: str, *, max_episode_steps: int | None = None, **options: Any) -> gym.Env[Any, Any]:
    """Return ``gymnasium.make(env_id, **options)``, with the ids of shimmy known.

    Args:
        env_id: That of shimmy.
        max_episode_steps: None is the suite's own limit.
        options: Of ``gymnasium.make``.
    """
    return gym.make(env_id, max_episode_steps=max_episode_steps, **options)
