"""PushT (Chi et al., 2023, arXiv 2303.04137) of the package gym-pusht, by its own id."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import gym_pusht  # type: ignore[import-not-found]  # noqa: F401  (registers the ids)
import gymnasium as gym
import numpy as np
from gymnasium import spaces


class BestCoverage(gym.Wrapper[Any, Any, Any, Any]):
    """Tells in ``info["log/coverage"]``, at an episode's end, the largest share of the goal that was ever covered."""

    _best = 0.0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin again."""
        self._best = 0.0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and tell."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._best = max(self._best, float(info["coverage"]))
        if terminated or truncated:
            info = {**info, "log/coverage": self._best}
        return observation, reward, terminated, truncated, info


class WithState(gym.ObservationWrapper[dict[str, np.ndarray], Any, Any]):
    """Observes beside the image, as ``state``, the five numbers that the demonstrator needs."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        seen = env.observation_space
        entries = dict(seen.spaces) if isinstance(seen, spaces.Dict) else {"pixels": seen}
        high = np.array([512, 512, 512, 512, 2 * np.pi])
        state = spaces.Box(np.zeros(5), high, dtype=np.float64)
        self.observation_space = spaces.Dict({**entries, "state": state})  # type: ignore[assignment]

    def observation(self, observation: Any) -> dict[str, np.ndarray]:
        """Add the state."""
        inner: Any = self.env.unwrapped
        seen = observation if isinstance(observation, dict) else {"pixels": observation}
        angle = inner.block.angle % (2 * np.pi)
        return {**seen, "state": np.array([*inner.agent.position, *inner.block.position, angle])}


def make(env_id: str, *, with_state: bool = False, **options: Any) -> gym.Env[Any, Any]:
    """Return ``gymnasium.make(env_id, **options)`` that logs the coverage.

    Args:
        env_id: That of gym-pusht.
        with_state: Observe the state beside images, for the demonstrator; hide it by ``observation.keys``.
        options: Of ``gymnasium.make``: ``obs_type`` is ``state``, ``environment_state_agent_pos``, ``pixels`` or
            ``pixels_agent_pos``.
    """
    env: gym.Env[Any, Any] = BestCoverage(gym.make(env_id, **options))
    return WithState(env) if with_state else env
