"""One environment out of a vector, for ids that have nothing but a vector."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate

from seqrl.core.errors import EnvError


class SingleOfVector(gym.Env[Any, Any]):
    """The only row of a vector, as a single environment; it resets when it is told to.

    Args:
        env: A vector of one environment.

    Raises:
        EnvError: If it has more rows.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        if env.num_envs != 1:
            raise EnvError(f"a vector of one environment is needed, and {env} has {env.num_envs}")
        self.vector = env
        self.observation_space, self.action_space = env.single_observation_space, env.single_action_space
        self.metadata = {k: v for k, v in env.metadata.items() if k != "autoreset_mode"}
        self.render_mode, self.spec = env.render_mode, env.spec
        self._ends_with_next = env.metadata.get("autoreset_mode") is AutoresetMode.SAME_STEP

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the row."""
        super().reset(seed=seed)
        obs, info = self.vector.reset(seed=seed, options=options)
        return _first(self.vector.observation_space, obs), _row(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the row; an episode ends with its own last observation."""
        empty: Any = gym.vector.utils.create_empty_array(self.action_space, 1)
        actions = gym.vector.utils.concatenate(self.action_space, [action], empty)
        obs, reward, terminated, truncated, info = self.vector.step(actions)
        is_over = bool(terminated[0] or truncated[0])
        if is_over and self._ends_with_next:
            last, told = info["final_obs"], _row(info.get("final_info", {}))
            is_listed = isinstance(last, np.ndarray) and last.dtype == object
            seen = last[0] if is_listed else _first(self.vector.observation_space, last)
        else:
            seen, told = _first(self.vector.observation_space, obs), _row(info)
        return seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]), told

    def render(self) -> Any:
        """Return the row's frame."""
        frames = self.vector.render()
        return frames[0] if frames is not None and len(frames) else None

    def close(self) -> None:
        """Close the vector."""
        self.vector.close()


def _first(space: gym.Space[Any], batch: Any) -> Any:
    return next(iter(iterate(space, batch)))


def _row(info: dict[str, Any]) -> dict[str, Any]:
    """Return what the info of a vector says of its first row."""
    row: dict[str, Any] = {}
    for key, value in info.items():
        if key.startswith("_") and key[1:] in info:
            continue
        present = info.get(f"_{key}")
        if present is not None and not present[0]:
            continue
        if isinstance(value, dict):
            row[key] = _row(value)
        else:
            row[key] = value[0] if isinstance(value, np.ndarray | list | tuple) and len(value) else value
    return row
