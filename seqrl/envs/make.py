"""From an id or a callable to environments; the functions can be sent to other processes."""

from __future__ import annotations

import functools
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from seqrl.core.errors import EnvError, did_you_mean
from seqrl.core.plugins import load_plugins
from seqrl.envs.vector import BatchedEnv

MakeEnv = Callable[[], "gym.Env[Any, Any]"]


def make_env(
    env_id: str,
    kwargs: Mapping[str, Any] | None = None,
    *,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    plugins: Sequence[str] = (),
) -> gym.Env[Any, Any]:
    """Return ``gymnasium.make(env_id, **kwargs)``, with plug-ins imported first (in a worker process they are not yet).

    Raises:
        EnvError: If the id is unknown, its package is missing, or it refuses the arguments.
    """
    load_plugins(plugins)
    options = dict(kwargs or {})
    if render_mode is not None:
        options["render_mode"] = render_mode
    try:
        return gym.make(env_id, max_episode_steps=max_episode_steps, **options)
    except (gym.error.Error, ModuleNotFoundError, TypeError, ValueError) as error:
        hint = did_you_mean(env_id, gym.registry) if env_id not in gym.registry else ""
        raise EnvError(f"environment {env_id!r} with arguments {options}: {error}{hint}") from error


def env_maker(env_id: str, kwargs: Mapping[str, Any] | None = None, **options: Any) -> MakeEnv:
    """Return a picklable callable that makes the environment, in this or a spawned process."""
    return functools.partial(make_env, env_id, dict(kwargs or {}), **options)


def names_foreign_module(env_id: str) -> str | None:
    """Return the module that a ``module:Env-v0`` id would import, or None; data and checkpoints must not cause that."""
    module, colon, _ = env_id.partition(":")
    return module if colon and module not in sys.modules else None


def make_batched_env(
    makers: MakeEnv | Sequence[MakeEnv],
    num_envs: int,
    *,
    vectorization: Literal["sync", "async"] = "sync",
) -> BatchedEnv:
    """Return ``num_envs`` environments behind the one interface.

    Args:
        makers: A callable that makes one environment, one callable per environment, or a callable that makes a
            ``gymnasium.vector.VectorEnv`` (natively vectorised; it is used as it is).
        num_envs: How many; a natively vectorised environment brings its own number.
        vectorization: ``sync`` steps them in this process, ``async`` in one process each.

    Raises:
        EnvError: If a list does not have ``num_envs`` entries.
    """
    if callable(makers):
        first = makers()
        if isinstance(first, VectorEnv):
            return BatchedEnv(first)
        first.close()
        makers = [makers] * num_envs
    makers = list(makers)
    if len(makers) != num_envs:
        raise EnvError(f"{len(makers)} environments were given for {num_envs} rows")
    if vectorization == "sync":
        return BatchedEnv(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))
    methods = multiprocessing.get_all_start_methods()
    context = "forkserver" if "forkserver" in methods else "spawn"
    return BatchedEnv(AsyncVectorEnv(makers, context=context, autoreset_mode=AutoresetMode.SAME_STEP))
