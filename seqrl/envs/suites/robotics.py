"""The environments of gymnasium-robotics by their own ids: Fetch, shadow hand, Adroit, mazes and the kitchen."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium as gym

logging.getLogger("gymnasium_robotics").setLevel(logging.ERROR)
import gymnasium_robotics  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

gym.register_envs(gymnasium_robotics)


class TellSuccess(gym.Wrapper[Any, Any, Any, Any]):
    """Tells as ``info["success"]`` that the kitchen has no tasks left, as the others tell of theirs by themselves."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and tell."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "tasks_to_complete" in info:
            info = {**info, "success": not info["tasks_to_complete"]}
        return observation, reward, terminated, truncated, info


def make(env_id: str, **options: Any) -> gym.Env[Any, Any]:
    """Return ``gymnasium.make(env_id, **options)``, with the ids of gymnasium-robotics known."""
    return TellSuccess(gym.make(env_id, **options))
