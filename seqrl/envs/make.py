"""From an id or a callable to environments; the functions can be sent to other processes."""

from __future__ import annotations

import functools
import multiprocessing
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, cast

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from seqrl.core.errors import EnvError, did_you_mean
from seqrl.core.plugins import load_plugins
from seqrl.core.text import has_text, readable, readable_space
from seqrl.envs.faults import RestartingMaker, WorkerMaker, told
from seqrl.envs.infos import has_succeeded
from seqrl.envs.single import SingleOfVector
from seqrl.envs.specs import named_spec
from seqrl.envs.suites import suite_maker, suite_vector_maker
from seqrl.envs.vector import BatchedEnv
from seqrl.envs.workers import WorkerVectorEnv

MakeEnv = Callable[[], "gym.Env[Any, Any]"]
MakeVectorEnv = Callable[[], "VectorEnv[Any, Any, Any]"]


def make_env(
    env_id: str,
    kwargs: Mapping[str, Any] | None = None,
    *,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    plugins: Sequence[str] = (),
    disable_env_checker: bool | None = None,
    terminate_on_success: bool = False,
) -> gym.Env[Any, Any]:
    """Return ``gymnasium.make(env_id, **kwargs)``, with plug-ins imported first (in a worker process they are not yet).

    Ids of known suites (:mod:`seqrl.envs.suites`) need no plug-in: their package is imported, and observations that
    policies could not read are converted, as is text of any environment. ``max_episode_steps`` may be among the
    ``kwargs`` too. With ``terminate_on_success`` an episode ends at its first success.

    Raises:
        EnvError: If the id is unknown, its package is missing, or it refuses the arguments.
    """
    load_plugins(plugins)
    options = dict(kwargs or {})
    limit_among_them = options.pop("max_episode_steps", None)
    if max_episode_steps is None:
        max_episode_steps = limit_among_them
    if render_mode is not None:
        options["render_mode"] = render_mode
    make = suite_maker(env_id) or (_make_of_vector if _is_vector_alone(env_id) else gym.make)
    try:
        env = make(env_id, max_episode_steps=max_episode_steps, disable_env_checker=disable_env_checker, **options)
        if isinstance(env, gym.Env) and env.spec is None:  # a suite may leave it out; tasks are told apart by its id
            env.unwrapped.spec = named_spec(env_id)
        env = ReadableText(env) if has_text(getattr(env, "observation_space", None)) else env
        return EndAtSuccess(env) if terminate_on_success else env
    except Exception as error:  # whatever the code of others raises
        is_unknown = isinstance(error, gym.error.NameNotFound | gym.error.NamespaceNotFound)
        if is_unknown and env_id not in gym.registry:
            raise EnvError(_unknown(env_id)) from error
        if extra := re.search(r"gymnasium\[(box2d|mujoco)\]", str(error)):
            raise EnvError(f"environment {env_id!r} needs more: pip install 'seqrl[{extra[1]}]'") from error
        is_vector = "must inherit from the gymnasium.Env class" in str(error)
        hint = "; a vector is given as seqrl.Experiment(..., make_train_env=...)" if is_vector else ""
        raise EnvError(f"environment {env_id!r} with arguments {options}: {told(error)}{hint}") from error


def _unknown(env_id: str) -> str:
    """Return what to say of an id that is not registered, with one like it in the same or a like namespace."""
    namespaces = {name.rpartition("/")[0] for name in gym.registry}
    namespace, has_one, _ = env_id.rpartition("/")
    near = get_close_matches(namespace, namespaces, n=1) if has_one else namespaces
    alike = did_you_mean(env_id, [name for name in gym.registry if name.rpartition("/")[0] in near])
    return (
        f"environment {env_id!r} is not registered{alike or ';'} name the file that registers one of your own "
        "(--plugin FILE, or plugins=[FILE] in Python), or in Python give the class or function that makes it (env=...)"
    )


def _is_vector_alone(env_id: str) -> bool:
    """Tell whether an id has a vector, and no single environment."""
    spec = gym.registry.get(env_id)
    return spec is not None and spec.entry_point is None and spec.vector_entry_point is not None


def _make_of_vector(
    env_id: str, *, max_episode_steps: int | None = None, disable_env_checker: bool | None = None, **options: Any
) -> gym.Env[Any, Any]:
    env: gym.Env[Any, Any] = SingleOfVector(gym.make_vec(env_id, 1, vectorization_mode="vector_entry_point", **options))
    return env if max_episode_steps is None else gym.wrappers.TimeLimit(env, max_episode_steps)


class ReadableText(gym.ObservationWrapper[Any, Any, Any]):
    """Observes each text as its bytes, ``(256,)`` uint8 (:mod:`seqrl.core.text`)."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = readable_space(env.observation_space)

    def observation(self, observation: Any) -> Any:
        """Encode the texts."""
        return readable(self.env.observation_space, observation)


class EndAtSuccess(gym.Wrapper[Any, Any, Any, Any]):
    """Terminates an episode at its first success (``info["success"]`` or ``is_success``)."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step of the environment."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or has_succeeded(info), truncated, info


def env_maker(env_id: str, kwargs: Mapping[str, Any] | None = None, **options: Any) -> MakeEnv:
    """Return a picklable callable that makes the environment, in this or a spawned process."""
    return functools.partial(make_env, env_id, dict(kwargs or {}), **options)


def check_native_vector(env_id: str, plugins: Sequence[str] = ()) -> None:
    """Check that a native vector environment is registered for an id, without making it.

    Raises:
        EnvError: If there is none.
    """
    load_plugins(plugins)
    if suite_vector_maker(env_id) is not None:
        return
    spec = gym.registry.get(env_id.rpartition(":")[2])
    if spec is not None and spec.vector_entry_point is None:
        raise EnvError(f"environment {env_id!r} has no native vector; set env.vectorization to 'sync' or 'async'")


def make_vector_env(
    env_id: str, num_envs: int, kwargs: Mapping[str, Any] | None = None, *, plugins: Sequence[str] = ()
) -> VectorEnv[Any, Any, Any]:
    """Return the native vector environment that is registered for an id.

    Raises:
        EnvError: If the id has none, is unknown, or refuses the arguments.
    """
    load_plugins(plugins)
    make = suite_vector_maker(env_id)
    try:
        if make is not None:
            return cast("VectorEnv[Any, Any, Any]", make(env_id, num_envs, **dict(kwargs or {})))
        return gym.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **dict(kwargs or {}))
    except Exception as error:  # as above
        raise EnvError(
            f"environment {env_id!r} cannot be made as a native vector: {told(error)}; "
            "env.vectorization 'sync' or 'async' works with any environment"
        ) from error


def make_batched_env(
    makers: MakeEnv | MakeVectorEnv | Sequence[MakeEnv],
    num_envs: int,
    *,
    vectorization: Literal["sync", "async", "native"] = "sync",
    start_method: str = "auto",
    num_workers: int | None = None,
    max_restarts: int | None = None,
    timeout_s: float | None = None,
) -> BatchedEnv:
    """Return ``num_envs`` environments behind the one interface.

    Args:
        makers: A callable that makes one environment; several, which the rows take in turn; or a callable that makes a
            ``gymnasium.vector.VectorEnv`` (natively vectorised; it is used as it is).
        num_envs: How many; a natively vectorised environment brings its own number.
        vectorization: ``sync`` steps them in this process, ``async`` in others; ``native`` says that ``makers`` makes
            a vector, which is seen without being told.
        start_method: How the processes of ``async`` begin: ``auto``, ``forkserver``, ``spawn`` or ``fork``.
        num_workers: Processes of ``async``, which share the environments; None is one process per environment.
        max_restarts: Failures that are borne: see :mod:`seqrl.envs.faults`. None lets the first one through as it is.
        timeout_s: Longest time of one step of ``async``; after it, ``sync`` logs which environment hangs.

    Raises:
        EnvError: If there is no maker, one returns the same environment again, or ``native`` was given one that makes a
            single environment.
    """
    if isinstance(makers, gym.Env | VectorEnv):
        raise EnvError(f"a callable that makes an environment is needed, not {makers}")
    makers = cast("list[MakeEnv]", [makers] if callable(makers) else list(makers))
    if not makers:
        raise EnvError("no environment was given")
    first = makers[0]()
    if isinstance(first, VectorEnv):
        if len(makers) > 1:
            first.close()
            raise EnvError(f"{len(makers)} native vectors were given; only one can be used")
        rebuild = None if max_restarts is None else makers[0]
        return BatchedEnv(first, rebuild=rebuild, max_restarts=max_restarts or 0)  # type: ignore[arg-type]
    if not isinstance(first, gym.Env):
        raise EnvError(f"a callable that makes a gymnasium environment is needed; this one returned {first!r}")
    if vectorization == "native":
        first.close()
        raise EnvError(f"a native vector environment is needed, and {first} is a single one")
    if num_envs > len(makers) and getattr(makers[0], "func", None) is not make_env:
        second = makers[0]()
        second.close()
        if second.unwrapped is first.unwrapped:
            raise EnvError("the callable returned one environment twice; it has to make a new one each time")
    first.close()
    rows: list[Any] = [makers[row % len(makers)] for row in range(num_envs)]
    rows = rows if vectorization == "sync" else [WorkerMaker(maker) for maker in rows]
    rows = [RestartingMaker(maker, is_restarting=max_restarts is not None) for maker in rows]
    build = functools.partial(_build_vector, rows, vectorization, start_method, num_workers or num_envs)
    if max_restarts is None:
        return BatchedEnv(build(), timeout_s=timeout_s)
    return BatchedEnv(build(), rebuild=build, max_restarts=max_restarts, timeout_s=timeout_s)


def _build_vector(
    makers: Sequence[MakeEnv], vectorization: str, start_method: str, num_workers: int
) -> VectorEnv[Any, Any, Any]:
    if vectorization == "sync":
        try:
            return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        except RuntimeError as error:
            raise EnvError(f"the environments cannot be stepped together: {told(error)}") from error
    if start_method == "auto":
        methods = multiprocessing.get_all_start_methods()
        start_method = "forkserver" if "forkserver" in methods else "spawn"
    return WorkerVectorEnv(makers, num_workers, start_method)
