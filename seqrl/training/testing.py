"""Playing in environments that the run does not know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError
from seqrl.core.files import expanded
from seqrl.core.seeding import integer_seed
from seqrl.core.types import TimeStep
from seqrl.data.store import StoreWriter
from seqrl.data.store_info import StoreInfo
from seqrl.envs.metrics import Episode
from seqrl.rollout.agreement import agreed_spaces
from seqrl.rollout.environments import Makers, build_env, first_spaces
from seqrl.rollout.evaluator import Evaluator
from seqrl.rollout.rollouts import EpisodeCollector, OnStep
from seqrl.training.parts import Parts


def _check(info: StoreInfo, make_env: Makers, episodes: int | None, timesteps: int | None) -> None:
    """Look at the arguments of a test.

    Raises:
        ConfigError: If a number is none to count with.
        EnvError: If an environment has other spaces than the run.
    """
    for name, value in (("episodes", episodes), ("timesteps", timesteps)):
        if value is not None and value < 1:
            raise ConfigError(f"evaluate_test: {name} must be at least 1, got {value}")
    for maker in [make_env] if callable(make_env) else make_env:
        agreed_spaces(info, *first_spaces(maker), "make_env")


def _storing(collector: EpisodeCollector, writer: StoreWriter) -> OnStep:
    """Return a hook that stores whole episodes as they end."""

    def store(actions: np.ndarray | None, step: TimeStep) -> None:
        collector(actions, step)
        for trajectory in collector.taken():
            writer.append(trajectory)

    return store


def play_test(
    config: BaseConfig,
    parts: Parts,
    epoch: int,
    make_env: Makers,
    *,
    episodes: int | None,
    timesteps: int | None,
    render: bool = False,
    save_trajs_to: str | Path | None = None,
    summarize: Callable[[list[Episode]], dict[str, float]] | None = None,
) -> tuple[dict[str, float], list[Episode]]:
    """Return metrics and episodes of a policy in other environments; see :meth:`Experiment.evaluate_test`.

    Raises:
        EnvError: If no episode ended.
    """
    _check(parts.world.info, make_env, episodes, timesteps)
    section = config.experiment.evaluation.model_copy()
    if episodes is None and timesteps is None:
        episodes = section.episodes
    section.episodes = episodes or section.num_envs
    evaluator = Evaluator(
        section,
        lambda num_envs: build_env(make_env, num_envs, config.env),
        integer_seed(config.train.seed, "test"),
        least=1 if callable(make_env) else len(make_env),
        summarize=summarize,
        reference=config.env.reference_scores,
    )
    hooks: list[OnStep] = []
    writer: StoreWriter | None = None
    try:
        env = evaluator.env
        env.codec = parts.algo.codec
        if render:
            hooks.append(lambda _actions, _step: (env.render(), None)[1])
        if save_trajs_to is not None:
            info = StoreInfo(env.observation_space, env.codec.space, source=f"{config.algo_name} policy")
            writer = StoreWriter(expanded(save_trajs_to), info)
            hooks.append(_storing(EpisodeCollector(env, None), writer))

        def on_step(actions: np.ndarray | None, step: TimeStep) -> None:
            for hook in hooks:
                hook(actions, step)

        return evaluator.evaluate(parts.algo, epoch, episodes=episodes, max_steps=timesteps, on_step=on_step)
    finally:
        evaluator.close()
        if writer is not None:
            writer.close()
