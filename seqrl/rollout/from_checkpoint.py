"""The environment that a checkpoint was trained for."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym

import seqrl.envs  # noqa: F401  (registers the built-in environments)
from seqrl.algo.algo import Algo
from seqrl.algo.checkpoint import Checkpoint, missing_plugins, read_checkpoint
from seqrl.configs import BaseConfig
from seqrl.core.errors import CheckpointError, EnvError
from seqrl.core.plugins import Plugins, load_plugins, names_foreign_module
from seqrl.core.seeding import integer_seed
from seqrl.envs.make import MakeEnv, env_maker, make_batched_env
from seqrl.envs.vector import BatchedEnv
from seqrl.rollout.agreement import check_actions, check_observations
from seqrl.rollout.environments import Task, tasks
from seqrl.rollout.evaluator import evaluation_mode, normalized_scores, summarize_episodes, warn_of_faults
from seqrl.rollout.rollouts import AlgoPolicy, OnStep, evaluate_episodes

logger = logging.getLogger(__name__)


def env_maker_from_checkpoint(
    checkpoint: Checkpoint, *, env_id: str | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> MakeEnv:
    """Return a callable that makes a checkpoint's environment, or another one.

    Args:
        checkpoint: Where the id and its arguments are taken from.
        env_id: Another id, chosen by the user.
        kwargs: Arguments over (or, with another id, instead of) those in the checkpoint.
        options: ``render_mode``, ``max_episode_steps``, ``terminate_on_success``.

    Raises:
        CheckpointError: If it names no environment, or one of a module that is not imported: a checkpoint must not
            cause an import.
    """
    recorded = checkpoint.card.get("env") or {}
    if not isinstance(recorded, dict) or not isinstance(recorded.get("kwargs", {}), dict):
        raise CheckpointError(f"{checkpoint.path}: the card's 'env' is not an object: {str(recorded)[:60]}")
    if env_id is not None:
        return env_maker(env_id, kwargs, **options)
    if not (recorded_id := recorded.get("id")):
        raise CheckpointError(f"{checkpoint.path} names no environment; give one (--env ID, or env_id=ID in Python)")
    return _maker_of(checkpoint, Task(str(recorded_id), {**recorded.get("kwargs", {}), **(kwargs or {})}), options)


def _maker_of(checkpoint: Checkpoint, task: Task, options: Mapping[str, Any]) -> MakeEnv:
    if module := names_foreign_module(task.env_id):
        raise CheckpointError(
            f"{checkpoint.path} needs the environment {task.env_id!r}, whose module {module!r} is never imported "
            f"unasked. If you trust it, pass --plugin {module}, or plugins=[{module!r}] in Python."
        )
    make = env_maker(task.env_id, task.kwargs, **options)
    told = missing_plugins(checkpoint)
    return functools.partial(_made, make, told) if told else make


def _made(make: MakeEnv, told: str) -> gym.Env[Any, Any]:
    """Make an environment; if nobody knows it, say who may."""
    try:
        return make()
    except EnvError as error:
        if "is not registered" not in str(error):
            raise
        raise CheckpointError(f"{str(error).partition(' is not registered')[0]} is not registered; {told}") from error


def maker_by_rules(checkpoint: Checkpoint, config: BaseConfig, *, env_id: str | None = None, **options: Any) -> MakeEnv:
    """Return what makes a checkpoint's environment by the rules of the run's evaluations, or another one without them.

    Args:
        checkpoint: Of a run.
        config: Its run file; of several tasks, the first is made.
        env_id: Another id, chosen by the user.
        options: ``kwargs``, ``plugins``, and ``max_episode_steps``, which also in ``kwargs`` replaces the run's
            ``max_steps``.

    Raises:
        CheckpointError: As :func:`env_maker_from_checkpoint`.
    """
    if env_id is not None:
        return env_maker_from_checkpoint(checkpoint, env_id=env_id, **options)
    return env_maker_from_checkpoint(checkpoint, **_by_rules(config, options))


def makers_by_rules(
    checkpoint: Checkpoint, config: BaseConfig, *, env_id: str | None = None, **options: Any
) -> list[MakeEnv]:
    """Return what makes the environments of a run's evaluations: all tasks, with ``env.eval_kwargs``, by its rules.

    Args and errors are those of :func:`maker_by_rules`.
    """
    first = maker_by_rules(checkpoint, config, env_id=env_id, **options)
    if env_id is not None:
        return [first]
    recorded = checkpoint.card["env"]
    options = _by_rules(config, options)
    kwargs = {**config.env.eval_kwargs, **(options.pop("kwargs", None) or {})}
    section = config.env.model_copy(update={"eval_kwargs": kwargs})
    found = tasks(section, str(recorded["id"]), recorded.get("kwargs", {}), is_evaluation=True)
    return [_maker_of(checkpoint, task, options) for task in found]


def warn_of_other_tasks(checkpoint: Checkpoint, config: BaseConfig) -> None:
    """Warn if a run has more tasks than the one that :func:`maker_by_rules` makes."""
    if config.env.common_space == "off" and len(config.env.tasks) > 1:
        logger.warning("%s has %d tasks, of which only the first is played", checkpoint.path, len(config.env.tasks))


def _by_rules(config: BaseConfig, options: dict[str, Any]) -> dict[str, Any]:
    rules = config.experiment.evaluation
    if options.get("max_episode_steps") is None and "max_episode_steps" not in (options.get("kwargs") or {}):
        options = {**options, "max_episode_steps": rules.max_steps}
    return {**options, "terminate_on_success": True} if rules.terminate_on_success else options


def env_from_checkpoint(
    path: str | Path,
    *,
    env_id: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    render_mode: str | None = None,
    plugins: Plugins = (),
) -> gym.Env[Any, Any]:
    """Return one environment as a checkpoint was trained in, or another one by its id.

    Args:
        path: See :func:`seqrl.core.checkpoint_card.find_checkpoint`.
        env_id: Another gymnasium id.
        kwargs: Arguments over those in the checkpoint.
        render_mode: As for ``gymnasium.make``.
        plugins: Files or modules to import first.

    Raises:
        CheckpointError: If the checkpoint is damaged, names no environment, or needs a module that is not loaded.
        EnvError: If the environment cannot be made.
    """
    load_plugins(plugins)
    return env_maker_from_checkpoint(read_checkpoint(path), env_id=env_id, kwargs=kwargs, render_mode=render_mode)()


@contextmanager
def env_for_policy(algo: Algo, make: MakeEnv | Sequence[MakeEnv], num_envs: int, env_id: str) -> Iterator[BatchedEnv]:
    """Yield parallel environments that have been found to fit a policy, and close them.

    They are restarted when they fail, as in training (``env.max_restarts``).

    Args:
        algo: The policy.
        make: Makes one environment; several, which the environments take in turn.
        num_envs: How many; at least one of each.
        env_id: For messages.

    Raises:
        EnvError: If the environment gives or takes something else than the policy does, or complains while it is used.
    """
    least = 1 if callable(make) else len(make)
    env = make_batched_env(make, max(num_envs, least), max_restarts=algo.config.env.max_restarts)
    try:
        check_observations(env.observation_space, algo.obs, env_id)
        check_actions(env.codec.space, algo.codec.space, env_id)
        env.codec = algo.codec
        yield env
    except gym.error.Error as error:
        raise EnvError(f"environment {env_id!r}: {error}") from error
    finally:
        env.close()


def played(
    algo: Algo,
    env: BatchedEnv,
    num_episodes: int,
    *,
    seed: int,
    deterministic: bool | None = None,
    on_step: OnStep | None = None,
) -> dict[str, float]:
    """Return metrics of episodes that a policy plays.

    Args:
        algo: The policy.
        env: Where, from :func:`env_for_policy`.
        num_episodes: How many; at least one in each environment.
        seed: Of the environments and of a policy that samples.
        deterministic: Act greedily; False samples, None does what the run's evaluations did.
        on_step: Called with every step.
    """
    with evaluation_mode(algo, integer_seed(seed, "policy")):
        policy = AlgoPolicy(algo, env.num_envs, deterministic=deterministic)
        wanted = max(num_episodes, env.num_envs)
        episodes = evaluate_episodes(env, policy, wanted, seed=integer_seed(seed, "env"), on_step=on_step)
    warn_of_faults(env, 0)
    metrics = summarize_episodes(episodes)
    return metrics | normalized_scores(metrics, algo.config.env.reference_scores)
