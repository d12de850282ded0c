"""Specs of environments that gymnasium did not make."""

from __future__ import annotations

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec


def named_spec(env_id: str, max_episode_steps: int | None = None) -> EnvSpec:
    """Return a spec with any id, also one that gymnasium would not register, such as ``rooms/big room``."""
    try:
        return EnvSpec(env_id, max_episode_steps=max_episode_steps)
    except gym.error.Error:
        spec = EnvSpec("named-later", max_episode_steps=max_episode_steps)
        spec.id = env_id
        return spec
