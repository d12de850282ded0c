"""The environment that a checkpoint was trained for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym

import seqrl.envs  # noqa: F401  (registers the built-in environments)
from seqrl.algo.algo import Algo
from seqrl.algo.checkpoint import Checkpoint, read_checkpoint
from seqrl.configs.sections.run import EvaluationSection
from seqrl.core.errors import CheckpointError, EnvError
from seqrl.core.plugins import Plugins, load_plugins, names_foreign_module
from seqrl.core.seeding import integer_seed
from seqrl.envs.make import MakeEnv, env_maker, make_batched_env
from seqrl.envs.vector import BatchedEnv
from seqrl.rollout.agreement import check_actions, check_observations
from seqrl.rollout.evaluator import evaluation_mode, normalized_scores, summarize_episodes
from seqrl.rollout.rollouts import AlgoPolicy, OnStep, evaluate_episodes


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
    env_id = recorded.get("id")
    if not env_id:
        raise CheckpointError(f"{checkpoint.path} names no environment; give one (--env ID, or env_id=ID in Python)")
    if module := names_foreign_module(str(env_id)):
        raise CheckpointError(
            f"{checkpoint.path} needs the environment {env_id!r}, whose module {module!r} is never imported unasked. "
            f"If you trust it, pass --plugin {module}, or plugins=[{module!r}] in Python."
        )
    return env_maker(str(env_id), {**recorded.get("kwargs", {}), **(kwargs or {})}, **options)


def maker_by_rules(
    checkpoint: Checkpoint, evaluation: EvaluationSection, *, env_id: str | None = None, **options: Any
) -> MakeEnv:
    """Return what makes a checkpoint's environment by the rules of the run's evaluations, or another one without them.

    Args:
        checkpoint: Of a run.
        evaluation: Its ``max_steps`` and ``terminate_on_success`` are the rules.
        env_id: Another id, chosen by the user.
        options: ``kwargs``, ``plugins``, and ``max_episode_steps``, which also in ``kwargs`` replaces ``max_steps``.

    Raises:
        CheckpointError: As :func:`env_maker_from_checkpoint`.
    """
    if env_id is None:
        if options.get("max_episode_steps") is None and "max_episode_steps" not in (options.get("kwargs") or {}):
            options["max_episode_steps"] = evaluation.max_steps
        if evaluation.terminate_on_success:
            options["terminate_on_success"] = True
    return env_maker_from_checkpoint(checkpoint, env_id=env_id, **options)


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
        path: See :func:`seqrl.algo.checkpoint.find_checkpoint`.
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
def env_for_policy(algo: Algo, make: MakeEnv, num_envs: int, env_id: str) -> Iterator[BatchedEnv]:
    """Yield parallel environments that have been found to fit a policy, and close them.

    Args:
        algo: The policy.
        make: Makes one environment.
        num_envs: How many.
        env_id: For messages.

    Raises:
        EnvError: If the environment gives or takes something else than the policy does, or complains while it is used.
    """
    env = make_batched_env(make, num_envs)
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
    deterministic: bool = True,
    on_step: OnStep | None = None,
) -> dict[str, float]:
    """Return metrics of episodes that a policy plays.

    Args:
        algo: The policy.
        env: Where, from :func:`env_for_policy`.
        num_episodes: How many.
        seed: Of the environments and of a policy that samples.
        deterministic: Act greedily.
        on_step: Called with every step.
    """
    with evaluation_mode(algo, integer_seed(seed, "policy")):
        policy = AlgoPolicy(algo, env.num_envs, deterministic=deterministic)
        episodes = evaluate_episodes(env, policy, num_episodes, seed=integer_seed(seed, "env"), on_step=on_step)
    metrics = summarize_episodes(episodes)
    return metrics | normalized_scores(metrics, algo.config.env.reference_scores)
