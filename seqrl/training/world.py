"""What a run acts in: its environments, found before anything is built, and the spaces that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces

from seqrl.algo.algo import Algo
from seqrl.configs import BaseConfig
from seqrl.configs.sections.run import EnvSection
from seqrl.core.errors import ConfigError, EnvError
from seqrl.core.nested_spaces import leaves
from seqrl.core.spaces import GOAL_PREFIX, ActionCodec, ObsSpec, obs_specs
from seqrl.data.store_info import StoreInfo
from seqrl.envs.make import MakeEnv, check_native_vector
from seqrl.envs.suites import is_one_per_process
from seqrl.envs.vector import BatchedEnv
from seqrl.rollout.agreement import agreed_spaces
from seqrl.rollout.environments import (
    Makers,
    Task,
    build_env,
    checked_makers,
    first_spaces,
    limited,
    refuse_foreign,
    row_makers,
    single_makers,
    tasks,
)

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]
Warn = Callable[[str], None]


@dataclass(frozen=True)
class GivenMakers:
    """What makes environments, where a user gave it instead of ids.

    Attributes:
        train: For training; None takes ``env``.
        val: For evaluation; None takes ``env``, or the data's own.
    """

    train: Makers | None = None
    val: Makers | None = None

    @classmethod
    def checked(cls, train: Makers | None, val: Makers | None) -> GivenMakers:
        """Return what was given as ``make_train_env`` and ``make_val_env``; the former stands in for the latter.

        Raises:
            ConfigError: If it is neither a callable nor a list of callables.
        """
        train = checked_makers("make_train_env", train)
        return cls(train, checked_makers("make_val_env", val) or train)


@dataclass(frozen=True)
class World:
    """The environments of a run, none of which is open yet.

    Attributes:
        info: Spaces of the environments and the data.
        train_tasks: Those to collect in, by id.
        eval_tasks: Those to evaluate in, by id.
        given: What a user gave instead.
        eval_makers: What makes one environment of each task to evaluate in; None if nothing can be evaluated.
        env_obs: Observation entries of each environment that was looked at; the data may hold less.
    """

    info: StoreInfo
    train_tasks: Sequence[Task] = ()
    eval_tasks: Sequence[Task] = ()
    given: GivenMakers = field(default_factory=GivenMakers)
    eval_makers: Makers | None = None
    env_obs: Sequence[dict[str, ObsSpec]] = ()

    @property
    def env_id(self) -> str | None:
        """The first environment to train in, if it has an id."""
        return self.train_tasks[0].env_id if self.train_tasks else None

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Its arguments."""
        return self.train_tasks[0].kwargs if self.train_tasks else {}

    def gives_goals(self, algo: Algo) -> bool:
        """Tell whether the environments observe the goals that the policy reads, or a ``desired_goal``."""
        return all(
            GOAL_PREFIX + k in entries or (k == "achieved_goal" and "desired_goal" in entries)
            for entries in self.env_obs
            for k in algo.goal_keys
        )


def find_world(
    config: BaseConfig,
    info: StoreInfo | None,
    given: GivenMakers,
    *,
    is_collecting: bool,
    warn: Warn,
    reach: Callable[[], str] | None = None,
) -> World:
    """Find out what to evaluate and collect in, and agree on the spaces.

    Args:
        config: The run file.
        info: Of the data, if there is any.
        given: What a user gave instead of ids.
        is_collecting: Whether this process acts in training environments.
        warn: Takes what is odd, but no error.
        reach: Tells from where to where the data's actions go, for messages.

    Raises:
        ConfigError: If an environment is needed, and none is named.
        EnvError: If one cannot be made, or has other spaces than the data or another one.
    """
    section = config.env
    data_id, data_kwargs = (info.env_id, info.env_kwargs) if info else (None, {})
    train_tasks = tasks(section, data_id, data_kwargs, is_evaluation=False)
    eval_tasks = tasks(section, data_id, data_kwargs, is_evaluation=True)
    _use_processes_for(section, (*train_tasks, *eval_tasks), warn)
    eval_makers: Makers | None = None
    found: Iterable[tuple[str, Spaces]] = ()
    if given.val is not None:
        eval_makers = limited(given.val, config.experiment.evaluation.max_steps)
        if given.val and config.experiment.evaluation.terminate_on_success:
            warn("experiment.evaluation.terminate_on_success needs environments named by an id; yours must end itself")
        named = single_makers(config, train_tasks) if is_collecting else []
        if is_collecting and not (named or given.train):
            raise ConfigError("env.id: is required to collect, or make_train_env")
        name = train_tasks[0].env_id if train_tasks else "make_env"
        found = ((name, first_spaces(m)) for makers in (given.train or named, given.val) for m in _each(makers))
    elif not eval_tasks:
        if is_collecting or info is None:
            raise ConfigError("env.id: is required to collect or to evaluate: a gymnasium id, or make_train_env")
        warn("neither env.id nor the data names an environment, so nothing will be evaluated")
    else:
        asked = config.experiment.evaluation
        _check_native(config, eval_tasks)
        makers = single_makers(config, eval_tasks, asked.max_steps, terminate_on_success=asked.terminate_on_success)
        seen = _look_at(config, eval_tasks, makers, is_needed=is_collecting or info is None, warn=warn)
        if seen:
            _check_alike(eval_tasks, seen)
            eval_makers = makers
            found = zip(_labels(eval_tasks), seen, strict=True)
    agreed, env_obs = _agreed(config, info, found, train_tasks, reach)
    return World(agreed, train_tasks, eval_tasks, given, eval_makers, env_obs)


def _check_native(config: BaseConfig, eval_tasks: Sequence[Task]) -> None:
    """Check that native vectors, if they are asked for, exist and can do what evaluation asks."""
    asked = config.experiment.evaluation
    if config.env.vectorization != "native":
        return
    if asked.max_steps is not None or asked.terminate_on_success:
        raise ConfigError(
            "experiment.evaluation.max_steps and terminate_on_success need env.vectorization 'sync' or 'async': a "
            "native vector ends its episodes itself"
        )
    for task in eval_tasks:
        check_native_vector(task.env_id, config.plugins)


def _use_processes_for(section: EnvSection, chosen: Sequence[Task], warn: Warn) -> None:
    """Give environments processes of their own where one can hold only one of them."""
    alone = next((task.env_id for task in chosen if is_one_per_process(task.env_id)), None)
    if alone and section.vectorization == "sync":
        section.vectorization = "async"
        warn(f"env.vectorization is async, as a process can hold only one {alone}")


def _each(makers: Makers) -> Sequence[Any]:
    return [makers] if callable(makers) else makers


def _look_at(
    config: BaseConfig, eval_tasks: Sequence[Task], makers: Sequence[MakeEnv], *, is_needed: bool, warn: Warn
) -> list[Spaces]:
    """Return the spaces of environments by id; none, after a warning, if those of the data cannot be made here."""
    section = config.env
    try:
        if section.id is None and not section.tasks:
            refuse_foreign(eval_tasks)
        return [first_spaces(maker) for maker in makers]
    except EnvError as error:
        if not is_needed and not config.experiment.evaluation.enabled:
            warn(f"the environment cannot be made, so the spaces are those of the data: {error}")
            return []
        if section.id or section.tasks or is_needed:
            raise
        if section.kwargs or section.eval_kwargs:
            raise EnvError(
                f"{error} (the data's environment, with env.kwargs and env.eval_kwargs of the run file; to train "
                "without evaluation, set experiment.evaluation.enabled=false)"
            ) from error
        warn(f"the data's environment cannot be made, so nothing will be evaluated: {error}")
        return []


def _check_alike(eval_tasks: Sequence[Task], seen: Sequence[Spaces]) -> None:
    """Check that tasks of the same shapes also have the same bounds, as gymnasium's vectors ask.

    Raises:
        EnvError: If they have not. Other differences are told by whoever compares the spaces with the data.
    """
    for task, found in zip(eval_tasks, seen, strict=True):
        for own, first in zip(map(_leaves, found), map(_leaves, seen[0]), strict=True):
            if {k: v.shape for k, v in own.items()} != {k: v.shape for k, v in first.items()}:
                continue
            if differing := [f"{first[k]} and {leaf}" for k, leaf in own.items() if leaf != first[k]]:
                raise EnvError(
                    f"the tasks {eval_tasks[0].env_id!r} {eval_tasks[0].kwargs or ''} and {task.env_id!r} "
                    f"{task.kwargs or ''} have different spaces: {', '.join(differing)}; env.common_space=on joins them"
                )


def _labels(named: Sequence[Task]) -> list[str]:
    """Return what tells tasks apart in messages: the id, with the arguments where several share one."""
    ids = [task.env_id for task in named]
    return [f"{t.env_id} {t.kwargs}" if ids.count(t.env_id) > 1 else t.env_id for t in named]


def _leaves(space: spaces.Space[Any]) -> dict[str, spaces.Box]:
    return {name: leaf for name, leaf in leaves(space, "") if isinstance(leaf, spaces.Box)}


def _agreed(
    config: BaseConfig,
    info: StoreInfo | None,
    found: Iterable[tuple[str, Spaces]],
    train_tasks: Sequence[Task],
    reach: Callable[[], str] | None,
) -> tuple[StoreInfo, list[dict[str, ObsSpec]]]:
    """Return the spaces that the data and all environments speak of, and what each environment observes."""
    entries = []
    for name, (observation_space, action_space) in found:
        entries.append(obs_specs(observation_space))
        if info is not None:
            try:
                info = agreed_spaces(info, observation_space, action_space, name, reach=reach)
            except EnvError as error:
                first = _labels(train_tasks)[0] if len(train_tasks) > 1 else name
                hint = f" (of {first!r}); env.common_space=on joins tasks of different spaces" if first != name else ""
                raise EnvError(f"{error}{hint}{_names_in_columns(config, info, entries[-1])}") from error
            continue
        ActionCodec(action_space)  # raises where it is not supported
        info = StoreInfo(
            observation_space,
            action_space,
            env_id=train_tasks[0].env_id if train_tasks else None,
            env_kwargs=train_tasks[0].kwargs if train_tasks else {},
            source=f"what was collected in {name}",
        )
    assert info is not None
    return info, entries


def _names_in_columns(config: BaseConfig, info: StoreInfo, given: Mapping[str, ObsSpec]) -> str:
    """Return how ``columns`` name what the environment observes, if the data has others."""
    if obs_specs(info.observation_space).keys() <= given.keys() or not any(s.columns for s in config.train.data):
        return ""
    names = ", ".join(f'"obs/{name}", "next_obs/{name}"' for name in given)
    return f"; in columns, name the observations as the environment does: {names}"


# ------------------------------------------------------------------------------------ making environments
def training_makers(config: BaseConfig, world: World) -> Makers:
    """Return what makes the training environments."""
    return world.given.train or row_makers(config, world.train_tasks, config.collect.num_envs)


def build_eval_env(config: BaseConfig, world: World, num_envs: int) -> BatchedEnv:
    """Make parallel environments to evaluate in."""
    makers = world.eval_makers
    assert makers is not None
    if world.given.val is None and config.env.vectorization == "native":
        makers = row_makers(config, world.eval_tasks, num_envs)
    return build_env(makers, num_envs, config.env)
