"""From the section ``env`` to environments for training and for evaluation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from seqrl.configs import BaseConfig
from seqrl.configs.sections.run import EnvSection
from seqrl.core.errors import ConfigError, EnvError
from seqrl.core.plugins import names_foreign_module
from seqrl.envs.make import MakeEnv, MakeVectorEnv, env_maker, make_batched_env, make_vector_env
from seqrl.envs.mixture import MIXTURE_ID
from seqrl.envs.vector import BatchedEnv

Makers = MakeEnv | MakeVectorEnv | Sequence[MakeEnv]


@dataclass(frozen=True)
class Task:
    """One environment by its id.

    Attributes:
        env_id: gymnasium id.
        kwargs: Arguments of ``gymnasium.make``.
    """

    env_id: str
    kwargs: dict[str, Any]


def tasks(
    section: EnvSection, data_id: str | None, data_kwargs: Mapping[str, Any], *, is_evaluation: bool
) -> list[Task]:
    """Return the environments that a run file names, else the data's own; none if nobody names one.

    The data's arguments hold for its own environment, named or not, where the run file gives no others.

    Raises:
        EnvError: If an entry of ``env.tasks`` has no id.
    """
    extra = section.eval_kwargs if is_evaluation else {}
    if section.tasks:
        missing = [i for i, t in enumerate(section.tasks) if not (t.id or section.id)]
        if missing:
            raise EnvError(f"env.tasks.{missing[0]}.id: is required, as env.id is null")
        found = [Task(str(t.id or section.id), {**section.kwargs, **t.kwargs, **extra}) for t in section.tasks]
        return found if section.common_space == "off" else [_mixture(found, section.common_space == "with_task")]
    chosen = section.id or data_id
    own = data_kwargs if chosen == data_id else {}
    return [Task(chosen, {**own, **section.kwargs, **extra})] if chosen else []


def _mixture(found: Sequence[Task], observe_task: bool) -> Task:
    """Return tasks as the one environment that plays all of them."""
    listed = [{"id": task.env_id, "kwargs": task.kwargs} for task in found]
    return Task(MIXTURE_ID, {"tasks": listed, "observe_task": observe_task})


def single_makers(
    config: BaseConfig, chosen: Sequence[Task], max_steps: int | None = None, *, terminate_on_success: bool = False
) -> list[MakeEnv]:
    """Return what makes one environment of each task."""
    options: dict[str, Any] = {"max_episode_steps": max_steps, "plugins": config.plugins}
    if terminate_on_success:
        options["terminate_on_success"] = True
    return [env_maker(t.env_id, t.kwargs, **options) for t in chosen]


def limited(makers: Makers | None, max_steps: int | None) -> Makers | None:
    """Return makers of a user's own environments whose episodes end after so many steps; None limits nothing."""
    if makers is None or max_steps is None:
        return makers
    if callable(makers):
        return functools.partial(_with_limit, makers, max_steps)
    return [functools.partial(_with_limit, maker, max_steps) for maker in makers]


def _with_limit(make: Callable[[], Any], max_steps: int) -> gym.Env[Any, Any]:
    env = make()
    if not isinstance(env, gym.Env):
        raise ConfigError(
            "experiment.evaluation.max_steps limits single environments; a vector ends its episodes itself"
        )
    return gym.wrappers.TimeLimit(env, max_steps)


def row_makers(config: BaseConfig, chosen: Sequence[Task], num_envs: int) -> Makers:
    """Return what :func:`build_env` needs for ``num_envs`` rows.

    Raises:
        EnvError: If native vectors were asked for, and there are several tasks.
    """
    if config.env.vectorization != "native":
        return single_makers(config, chosen)
    if len(chosen) != 1:
        raise EnvError("env.vectorization 'native' makes one vector, but env.tasks has several; use 'sync' or 'async'")
    task = chosen[0]
    return functools.partial(make_vector_env, task.env_id, num_envs, task.kwargs, plugins=config.plugins)


def checked_makers(name: str, makers: Any) -> Makers | None:
    """Return the makers that a user gave.

    Raises:
        ConfigError: If they are not a callable, or a list of callables that is not empty.
    """
    if makers is None or callable(makers):
        return makers  # type: ignore[no-any-return]
    if not isinstance(makers, Sequence) or not makers or not all(callable(m) for m in makers):
        raise ConfigError(f"{name} must be a callable that makes an environment, or a list of them, got {makers!r}")
    return makers


def build_env(makers: Makers, num_envs: int, section: EnvSection) -> BatchedEnv:
    """Return environments that are restarted when they fail."""
    return make_batched_env(
        makers,
        num_envs,
        vectorization=section.vectorization,
        num_workers=section.num_workers,
        start_method=section.start_method,
        max_restarts=section.max_restarts,
        timeout_s=section.timeout_s,
    )


def first_spaces(makers: Makers) -> tuple[Any, Any]:
    """Return the observation and action space of one environment, made for that and closed."""
    made = (makers if callable(makers) else makers[0])()
    if not hasattr(made, "action_space"):
        raise EnvError(f"the callable that makes environments returned {made!r}, which is not one")
    try:
        if isinstance(made, VectorEnv):
            return made.single_observation_space, made.single_action_space
        return made.observation_space, made.action_space
    finally:
        made.close()


def refuse_foreign(chosen: Sequence[Task]) -> None:
    """Refuse ids, taken from data, that would import a module.

    Raises:
        EnvError: That names the module.
    """
    for task in chosen:
        if module := names_foreign_module(task.env_id):
            raise EnvError(f"{task.env_id!r} would import {module!r}, which data must not do; pass --plugin {module}")
