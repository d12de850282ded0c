"""The environments of mo-gymnasium, whose rewards are vectors, with a weighted sum as the reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import mo_gymnasium  # type: ignore[import-not-found,unused-ignore]  # noqa: F401  (registers the ids)
import numpy as np

from seqrl.core.errors import EnvError


class WeightedSum(gym.Wrapper[Any, Any, Any, Any]):
    """Rewards by a weighted sum, and tells each part's sum over the episode as ``info["log/reward_<i>"]`` at its end.

    Args:
        env: An environment whose reward is a vector.
        weights: One for each part of the reward.
    """

    def __init__(self, env: gym.Env[Any, Any], weights: Sequence[float]) -> None:
        super().__init__(env)
        self._weights = np.asarray(weights, np.float64)
        self._sums = np.zeros(len(self._weights))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin again."""
        self._sums = np.zeros(len(self._weights))
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and weigh."""
        observation, rewards, terminated, truncated, info = self.env.step(action)
        parts = np.asarray(rewards, np.float64)
        self._sums += parts
        if terminated or truncated:
            info = info | {f"log/reward_{i}": float(value) for i, value in enumerate(self._sums)}
        return observation, float(parts @ self._weights), terminated, truncated, info


def make(env_id: str, *, weights: Sequence[float] | None = None, **options: Any) -> gym.Env[Any, Any]:
    """Return an environment whose reward is the sum of its parts times ``weights``.

    Args:
        env_id: That of mo-gymnasium.
        weights: One for each part of the reward.
        options: Of ``gymnasium.make``.

    Raises:
        EnvError: If the weights are missing, or their number is wrong.
    """
    env = gym.make(env_id, **options)
    num = int(env.get_wrapper_attr("reward_dim"))
    if weights is None or np.shape(weights) != (num,):
        env.close()
        raise EnvError(
            f"environment {env_id!r} gives {num} rewards per step: give as many weights to sum them, for instance "
            f"env.kwargs.weights={[round(1 / num, 2)] * num}" + ("" if weights is None else f", not {weights}")
        )
    return WeightedSum(env, weights)
