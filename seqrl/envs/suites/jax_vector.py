"""Environments that are pure functions of JAX: all rows of a vector move in one compiled step."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Protocol

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a GPU is for the policy, too

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

MOST_SEED = 2**32


class Moved(NamedTuple):
    """What a step of one row leads to; all arrays are scalars but the observation.

    Attributes:
        state: Whatever the rules need to go on.
        obs: Observation, which is the episode's last where one ends.
        reward: Of the step.
        terminated: Whether the task ended the episode.
        truncated: Whether a time limit did.
        begins: Whether the row begins again: it does so where an episode ends, and may do so within one.
        told: Name -> value, and whether there is one in this step.
    """

    state: Any
    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    begins: Any
    told: dict[str, tuple[Any, Any]]


class Rules(Protocol):
    """One environment as pure functions, which are compiled once for each number of rows.

    Attributes:
        observation_space: Of one row.
        action_space: Of one row.
        max_steps: Steps of an episode, if there is a limit.
        can_render: Whether :meth:`render` draws.
        data: Arrays that :meth:`begin` reads.
    """

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    max_steps: int | None
    can_render: bool
    data: Any

    def begin(self, data: Any, key: Any, state: Any, is_new: Any) -> tuple[Any, Any]:
        """Return state and observation at a beginning: after ``state``, or of a new episode; the first has no state."""

    def step(self, key: Any, state: Any, action: Any) -> Moved:
        """Return what an action leads to."""

    def render(self, state: Any) -> np.ndarray:
        """Return ``(H, W, 3)`` uint8 pixels."""


class JaxVector(VectorEnv[Any, Any, Any]):
    """A vector by its rules; an episode that ends is followed by the next within the same step.

    Args:
        rules: The same object for the same environment, so that nothing is compiled twice.
        num_envs: How many rows.
        env_id: The environment's id.
        render_mode: ``rgb_array`` or None.
    """

    def __init__(self, rules: Rules, num_envs: int, env_id: str, render_mode: str | None = None) -> None:
        self._rules, self.num_envs, self.render_mode = rules, num_envs, render_mode
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "render_modes": ["rgb_array"] if rules.can_render else [],
        }
        self.spec = EnvSpec(env_id, max_episode_steps=rules.max_steps)
        self.single_observation_space, self.single_action_space = rules.observation_space, rules.action_space
        self.observation_space = batch_space(rules.observation_space, num_envs)
        self.action_space = batch_space(rules.action_space, num_envs)
        self._keys: Any = None
        self._state: Any = None
        self._shown: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset every row; row ``i`` gets seed ``seed + i``. Without a seed, each goes on with its own numbers."""
        if seed is not None:
            seeds = seed + np.arange(self.num_envs) if np.ndim(seed) == 0 else np.asarray(seed)
            self._keys = jax.vmap(jax.random.key)((seeds % MOST_SEED).astype(np.uint32))
        elif self._keys is None:
            self._keys = jax.vmap(jax.random.key)(np.random.SeedSequence().generate_state(self.num_envs))
        self._keys, self._state, obs = _reset(self._rules, self._rules.data, self._keys)
        self._shown = self._state
        return _seen(self.observation_space, obs), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every row; where an episode ended, ``info["final_obs"]`` holds its last observation."""
        actions = np.asarray(actions)
        self._keys, self._state, obs, moved = _step(self._rules, self._rules.data, self._keys, self._state, actions)
        self._shown = moved.state
        reward, terminated, truncated, told = jax.device_get((moved.reward, *moved[3:5], moved.told))
        done = terminated | truncated
        info = _told(told, ~done)
        if done.any():
            info["final_obs"], info["_final_obs"] = _seen(self.observation_space, moved.obs), done
            info["final_info"], info["_final_info"] = _told(told, done), done
        return _seen(self.observation_space, obs), np.array(reward), np.array(terminated), np.array(truncated), info

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame of what the last step led to in each row; None without ``render_mode``."""
        if self.render_mode is None or not self._rules.can_render:
            return None
        rows = (jax.tree.map(lambda leaf, row=row: leaf[row], self._shown) for row in range(self.num_envs))
        return tuple(self._rules.render(row) for row in rows)


def _reset_rows(rules: Rules, data: Any, keys: Any) -> tuple[Any, Any, Any]:
    keys, now = _split(keys, 2)
    state, obs = jax.vmap(lambda key: rules.begin(data, key, None, True))(now)
    return keys, _strong(state), obs


def _step_rows(rules: Rules, data: Any, keys: Any, state: Any, actions: Any) -> tuple[Any, Any, Any, Moved]:
    keys, now, later = _split(keys, 3)
    moved = jax.vmap(rules.step)(now, state, actions)
    went = _strong(moved.state), moved.obs

    def begun() -> Any:
        is_new = moved.terminated | moved.truncated
        fresh = jax.vmap(rules.begin, in_axes=(None, 0, 0, 0))(data, later, moved.state, is_new)
        return jax.tree.map(lambda new, old: _where(moved.begins, new, old), fresh, went)

    # a branch outside of the rows: most steps begin nothing
    state, obs = jax.lax.cond(moved.begins.any(), begun, lambda: went)
    return keys, state, obs, moved


_reset = jax.jit(_reset_rows, static_argnums=0)
_step = jax.jit(_step_rows, static_argnums=0)


def _split(keys: Any, num: int) -> Any:
    return jnp.moveaxis(jax.vmap(lambda key: jax.random.split(key, num))(keys), 1, 0)


def _strong(tree: Any) -> Any:
    """Return arrays of their own dtypes: others, from plain numbers, would have everything compiled again."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)


def _where(rows: Any, new: Any, old: Any) -> Any:
    rows = rows.reshape(-1, *([1] * (old.ndim - 1)))
    return jnp.where(rows, new if new.dtype == old.dtype else new.astype(old.dtype), old)


def _seen(space: gym.Space[Any], obs: Any) -> Any:
    """Return observations as the batched space has them, in arrays of their own."""
    if isinstance(space, spaces.Dict):
        return {key: _seen(part, obs[key]) for key, part in space.items()}
    return np.array(obs, dtype=space.dtype)


def _told(told: dict[str, tuple[np.ndarray, np.ndarray]], rows: np.ndarray) -> dict[str, Any]:
    """Return what is told in these rows as gymnasium's info has it."""
    info: dict[str, Any] = {}
    for name, (value, is_there) in told.items():
        if (present := is_there & rows).any():
            info[name], info[f"_{name}"] = value, present
    return info
