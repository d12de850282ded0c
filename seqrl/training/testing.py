"""Playing in environments that the run does not know."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seqrl.core.errors import ConfigError
from seqrl.core.seeding import integer_seed
from seqrl.core.types import TimeStep
from seqrl.data.store import StoreInfo, StoreWriter
from seqrl.envs.metrics import Episode
from seqrl.rollout.agreement import agreed_spaces
from seqrl.rollout.environments import Makers, build_env, first_spaces
from seqrl.rollout.evaluator import Evaluator
from seqrl.rollout.rollouts import OnStep, recording
from seqrl.training.saving import SavingExperiment


class TestedExperiment(SavingExperiment):
    """The part of an experiment that evaluates elsewhere."""

    def evaluate_test(
        self,
        make_env: Makers,
        episodes: int | None = None,
        *,
        timesteps: int | None = None,
        render: bool = False,
        save_trajs_to: str | Path | None = None,
    ) -> tuple[dict[str, float], list[Episode]]:
        """Return metrics and episodes of the current policy in other environments.

        Args:
            make_env: Makes one environment, or a list of such callables.
            episodes: How many; by default, and without ``timesteps``, as many as the run's evaluations.
            timesteps: Stop after so many steps of each environment, whatever has ended by then.
            render: Call ``render`` after each step.
            save_trajs_to: Store to which everything is added, protected, for other runs to train on.

        Raises:
            EnvError: If no episode ended.
        """
        episodes = self._checked_test(make_env, episodes, timesteps)
        section = self.config.experiment.evaluation.model_copy()
        section.episodes = episodes or section.num_envs
        evaluator = Evaluator(
            section,
            lambda num_envs: build_env(make_env, num_envs, self.config.env),
            integer_seed(self.config.train.seed, "test"),
            least=1 if callable(make_env) else len(make_env),
        )
        hooks: list[OnStep] = []
        writer: StoreWriter | None = None
        try:
            env = evaluator.env
            if render:
                hooks.append(lambda _actions, _step: (env.render(), None)[1])
            if save_trajs_to is not None:
                info = StoreInfo(env.observation_space, env.codec.space, source=f"{self.config.algo_name} policy")
                writer = StoreWriter(Path(save_trajs_to).expanduser(), info)
                hooks.append(recording(env.codec.decode, writer.append))

            def on_step(actions: np.ndarray | None, step: TimeStep) -> None:
                for hook in hooks:
                    hook(actions, step)

            return evaluator.evaluate(
                self.algo, self.progress.epoch, episodes=episodes, max_steps=timesteps, on_step=on_step
            )
        finally:
            evaluator.close()
            if writer is not None:
                writer.close()

    def _checked_test(self, make_env: Makers, episodes: int | None, timesteps: int | None) -> int | None:
        """Return how many episodes a test has, after looking at its arguments."""
        if not hasattr(self, "algo"):
            raise ConfigError("call start() before evaluate_test()")
        for name, value in (("episodes", episodes), ("timesteps", timesteps)):
            if value is not None and value < 1:
                raise ConfigError(f"evaluate_test: {name} must be at least 1, got {value}")
        for maker in [make_env] if callable(make_env) else make_env:
            agreed_spaces(self.info, *first_spaces(maker), "make_env")
        is_open = episodes is None and timesteps is None
        return self.config.experiment.evaluation.episodes if is_open else episodes
