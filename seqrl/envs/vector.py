"""One interface over every ``gymnasium.vector.VectorEnv``, whatever its autoreset mode."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import DataError, EnvError
from seqrl.core.spaces import MASK_KEY, ActionCodec, flatten_obs
from seqrl.core.types import TimeStep
from seqrl.envs.faults import (
    FAULT_KEY,
    RESET_FAULT_KEY,
    SEED_STRIDE,
    close_by_force,
    close_gently,
    rendered,
    require_finite,
    reset_within,
    step_within,
    watch,
)
from seqrl.envs.infos import SUCCESS_KEYS, logged_name, logged_number, successes
from seqrl.envs.workers import WorkerVectorEnv, assign, task_name


class BatchedEnv:
    """E environments that are stepped at once and reset themselves.

    Args:
        env: Any gymnasium vector environment.
        rebuild: Makes it anew when it breaks as a whole: a worker process died or hung, a native vector raised.
        max_restarts: Failures of environments that are borne, of whatever kind; one more is an error.
        timeout_s: Longest time of one step of an asynchronous vector; after it, a ``SyncVectorEnv`` logs what hangs.

    Attributes:
        num_envs: E.
        observation_space: Space of one environment's observation.
        codec: Converts between the environments' actions and the policy's; a policy that knows more of the space, as
            which numbers are rotations, brings its own.
        num_faults: Failures so far.
        last_fault: What the last one was, in words.

    Raises:
        EnvError: If ``env`` is no vector environment, or announces no known autoreset mode.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        *,
        rebuild: Callable[[], VectorEnv[Any, Any, Any]] | None = None,
        max_restarts: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise EnvError(f"expected a gymnasium.vector.VectorEnv, got {type(env).__name__}")
        self.env = env
        self.num_envs = env.num_envs
        self.observation_space = env.single_observation_space
        self.codec: ActionCodec = action_codec(env.single_action_space)
        self._mode = _autoreset_mode(env)
        self._env_name = _default_names(env)
        self._ended = np.zeros(self.num_envs, bool)
        self._step = np.zeros(self.num_envs, np.int64)
        self._info_has_mask = False
        self._rebuild, self._max_restarts, self._timeout_s = rebuild, max_restarts, timeout_s
        self._seed: int | None = None
        self._is_broken = False
        self.num_faults = 0
        self.last_fault = ""
        self._is_closed = threading.Event()
        if timeout_s is not None and isinstance(env.unwrapped, SyncVectorEnv):
            here = weakref.ref(self)
            watch(lambda: getattr(here(), "env", None), self._env_name, timeout_s, self._is_closed)

    def reset(self, seed: int | None = None) -> TimeStep:
        """Reset every environment; environment ``e`` gets seed ``seed + e``."""
        try:
            obs, info = reset_within(self.env, seed, self._timeout_s)
            require_finite(self._flat(obs), np.zeros(1))
        except Exception as error:
            self._is_broken = True
            if self._rebuild is None:
                raise
            self._seed = seed
            return replace(self._rebuilt(error), truncated=np.zeros(self.num_envs, bool), fault=None)
        self._seed = seed
        return self._first_step(obs, info)

    def _first_step(self, obs: Any, info: dict[str, Any]) -> TimeStep:
        """Return the step in which every environment begins an episode."""
        self._count_faults(info, RESET_FAULT_KEY)
        self._ended[:] = False
        self._info_has_mask = MASK_KEY in info
        everyone = np.ones(self.num_envs, bool)
        return self._time_step(self._flat(obs), {}, everyone, info, {}, np.zeros(self.num_envs), ~everyone, ~everyone)

    def step(self, actions: np.ndarray) -> TimeStep:
        """Step with policy actions ``(E, A)``; environments that ended begin a new episode.

        In the next-step mode the row of an ended environment ignores its action, and answers ``is_first``.

        Raises:
            DataError: If actions have another shape: the policy's mistake, so no environment is restarted.
        """
        if actions.shape != (self.num_envs, self.codec.dim):
            raise DataError(
                f"the policy's actions have shape {actions.shape}; {self.num_envs} environments with "
                f"{self.codec.space!r} need {(self.num_envs, self.codec.dim)}"
            )
        try:
            obs, final, reward, terminated, truncated, info, end_info, begin_info = self._advanced(actions)
        except Exception as error:
            self._is_broken = True
            if self._rebuild is None:
                raise
            return self._rebuilt(error)
        done = terminated | truncated
        if self._mode is AutoresetMode.NEXT_STEP:
            is_first, self._ended = self._ended, done
        else:
            is_first = done
        fault = self._count_faults(end_info, FAULT_KEY)
        self._count_faults(begin_info or info, RESET_FAULT_KEY)
        step = self._time_step(
            self._flat(obs), final, is_first, info, end_info, reward, terminated, truncated, begin_info or info
        )
        return step if fault is None else replace(step, fault=fault)

    def _advanced(self, actions: np.ndarray) -> tuple[Any, ...]:
        """Step the vector, reset what ended where it does not do so by itself, and check that all is finite."""
        obs, reward, terminated, truncated, info = step_within(
            self.env, self.codec.nested(self.codec.decode(actions)), self._timeout_s
        )
        require_finite(self._flat(obs), np.asarray(reward))
        terminated, truncated = np.asarray(terminated, bool), np.asarray(truncated, bool)
        done = terminated | truncated
        final: dict[str, np.ndarray] = {}
        end_info, begin_info = info, None
        if done.any() and self._mode is AutoresetMode.SAME_STEP:
            final, end_info = self._final_obs(obs, info, done), info.get("final_info", {})
        elif done.any() and self._mode is AutoresetMode.DISABLED:
            final = {k: v.copy() for k, v in self._flat(obs).items()}
            obs, begin_info = self.env.reset(options={"reset_mask": done.copy()})
            require_finite(self._flat(obs), np.zeros(1))
        if FAULT_KEY in end_info:  # nothing reads the last observations of these rows
            fault = np.asarray(end_info[f"_{FAULT_KEY}"], bool)
            final = {k: np.where(_expand(fault, v), 0, v).astype(v.dtype) for k, v in final.items()}
        require_finite(final, np.zeros(1))
        return obs, final, reward, terminated, truncated, info, end_info, begin_info

    def _count_faults(self, info: dict[str, Any], key: str) -> np.ndarray | None:
        """Return the rows that an info names as failed, None if there is none."""
        if key not in info:
            return None
        fault = np.asarray(info[f"_{key}"], bool)
        for row in np.flatnonzero(fault):
            where = f"environment {self._env_name[row]!r} (row {row})"
            for what in str(info[key][row]).split("\n"):
                self._fault(where, 0 if key == RESET_FAULT_KEY else int(self._step[row]), what)
        return fault

    def _fault(self, where: str, step: int, what: str, cause: BaseException | None = None) -> None:
        """Count a failure.

        Raises:
            EnvError: If there were too many.
        """
        self.num_faults += 1
        self.last_fault = f"{where} failed at step {step} of its episode: {what}"
        if self.num_faults > self._max_restarts:
            raise EnvError(
                f"{self.last_fault}; that is failure {self.num_faults}, and env.max_restarts is {self._max_restarts}. "
                "`seqrl check-env` plays the environment alone and says what is wrong with it"
            ) from cause

    def _rebuilt(self, error: Exception) -> TimeStep:
        """Make the vector anew, and return its first step: every episode is cut off where it stood."""
        assert self._rebuild is not None
        row = int((getattr(error, "rows", None) or [np.argmax(self._step)])[0])
        self._fault(f"the vector of {self._env_name[row]!r}", int(self._step[row]), str(error) or repr(error), error)
        while True:
            close_by_force(self.env)
            seed = None if self._seed is None else self._seed + SEED_STRIDE * self.num_faults
            try:
                self.env = self._rebuild()
                obs, info = reset_within(self.env, seed, self._timeout_s)
                require_finite(self._flat(obs), np.zeros(1))
                break
            except Exception as again:
                self._fault(f"the vector of {self._env_name[row]!r}", 0, f"{again!r} in reset", again)
        self._is_broken = False
        everyone = np.ones(self.num_envs, bool)
        return replace(self._first_step(obs, info), truncated=everyone, fault=everyone.copy())

    def render(self) -> tuple[Any, ...]:
        """Return one frame per environment."""
        return rendered(self.env) or ()

    def close(self) -> None:
        """Close the environments; those that do not answer any more are ended."""
        self._is_closed.set()
        if self._is_broken:
            close_by_force(self.env)
        else:
            close_gently(self.env)

    def _time_step(
        self,
        obs: dict[str, np.ndarray],
        final_obs: dict[str, np.ndarray],
        is_first: np.ndarray,
        info: dict[str, Any],
        end_info: dict[str, Any],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        begin_info: dict[str, Any] | None = None,
    ) -> TimeStep:
        self._step = np.where(is_first, 0, self._step + 1)
        ended = terminated | truncated
        success, known = self._success(info, end_info, ended)
        final_obs = final_obs or obs
        mask, final_mask = self._masks(obs, final_obs, info, end_info, begin_info or {}, ended)
        return TimeStep(
            obs=obs,
            final_obs=final_obs,
            reward=np.asarray(reward, np.float32),
            terminated=terminated,
            truncated=truncated,
            is_first=is_first.copy(),
            step=self._step.copy(),
            env_name=self._names(info if begin_info is None else begin_info, ended),
            success=success,
            success_known=known,
            log=self._log(info, end_info, ended),
            action_mask=mask,
            final_action_mask=final_mask,
        )

    def _masks(
        self,
        obs: dict[str, np.ndarray],
        final_obs: dict[str, np.ndarray],
        info: dict[str, Any],
        end_info: dict[str, Any],
        begin_info: dict[str, Any],
        ended: np.ndarray,
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the action masks of ``obs`` and of ``final_obs``; from the observation, else from info."""
        if self.codec.kind == "continuous":
            return None, None
        if MASK_KEY in obs:
            mask = self.codec.legal(obs[MASK_KEY], self.num_envs)
            final = self.codec.legal(final_obs[MASK_KEY], self.num_envs)
        elif self._info_has_mask:
            mask, known = self._with_info_mask(np.ones((self.num_envs, self.codec.dim), bool), info, ~ended)
            final, _ = self._with_info_mask(mask, end_info, ended)
            if self._mode is not AutoresetMode.NEXT_STEP:
                mask, begun = self._with_info_mask(mask, begin_info or info, ended)
                known |= begun
            if (lost := ~(known | (ended & (self._mode is AutoresetMode.NEXT_STEP)))).any():
                row = int(np.argmax(lost))
                raise EnvError(
                    f"{self.env!r}: info['{MASK_KEY}'] was there, but is missing in row {row} ({self._env_name[row]}); "
                    "give it at every reset and step, in all tasks or in none"
                )
        elif MASK_KEY in info:
            raise EnvError(
                f"{self.env!r} gives info['{MASK_KEY}'] after a step, but did not after the first reset; "
                "give it at every reset and step, in all tasks or in none"
            )
        else:
            return None, None
        if self._mode is AutoresetMode.NEXT_STEP:
            mask = mask | ended[:, None]  # nobody acts there: the next action is ignored
        if (stuck := self.codec.stuck(mask)).any():
            row = int(np.argmax(stuck))
            raise EnvError(f"{self.env!r}: the action mask of environment {row} leaves no legal action: {mask[row]}")
        return mask, final

    def _with_info_mask(
        self, mask: np.ndarray, info: dict[str, Any], rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a copy of ``mask`` with those of the rows that ``info`` has a mask for, and which these are."""
        if MASK_KEY not in info:
            return mask.copy(), np.zeros(self.num_envs, bool)
        mask = mask.copy()
        present = np.asarray(info.get(f"_{MASK_KEY}", np.ones(self.num_envs, bool)), bool) & rows
        for row in np.flatnonzero(present):
            mask[row] = self.codec.legal(info[MASK_KEY][row])
        return mask, present

    def _names(self, info: dict[str, Any], ended: np.ndarray) -> tuple[str, ...]:
        """Return the task of each row's transition; ``info["env_name"]`` of a reset renames what follows."""
        before = list(self._env_name)
        if "env_name" in info:
            for row in np.flatnonzero(info.get("_env_name", np.ones(self.num_envs, bool))):
                self._env_name[row] = str(info["env_name"][row])
        return tuple(old if end else new for old, new, end in zip(before, self._env_name, ended, strict=True))

    def _flat(self, obs: Any) -> dict[str, np.ndarray]:
        return flatten_obs(self.observation_space, obs)

    def _final_obs(self, obs: Any, info: dict[str, Any], done: np.ndarray) -> dict[str, np.ndarray]:
        """Return the true last observations in the rows that ended, the current ones elsewhere."""
        final = info.get("final_obs")
        if final is None:
            raise EnvError(f"{self.env!r} announces same-step autoreset but gives no info['final_obs']")
        if not (isinstance(final, np.ndarray) and final.dtype == object):
            rows = self._flat(final)
            return {k: np.where(_expand(done, v), rows[k], v) for k, v in self._flat(obs).items()}
        merged = {k: v.copy() for k, v in self._flat(obs).items()}
        for row in np.flatnonzero(done):
            for key, value in self._flat(final[row]).items():
                assign(merged[key][row, ...], value)
        return merged

    def _success(
        self, info: dict[str, Any], end_info: dict[str, Any], ended: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        success, known = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        for key in SUCCESS_KEYS:
            for source, rows in ((info, ~ended), (end_info, ended)):
                if key in source:
                    present = np.asarray(source.get(f"_{key}", True), bool) & rows
                    success[present] |= successes(np.asarray(source[key])[present])
                    known |= present
        return success, known

    def _log(
        self, info: dict[str, Any], end_info: dict[str, Any], ended: np.ndarray
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        log: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for source, rows in ((info, ~ended), (end_info, ended)):
            for key in source:
                if name := logged_name(key):
                    present = np.asarray(source.get(f"_{key}", np.ones(self.num_envs, bool)), bool) & rows
                    values, before = log.get(name, (np.zeros(self.num_envs), np.zeros(self.num_envs, bool)))
                    log[name] = (np.where(present, _numbers(key, source[key], present), values), before | present)
        return log


def _numbers(key: str, values: Any, present: np.ndarray) -> np.ndarray:
    """Return a number for each row; 0 where there is none."""
    found = np.asarray(values)
    if found.ndim == 1 and found.dtype.kind in "biuf":
        return found.astype(np.float64)
    return np.array([logged_number(key, found[row]) if one else 0.0 for row, one in enumerate(present)])


def _default_names(env: VectorEnv[Any, Any, Any]) -> list[str]:
    """Return each row's gymnasium id, or the class of the environment where it has none."""
    if isinstance(env.unwrapped, SyncVectorEnv):
        return [task_name(one) for one in env.unwrapped.envs]
    if isinstance(env.unwrapped, WorkerVectorEnv):
        return env.unwrapped.task_names()
    if isinstance(env.unwrapped, AsyncVectorEnv):
        return [AsyncVectorEnv.__name__ if spec is None else str(spec.id) for spec in env.unwrapped.get_attr("spec")]
    return [type(env.unwrapped).__name__ if env.spec is None else env.spec.id] * env.num_envs


def _autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError as error:
        legal = ", ".join(m.value for m in AutoresetMode)
        raise EnvError(
            f"{env!r} announces autoreset mode {mode!r} in metadata['autoreset_mode']; legal are {legal}, "
            "without one of which the ends of episodes cannot be known"
        ) from error


def _expand(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
    return mask.reshape(-1, *([1] * (like.ndim - 1)))
