"""Environments that fail: one that raises is made anew on the spot, a vector that breaks is rebuilt."""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, VectorEnv
from gymnasium.vector.async_vector_env import AsyncState

from seqrl.core.errors import EnvError
from seqrl.envs.infos import plain_info
from seqrl.envs.workers import WorkerVectorEnv

logger = logging.getLogger(__name__)

FAULT_KEY = "seqrl/fault"
"""Info entry: what an environment raised in a step, after which it was made anew."""
RESET_FAULT_KEY = "seqrl/reset_fault"
"""Info entry: what an environment raised in a reset, after which it was made anew and reset."""

_RESET_TRIES, _DEATH_S = 3, 2.0
SEED_STRIDE = 1_000_003
"""Between the seeds before and after a restart, so that the episode that failed does not come again."""


class RowsFailedError(EnvError):
    """Some environments of an asynchronous vector are dead or late."""

    def __init__(self, text: str, rows: list[int]) -> None:
        super().__init__(text)
        self.rows = rows


class RestartingEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Makes its environment anew when it raises or returns a number that is not finite.

    The failed step ends the episode as truncated, with the last good observation and the reason in
    ``info["seqrl/fault"]``, so that whoever records can leave the step out.

    The last observation of an episode is copied, as the reset that follows may write into the same array. Of the infos
    only what :func:`~seqrl.envs.infos.plain_info` reads is handed on.

    Args:
        make: Makes the environment; called again after each failure.
        is_restarting: Whether failures are borne; else they come through.

    Attributes:
        busy_since: ``time.monotonic()`` at which the call under way began; None between calls.
    """

    busy_since: float | None = None

    def __init__(self, make: Callable[[], gym.Env[Any, Any]], *, is_restarting: bool = True) -> None:
        super().__init__(make())
        self._is_restarting = is_restarting
        self._make = make
        self._last_obs: Any = None
        self._seed: int | None = None
        self._num_restarts = 0
        self._is_fresh = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset; an environment that fails in it is made anew, three times in a row at most."""
        if seed is not None:
            self._seed, self._num_restarts, self._is_fresh = seed, 0, False
        faults: list[str] = []
        while True:
            if self._is_fresh and self._seed is not None:
                seed = self._seed + SEED_STRIDE * self._num_restarts  # not the episodes of the one that failed
            self.busy_since = time.monotonic()
            try:
                obs, info = self.env.reset(seed=seed, options=options)
                _require_finite(obs, 0.0)
                info = plain_info(info)
                break
            except Exception as error:
                if not self._is_restarting:
                    raise
                faults.append(f"in reset, {told(error)}")
                if len(faults) == _RESET_TRIES:
                    raise EnvError(
                        f"the environment failed in reset {_RESET_TRIES} times in a row: {faults[-1]}"
                    ) from error
                self._restart()
            finally:
                self.busy_since = None
        self._last_obs, self._is_fresh = copy.deepcopy(obs), False
        return obs, {**info, RESET_FAULT_KEY: "\n".join(faults)} if faults else info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; an environment that fails is made anew, and its episode is truncated."""
        self.busy_since = time.monotonic()
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
            _require_finite(obs, reward)
            info = plain_info(info)
        except Exception as error:
            if not self._is_restarting:
                raise
            self._restart()
            return self._last_obs, 0.0, False, True, {FAULT_KEY: told(error)}
        finally:
            self.busy_since = None
        self._last_obs = copy.deepcopy(obs)  # an environment may write the next one into the same array
        return self._last_obs if terminated or truncated else obs, reward, terminated, truncated, info

    def _restart(self) -> None:
        with contextlib.suppress(Exception):
            self.env.close()
        self.env = self._make()
        self._num_restarts += 1
        self._is_fresh = True


class RestartingMaker:
    """A picklable callable that makes a :class:`RestartingEnv`."""

    def __init__(self, make: Callable[[], gym.Env[Any, Any]], *, is_restarting: bool = True) -> None:
        self._make = make
        self._is_restarting = is_restarting

    def __call__(self) -> gym.Env[Any, Any]:
        """Make it."""
        return RestartingEnv(self._make, is_restarting=self._is_restarting)


_OF_A_TERMINAL = [getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)]


class WorkerMaker:
    """A picklable callable that makes an environment in a worker process, which ignores the signals of a terminal."""

    def __init__(self, make: Callable[[], gym.Env[Any, Any]]) -> None:
        self._make, self._main = make, os.getpid()

    def __call__(self) -> gym.Env[Any, Any]:
        """Make it; gymnasium makes one in the main process as well, to look at its spaces."""
        if os.getpid() != self._main:
            for number in _OF_A_TERMINAL:
                signal.signal(number, signal.SIG_IGN)
        return _UninterruptedEnv(self._make())


class _UninterruptedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Lets a KeyboardInterrupt of the environment's own code pass for a failure, as it would end the main process."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        try:
            return self.env.reset(seed=seed, options=options)
        except KeyboardInterrupt as error:
            raise EnvError(f"reset raised {error!r}") from error

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            return self.env.step(action)
        except KeyboardInterrupt as error:
            raise EnvError(f"step raised {error!r}") from error


def told(error: Exception) -> str:
    """Return what gymnasium or seqrl say of an environment, or what its own code raised, and where."""
    if isinstance(error, gym.error.Error | EnvError):
        return str(error)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    theirs = [f for f in frames if not {"gymnasium", "importlib", "seqrl"} & set(Path(f.filename).parts)]
    return _text(error) + "".join(f" (raised in {f.filename}, line {f.lineno})" for f in theirs[-1:])


def rendered(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> Any:
    """Return what an environment draws.

    Raises:
        EnvError: If it cannot: it may need another render mode, or a package such as pygame.
    """
    try:
        return env.render()
    except Exception as error:  # whatever the code of others raises
        text = told(error)
        is_headless = re.search(r"\b(opengl|egl|glfw)\b", text, re.IGNORECASE)
        hint = (
            "; for MuJoCo without a display, set MUJOCO_GL=egl, or osmesa (apt install libosmesa6)"
            if is_headless
            else ""
        )
        raise EnvError(f"the environment cannot be drawn: {text}{hint}") from error


def watch(env: Callable[[], Any], names: Sequence[str], limit_s: float, is_closed: threading.Event) -> None:
    """Log once which environment of a ``SyncVectorEnv`` does not return, from a thread of its own: none can end it.

    An environment that does not return and never lets another thread run either, in C code of its own, stays unnoticed.

    Args:
        env: Gives the vector, or None when it is gone.
        names: Of the environments.
        limit_s: Seconds after which it is said.
        is_closed: Ends the thread.
    """

    def work() -> None:
        said: set[tuple[int, float]] = set()
        while not is_closed.wait(limit_s / 4) and (vector := env()) is not None:
            busy = [(row, getattr(one, "busy_since", None)) for row, one in enumerate(vector.unwrapped.envs)]
            del vector
            for row, since in busy:
                if since is not None and time.monotonic() - since > limit_s and (row, since) not in said:
                    said.add((row, since))
                    _say_hanging(names[row], row, time.monotonic() - since)

    threading.Thread(target=work, name="seqrl-watchdog", daemon=True).start()


def _say_hanging(name: str, row: int, seconds: float) -> None:
    logger.warning(
        "environment %r (row %d) hangs: it has not returned since %s, %.0f s ago. Nothing in this process can end it; "
        "with env.vectorization=async it is restarted after env.timeout_s, and the run goes on",
        name,
        row,
        time.strftime("%H:%M:%S", time.localtime(time.time() - seconds)),
        seconds,
    )


def step_within(env: VectorEnv[Any, Any, Any], actions: np.ndarray, timeout_s: float | None) -> Any:
    """Return ``env.step(actions)``; an asynchronous vector may take ``timeout_s`` seconds at most.

    Raises:
        EnvError: If it took longer, or a worker died; the message names the rows.
    """
    if not isinstance(env.unwrapped, AsyncVectorEnv) or env.unwrapped is not env:
        return env.step(actions)
    try:
        env.step_async(actions)
        return env.step_wait(timeout=timeout_s)
    except Exception as error:
        late = _rows(env, [i for i, pipe in enumerate(env.parent_pipes) if pipe is None or not _has_answered(pipe)])
        if dead := _dead_rows(env, error):
            raise RowsFailedError(f"the process of row {', '.join(map(str, dead))} died", dead) from error
        if isinstance(error, TimeoutError) or type(error).__name__ == "TimeoutError":
            text = f"row {', '.join(map(str, late))} did not answer within {timeout_s:g} s"
            raise RowsFailedError(text, late) from error
        raise


def _dead_rows(env: AsyncVectorEnv[Any, Any, Any], error: Exception) -> list[int]:
    """Return the rows whose process has ended, after an error."""
    if isinstance(error, EOFError | OSError):  # a pipe broke; its process needs a moment to be seen as dead
        _wait_for_a_death(env)
    return _rows(env, [i for i, process in enumerate(env.processes) if not process.is_alive()])


def _rows(env: AsyncVectorEnv[Any, Any, Any], processes: list[int]) -> list[int]:
    return env.rows_of(processes) if isinstance(env, WorkerVectorEnv) else processes


def close_gently(env: VectorEnv[Any, Any, Any]) -> None:
    """Close a vector, by force if it is in the middle of a call or its processes have died."""
    inner = env.unwrapped
    if isinstance(inner, AsyncVectorEnv) and not inner.closed:
        is_idle = inner._state is AsyncState.DEFAULT
        if not is_idle or not all(process.is_alive() for process in inner.processes):
            close_by_force(env)
            return
    env.close()


def reset_within(env: VectorEnv[Any, Any, Any], seed: int | None, timeout_s: float | None) -> Any:
    """Return ``env.reset(seed=seed)``; an asynchronous vector may take ``timeout_s`` seconds at most.

    Raises:
        EnvError: If a worker died; the message names the rows.
    """
    if not isinstance(env.unwrapped, AsyncVectorEnv) or env.unwrapped is not env:
        return env.reset(seed=seed)
    try:
        env.reset_async(seed=seed)
        return env.reset_wait(timeout=timeout_s)
    except (EOFError, ConnectionError) as error:
        dead = [] if str(error) else _dead_rows(env, error)  # what an environment raised says something
        if not dead:
            raise
        raise RowsFailedError(f"the process of row {', '.join(map(str, dead))} died in reset", dead) from error


def close_by_force(env: VectorEnv[Any, Any, Any]) -> None:
    """Close a vector that may not answer any more; its processes are ended."""
    inner = env.unwrapped
    with contextlib.suppress(Exception):
        if isinstance(inner, AsyncVectorEnv):
            for process in inner.processes:
                process.kill()
            inner._state = AsyncState.DEFAULT  # nobody waits for the call that is pending
            env.close(terminate=True)
        else:
            env.close()


def require_finite(obs: dict[str, np.ndarray], reward: np.ndarray) -> None:
    """Check one vector step.

    Raises:
        EnvError: That names the entry and the row.
    """
    for name, value in [*((f"observation {k!r}", v) for k, v in obs.items()), ("reward", reward)]:
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            row = int(np.argwhere(~np.isfinite(value))[0][0])
            raise EnvError(f"the {name} of row {row} is not finite")


def _require_finite(obs: Any, reward: Any) -> None:
    if not math.isfinite(reward):
        raise ValueError(f"the reward is {reward}")
    if isinstance(obs, dict | tuple | list):
        items = obs.items() if isinstance(obs, dict) else enumerate(obs)
        for key, value in items:
            try:
                _require_finite(value, 0.0)
            except ValueError as error:
                raise ValueError(f"{error} (entry {key!r})") from error
        return
    array = np.asarray(obs)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("the observation is not finite")


def _wait_for_a_death(env: AsyncVectorEnv[Any, Any, Any]) -> None:
    end = time.monotonic() + _DEATH_S
    while all(process.is_alive() for process in env.processes) and time.monotonic() < end:
        time.sleep(0.01)


def _has_answered(pipe: Any) -> bool:
    try:
        return bool(pipe.poll(0))
    except OSError:
        return True


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")
