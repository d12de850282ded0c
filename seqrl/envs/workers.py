"""Environments in worker processes, several to a process."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import pickle
import traceback
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.error import CustomSpaceError
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import (
    CloudpickleWrapper,
    batch_space,
    clear_mpi_env_vars,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
)

from seqrl.core.errors import EnvError
from seqrl.core.text import has_text

if TYPE_CHECKING:
    _Async = AsyncVectorEnv[Any, Any]
else:
    _Async = AsyncVectorEnv  # not generic in older gymnasiums

_Make = Callable[[], "gym.Env[Any, Any]"]
_NOBODY = -1


class WorkerVectorEnv(_Async):
    """An ``AsyncVectorEnv`` whose processes hold several environments each, and are woken once a step.

    Its rows are those of an ``AsyncVectorEnv`` in the same-step autoreset mode, however many workers there are.
    Observations come through shared memory, all else through pipes. ``processes`` and ``parent_pipes`` have an entry
    per worker.

    Args:
        makers: Make the environments; consecutive ones share a worker.
        num_workers: How many processes, at most one per environment.
        start_method: How they begin.

    Raises:
        EnvError: If the observations have no fixed size.
    """

    def __init__(self, makers: Sequence[_Make], num_workers: int, start_method: str) -> None:
        self.num_envs, self.autoreset_mode, self.observation_mode = len(makers), AutoresetMode.SAME_STEP, "same"
        num_workers = min(num_workers, self.num_envs)
        cuts = [worker * self.num_envs // num_workers for worker in range(num_workers + 1)]
        self._groups = [range(*ends) for ends in itertools.pairwise(cuts)]
        self._look_at(makers[0])
        context: Any = multiprocessing.get_context(start_method)
        memory = _shared(self.single_observation_space, self.num_envs, context)
        self.observations = read_from_shared_memory(self.single_observation_space, memory, self.num_envs)
        self._busy = context.RawArray("i", [_NOBODY] * num_workers)
        self.error_queue = context.Queue()
        self.parent_pipes, self.processes = [], []
        self._state = AsyncState.DEFAULT
        try:
            self._start(makers, memory, context)
            self._check_spaces()  # type: ignore[no-untyped-call]
        except BaseException as error:
            self.close(terminate=True)
            if isinstance(error, EOFError | ConnectionError):  # a pipe broke
                raise EnvError(
                    "a process of env.vectorization=async ended while it made its environments; a script that starts "
                    "processes needs `if __name__ == '__main__':` around what it does"
                ) from error
            raise

    def _start(self, makers: Sequence[_Make], memory: Any, context: Any) -> None:
        shared = (memory, self.num_envs, self._busy)
        with clear_mpi_env_vars():
            for worker, rows in enumerate(self._groups):
                here, there = context.Pipe()
                make = CloudpickleWrapper(functools.partial(_make_all, [makers[row] for row in rows]))  # type: ignore[type-var]
                args = (worker, rows, make, there, here, shared, self.error_queue)
                process = context.Process(target=_work, name=f"seqrl-envs-{worker}", args=args, daemon=True)
                process.start()
                there.close()
                self.parent_pipes.append(here)
                self.processes.append(process)

    def _look_at(self, make: _Make) -> None:
        env = make()
        self.metadata = {**env.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = env.render_mode
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        env.close()

    def rows_of(self, workers: Sequence[int]) -> list[int]:
        """Return in which environment each worker is; all of its environments if it is in none."""
        at = [(self._busy[worker], self._groups[worker]) for worker in workers]
        return [row for busy, group in at for row in (group if busy == _NOBODY else [busy])]

    def reset_async(self, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin to reset every environment; environment ``e`` gets ``seed + e``."""
        seeds = seed if isinstance(seed, list) else [None if seed is None else seed + e for e in range(self.num_envs)]
        self._send("reset", AsyncState.WAITING_RESET, [{"seed": one, "options": options} for one in seeds])

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observations and infos; ``timeout`` is in seconds."""
        (infos,) = zip(*self._received("reset", timeout), strict=True)
        return deepcopy(self.observations), self._merged(infos)

    def step_async(self, actions: Any) -> None:
        """Begin a step."""
        self._send("step", AsyncState.WAITING_STEP, actions)

    def step_wait(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Return observations, rewards, terminations, truncations and infos; ``timeout`` is in seconds."""
        rewards, terminated, truncated, infos = zip(*self._received("step", timeout), strict=True)
        flags = np.array([terminated, truncated], bool)
        return deepcopy(self.observations), np.array(rewards, np.float64), flags[0], flags[1], self._merged(infos)

    def task_names(self) -> list[str]:
        """Return each environment's gymnasium id, or its class where it has none."""
        self._send("_names", AsyncState.WAITING_CALL, [None] * self.num_envs)
        return list(self.call_wait())

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Return what a call gave in each environment."""
        return tuple(itertools.chain.from_iterable(super().call_wait(timeout)))

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of the environments, to one value or to one for each."""
        values = values if isinstance(values, list | tuple) else [values] * self.num_envs
        self._send("_setattr", AsyncState.WAITING_CALL, [(name, value) for value in values])
        self.call_wait()

    def _send(self, command: str, state: AsyncState, data: Any) -> None:
        """Send each worker the rows of its environments; ``data`` is nested like a batch of actions."""
        self._assert_is_running()
        if self._state is not AsyncState.DEFAULT:
            raise gym.error.AlreadyPendingCallError(
                f"{command} during a pending {self._state.value}", self._state.value
            )
        for pipe, rows in zip(self.parent_pipes, self._groups, strict=True):
            pipe.send((command, _cut(data, rows[0], rows[-1] + 1)))
        self._state = state

    def _received(self, command: str, timeout: float | None) -> list[Any]:
        """Return the workers' answers, one per environment."""
        self._assert_is_running()
        if self._state.value != command:
            raise gym.error.NoAsyncCallError(f"no {command} is pending", command)
        if not self._poll_pipe_envs(timeout):
            self._state = AsyncState.DEFAULT
            raise multiprocessing.TimeoutError(f"{command} has taken more than {timeout} s")
        answers, successes = zip(*[pipe.recv() for pipe in self.parent_pipes], strict=True)
        self._raise_if_errors(successes)
        self._state = AsyncState.DEFAULT
        return list(itertools.chain.from_iterable(answers))

    def _merged(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for row, info in enumerate(infos):
            if info:
                merged = self._add_info(merged, info, row)
        return merged

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        others = self.num_envs - len(self.processes)  # gymnasium counts one process per environment
        super()._raise_if_errors([*successes, *[True] * others])


def _shared(space: gym.Space[Any], num_envs: int, context: Any) -> Any:
    """Return shared memory for the observations of environments.

    Raises:
        EnvError: If they have no fixed size.
    """
    try:
        if has_text(space):
            raise TypeError("wrap the environment in seqrl.envs.make.ReadableText, as text has no fixed size")
        return create_shared_memory(space, num_envs, context)
    except (CustomSpaceError, TypeError) as error:
        raise EnvError(f"env.vectorization=async cannot share the observations {space}: {error}") from error


def _make_all(makers: Sequence[_Make]) -> list[gym.Env[Any, Any]]:
    return [make() for make in makers]


def _cut(nested: Any, first: int, end: int) -> Any:
    """Return some rows of every array or list."""
    if isinstance(nested, dict):
        return {key: _cut(value, first, end) for key, value in nested.items()}
    return tuple(_cut(value, first, end) for value in nested) if isinstance(nested, tuple) else nested[first:end]


def _write(into: Any, obs: Any) -> None:
    """Write an observation into its row of every array."""
    if isinstance(into, dict):
        for key, value in into.items():
            _write(value, obs[key])
    elif isinstance(into, tuple):
        for value, part in zip(into, obs, strict=True):
            _write(value, part)
    else:
        assign(into[0, ...], obs)


def assign(into: np.ndarray, obs: Any) -> None:
    """Write an observation into an array, by the casts that a ``SyncVectorEnv`` makes.

    Raises:
        EnvError: If it is of another shape, or of a type that would lose its values.
    """
    given = np.asarray(obs)
    if given.shape != into.shape or not np.can_cast(given.dtype, into.dtype, "same_kind"):
        raise EnvError(
            f"an observation is {given.dtype} of shape {given.shape}, but the environment's space says {into.dtype} "
            f"of shape {into.shape}"
        )
    into[...] = given


def task_name(env: gym.Env[Any, Any]) -> str:
    """Return an environment's gymnasium id, or its class where it has none."""
    return type(env.unwrapped).__name__ if env.spec is None else str(env.spec.id)


def _work(
    worker: int, rows: range, make: Any, pipe: Any, parent_pipe: Any, shared: tuple[Any, int, Any], error_queue: Any
) -> None:
    """Serve the environments of one worker until it is told to close."""
    parent_pipe.close()
    envs: list[gym.Env[Any, Any]] = []
    try:
        message = pipe.recv()  # before anything can fail, as nothing can be sent to a process that has ended
        envs = make()
        advance = _advancer(worker, rows, envs, *shared)
        while message[0] != "close":
            command, data = message
            answer = advance(command, data) if command in ("reset", "step") else _ASKED[command](envs, data)
            pipe.send((answer, True))
            message = pipe.recv()
        pipe.send((None, True))
    except (KeyboardInterrupt, Exception) as error:
        sent = _sendable(error)
        error_queue.put((worker, type(sent), sent, traceback.format_exc()))
        pipe.send((None, False))
    finally:
        for env in envs:
            env.close()


def _sendable(error: BaseException) -> BaseException:
    """Return an error that the main process can raise, with the error for its only argument as gymnasium does."""
    try:
        type(error)(pickle.loads(pickle.dumps(error)))
    except Exception:  # whatever the code of others defines; the main process would wait for it for ever
        return EnvError(f"{type(error).__name__}: {error}")
    return error


def _advancer(
    worker: int, rows: range, envs: Sequence[gym.Env[Any, Any]], memory: Any, num_envs: int, busy: Any
) -> Callable[[str, Any], list[Any]]:
    """Return what resets or steps every environment, and writes its observation into the shared memory."""
    whole = read_from_shared_memory(envs[0].observation_space, memory, num_envs)
    places = [_cut(whole, row, row + 1) for row in rows]
    actions = batch_space(envs[0].action_space, len(envs))

    def advance(command: str, data: Any) -> list[Any]:
        answers = []
        call, items = (_step, iterate(actions, data)) if command == "step" else (_reset, data)
        for row, env, place, item in zip(rows, envs, places, items, strict=True):
            busy[worker] = row
            obs, *answer = call(env, item)
            _write(place, obs)
            answers.append(answer)
        busy[worker] = _NOBODY
        return answers

    return advance


def _reset(env: gym.Env[Any, Any], data: dict[str, Any]) -> tuple[Any, ...]:
    return env.reset(**data)


def _step(env: gym.Env[Any, Any], action: Any) -> tuple[Any, ...]:
    """Step; an environment that ended is reset, as gymnasium's same-step mode does."""
    obs, reward, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        ended = {"final_obs": obs, "final_info": info}
        obs, begun = env.reset()
        info = ended | begun
    return obs, float(reward), bool(terminated), bool(truncated), info


def _call(envs: Sequence[gym.Env[Any, Any]], data: Any) -> list[Any]:
    name, args, kwargs = data
    found = [env.get_wrapper_attr(name) for env in envs]
    return [one(*args, **kwargs) if callable(one) else one for one in found]


def _set(envs: Sequence[gym.Env[Any, Any]], data: Any) -> list[bool]:
    return [env.set_wrapper_attr(name, value) for env, (name, value) in zip(envs, data, strict=True)]


def _compared(envs: Sequence[gym.Env[Any, Any]], data: Any) -> tuple[bool, bool]:
    _, observation_space, action_space = data
    same_observations = all(env.observation_space == observation_space for env in envs)
    return same_observations, all(env.action_space == action_space for env in envs)


def _names(envs: Sequence[gym.Env[Any, Any]], data: Any) -> list[str]:
    return [task_name(env) for env in envs]


_ASKED: dict[str, Callable[..., Any]] = {
    "_call": _call, "_setattr": _set, "_check_spaces": _compared, "_names": _names,
}  # fmt: skip
