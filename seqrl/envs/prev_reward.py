"""An environment that shows its last reward, for tools that give a policy nothing but observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class PrevReward(gym.Wrapper[Any, Any, Any, Any]):
    """Observes the last reward as ``prev_reward``, 0 at an episode's start.

    An observation that is no dict becomes the entry ``observation``.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        seen = env.observation_space
        self._is_dict = isinstance(seen, spaces.Dict)
        entries = dict(seen.spaces) if isinstance(seen, spaces.Dict) else {"observation": seen}
        reward = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = spaces.Dict({**entries, "prev_reward": reward})

    def reset(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin again."""
        observation, info = self.env.reset(**options)
        return self._with(observation, 0.0), info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Step, and show the reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._with(observation, float(reward)), reward, terminated, truncated, info

    def _with(self, observation: Any, reward: float) -> dict[str, Any]:
        entries = observation if self._is_dict else {"observation": observation}
        return {**entries, "prev_reward": np.array([reward], np.float32)}


def with_prev_reward(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return the environment with its last reward among the observations.

    ``RolloutPolicy.predict`` takes it from there, so that ``evaluate_policy`` of stable-baselines3 plays policies that
    read their rewards.
    """
    return PrevReward(env)
