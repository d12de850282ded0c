"""EnvPool (Weng et al., 2022, arXiv 2206.10558): environments stepped by threads in C++, as ``envpool/<its id>``."""

from __future__ import annotations

from typing import Any

import envpool  # type: ignore[import-not-found]
import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from seqrl.core.errors import EnvError, did_you_mean
from seqrl.envs.single import SingleOfVector

PREFIX = "envpool/"


class EnvPool(VectorEnv[Any, Any, Any]):
    """A pool of environments. A seed is given to a pool when it is made, so a reset with a seed makes it anew.

    Args:
        name: EnvPool's own id, such as ``Pong-v5``.
        num_envs: How many.
        options: Of the pool, such as ``max_episode_steps`` or ``frame_skip``.

    Raises:
        EnvError: If the id is unknown.
    """

    def __init__(self, name: str, num_envs: int, **options: Any) -> None:
        known = envpool.list_all_envs()
        if name not in known:
            raise EnvError(f"EnvPool has no environment {name!r}{did_you_mean(name, known)}")
        self._name, self._options, self.num_envs = name, options, num_envs
        self.render_mode = options.get("render_mode")
        self._make(0)
        self.spec = EnvSpec(PREFIX + name, max_episode_steps=self._pool.spec.config.max_episode_steps)

    def _make(self, seed: int) -> None:
        self._pool = envpool.make_gymnasium(self._name, num_envs=self.num_envs, seed=seed, **self._options)
        pool = self._pool.unwrapped
        self.metadata = dict(pool.metadata)
        self.single_observation_space, self.single_action_space = pool.observation_space, pool.action_space
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, self.num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset every environment; environment ``i`` gets seed ``seed + i``."""
        if seed is not None:
            self._pool.close()
            self._make(int(np.ravel(seed)[0]))
        obs, info = self._pool.reset()
        return obs, _plain(info)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every environment; one that ended begins a new episode in the next step."""
        actions = np.asarray(actions).astype(self.single_action_space.dtype)
        obs, reward, terminated, truncated, info = self._pool.step(actions)
        return obs, reward, terminated, truncated, _plain(info)

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame of each environment; None unless the pool was made with ``render_mode``."""
        if self._options.get("render_mode") is None:
            return None
        return tuple(self._pool.render(env_ids=np.arange(self.num_envs)))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the pool."""
        self._pool.close()


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    """Return what is told of each environment."""
    return {k: v for k, v in info.items() if isinstance(v, np.ndarray) and k not in ("env_id", "players")}


def make_vector(env_id: str, num_envs: int, **options: Any) -> VectorEnv[Any, Any, Any]:
    """Return a pool of ``num_envs`` environments."""
    return EnvPool(env_id.removeprefix(PREFIX), num_envs, **options)


def make(env_id: str, **options: Any) -> gym.Env[Any, Any]:
    """Return a single environment: a pool of one."""
    given = {k: v for k, v in options.items() if v is not None and k != "disable_env_checker"}
    return SingleOfVector(make_vector(env_id, 1, **given))
