"""Several attempts at the same task within one episode, for any environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.core.errors import EnvError
from seqrl.core.spaces import OBS_KEY
from seqrl.envs.infos import LOG_PREFIX, told_success
from seqrl.envs.make import make_env

ATTEMPT_KEY = "attempt"
"""Observation entry of the two numbers that are added."""


class Attempts(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An episode of k attempts: where the wrapped environment ends, it begins again, until the last attempt is over.

    Each episode draws a seed, with which every one of its attempts is reset, so that an environment that draws its
    task in ``reset`` gives the same task again; chance within the task repeats itself as well. The observation after
    the last step of an attempt already is the first one of the next attempt; the last observation of the episode is
    the environment's own. The episode terminates after the last attempt, however that ended.

    Two numbers are added to the observation: 1 where an attempt begins, and the share of the attempts that are over.
    They are appended to a Box of one dimension of floats, and are the entry ``attempt`` of a Dict; any other
    observation becomes the entry ``obs`` of a Dict beside it.

    ``info`` where an attempt ends: ``log/attempt_1_return``, ... and, where the environment tells of success,
    ``log/attempt_1_success``, ...; ``success`` itself is passed on in the last attempt only.

    Args:
        env: The environment; a time limit belongs inside.
        attempts: How many.
        same_task: Reset every attempt of an episode with the same seed; otherwise without one.

    Raises:
        EnvError: If ``attempts`` is below 1, or the observation already has an entry ``attempt``.
    """

    def __init__(self, env: gym.Env[Any, Any], attempts: int = 3, same_task: bool = True) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, attempts=attempts, same_task=same_task)
        gym.Wrapper.__init__(self, env)
        if attempts < 1:
            raise EnvError(f"attempts must be >= 1, got {attempts}")
        self.attempts, self._same_task = attempts, same_task
        self.observation_space = _extended_space(env.observation_space)
        self._rng = np.random.default_rng()
        self._task_seed: int | None = None
        self._options: dict[str, Any] | None = None
        self._num_over, self._return, self._success = 0, 0.0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw a task, and begin the first attempt. A seed also restarts the tasks that later episodes draw."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        first = int(self._rng.integers(2**31)) if self._same_task else seed
        self._task_seed = first if self._same_task else None
        self._options = options
        self._num_over, self._return, self._success = 0, 0.0, False
        obs, info = self.env.reset(seed=first, options=options)
        return self._extended(obs, is_first=True), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step; begin the next attempt where one ends."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        told = told_success(info)
        self._success |= any(told.values())
        is_last = self._num_over == self.attempts - 1
        if not is_last:
            info = {key: value for key, value in info.items() if key not in told}
        if not (terminated or truncated):
            return self._extended(obs, is_first=False), reward, False, False, info
        info = info | self._end_attempt(has_success=bool(told))
        if is_last:
            return self._extended(obs, is_first=False), reward, True, False, info
        obs, first_info = self.env.reset(seed=self._task_seed, options=self._options)
        info = {key: value for key, value in info.items() if key.startswith(LOG_PREFIX)} | first_info
        return self._extended(obs, is_first=True), reward, False, False, info

    def _end_attempt(self, has_success: bool) -> dict[str, float]:
        """Count an attempt, and return what is logged of it."""
        self._num_over += 1
        log = {f"{LOG_PREFIX}attempt_{self._num_over}_return": self._return}
        if has_success:
            log[f"{LOG_PREFIX}attempt_{self._num_over}_success"] = float(self._success)
        self._return, self._success = 0.0, False
        return log

    def _extended(self, obs: Any, *, is_first: bool) -> Any:
        added = np.array([is_first, self._num_over / self.attempts], np.float32)
        inner = self.env.observation_space
        if isinstance(inner, spaces.Dict):
            return {**obs, ATTEMPT_KEY: added}
        if _is_vector(inner):
            return np.concatenate([obs, added.astype(inner.dtype)])
        return {OBS_KEY: obs, ATTEMPT_KEY: added}


def make_attempts(
    env_id: str = "seqrl/MazeRunner-v0",
    attempts: int = 3,
    same_task: bool = True,
    env_kwargs: Mapping[str, Any] | None = None,
    attempt_steps: int | None = None,
    render_mode: str | None = None,
) -> Attempts:
    """Return :class:`Attempts` at an environment by its id; this is ``seqrl/Attempts-v0``.

    Args:
        env_id: The environment; that of a known suite will do.
        attempts: Attempts in an episode.
        same_task: Whether all attempts of an episode are at the same task.
        env_kwargs: Arguments of the environment.
        attempt_steps: Steps of an attempt; null is the environment's own limit.
        render_mode: That of the environment.
    """
    env = make_env(
        env_id, env_kwargs, max_episode_steps=attempt_steps, render_mode=render_mode, disable_env_checker=True
    )
    return Attempts(env, attempts, same_task)


def _is_vector(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)


def _extended_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    added = spaces.Box(0.0, 1.0, (2,), np.float32)
    if isinstance(space, spaces.Dict):
        if ATTEMPT_KEY in space.spaces:
            raise EnvError(f"the observation already has an entry {ATTEMPT_KEY!r}; entries are {list(space.spaces)}")
        return spaces.Dict({**space.spaces, ATTEMPT_KEY: added})
    if isinstance(space, spaces.Box) and _is_vector(space):
        dtype = space.dtype.type
        low, high = (np.append(bound, np.full(2, limit, dtype)) for bound, limit in ((space.low, 0), (space.high, 1)))
        return spaces.Box(low, high, dtype=dtype)
    return spaces.Dict({OBS_KEY: space, ATTEMPT_KEY: added})
