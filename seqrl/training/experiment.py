"""A run from start to report."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from safetensors.torch import save_file
from tqdm import tqdm

from seqrl.algo.checkpoint import read_checkpoint, save_checkpoint
from seqrl.algo.finite_guard import NonFiniteError
from seqrl.configs import BaseConfig
from seqrl.core.errors import CheckpointError, ConfigError, EnvError, TrainingError
from seqrl.core.seeding import integer_seed, seed_everything
from seqrl.core.types import TimeStep
from seqrl.data.store import StoreInfo, StoreWriter
from seqrl.envs.metrics import Episode
from seqrl.training.collecting import collect_until_finished, merged, wait_for_data
from seqrl.training.collector import CollectStats
from seqrl.training.console import evaluation_line
from seqrl.training.environments import Makers, build_env, first_spaces
from seqrl.training.evaluator import Evaluator
from seqrl.training.learner import LearnStats
from seqrl.training.loggers import JsonlLogger, MetricsLogger, TensorBoardLogger
from seqrl.training.rendering import render_epoch
from seqrl.training.replay import budget_of
from seqrl.training.resume import restore, training_state
from seqrl.training.rollouts import OnStep, recording
from seqrl.training.run_report import write_run_report
from seqrl.training.setup import ExperimentSetup, Progress, Role
from seqrl.training.spaces import agreed_spaces
from seqrl.training.summary import start_summary
from seqrl.training.weights import Publisher, reported_progress

__all__ = ["Experiment", "Progress", "RunStats"]

logger = logging.getLogger(__name__)

BEST_BY = {
    "success": ("eval/success_mean", 1.0),
    "return": ("eval/return_mean", 1.0),
    "valid_loss": ("valid/total", -1.0),
}
"""Measure -> (metric, +1 if more is better)."""


@dataclass(frozen=True)
class RunStats:
    """What a run came to.

    Attributes:
        path: The run's folder.
        epochs: Epochs that are done.
        metrics: The last evaluation and validation.
        env_steps: Transitions taken in training environments.
    """

    path: Path
    epochs: int
    metrics: dict[str, float]
    env_steps: int = 0


class Experiment(ExperimentSetup):
    """Trains one algorithm by one run file: offline, online, or both; see :class:`ExperimentSetup` for the arguments.

    An epoch collects, learns, evaluates, saves and publishes; each of these is a method that can be overridden.
    """

    def __init__(self, config: BaseConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self.metrics: dict[str, float] = {}
        self.metrics_epoch = -1
        self.best: dict[str, float] = {}
        self.loggers: list[MetricsLogger] = []
        self._publisher: Publisher | None = None
        self._started = time.perf_counter()
        self._epochs_before = 0
        self._has_learned = False

    @classmethod
    def from_config(
        cls, config: BaseConfig, *, role: Role = "both", resume: bool = False, overwrite: bool = False
    ) -> Experiment:
        """Return the experiment that a run file describes."""
        return cls(config, role=role, resume=resume, overwrite=overwrite)

    def start(self) -> None:
        """Open the data, make the run's folder, build everything, and say what is about to happen.

        Raises:
            SeqrlError: If anything in the run file cannot be done; nothing has been trained then.
        """
        try:
            self._prepare()
            if self.role == "collect":
                return
            if self._resume:
                restore(self, read_checkpoint(self.folder.path))
            if self.accelerator.is_main_process:
                logger.info("%s", start_summary(self))
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------------------------------- the run
    def learn(self) -> RunStats:
        """Train to the end, and write the report; in the role ``collect``, collect until the learner has ended.

        Raises:
            TrainingError: If a loss was not finite and ``train.on_nonfinite`` is ``stop``; the last two batches lie
                in the run's folder then.
        """
        if not hasattr(self, "algo"):
            raise ConfigError("call start() before learn()")
        if self._has_learned:
            raise ConfigError("learn() was called before; go on with a new Experiment and resume=True")
        self._has_learned = True
        self._started, self._epochs_before = time.perf_counter(), self.progress.epoch
        try:
            if self.role == "collect":
                collect_until_finished(self)
            else:
                self._learn()
        finally:
            self.close()
        path = self.folder.path if self.accelerator.is_main_process else Path()
        return RunStats(path, self.progress.epoch, self.metrics, self.progress.num_env_steps)

    def _learn(self) -> None:
        self._open_loggers()
        if self.config.collect.steps_per_epoch and self.accelerator.is_main_process:
            self._publisher = Publisher(self.folder.path)
        self.publish()
        if self.progress.epoch == 0:
            self._evaluate_and_log()
        for epoch in range(self.progress.epoch, self.config.train.num_epochs):
            self.run_epoch(epoch)
        if self.config.train.steps_per_epoch and not self.num_steps:
            self.warn("nothing was learned: the replay never had enough, or train.start_epoch was not reached")
        self._report()
        if self._publisher is not None:
            self._publisher.finish()

    def run_epoch(self, epoch: int) -> None:
        """Collect, learn, evaluate, save and publish: the same path in every epoch."""
        train, collect = self.config.train, self.config.collect
        begin = time.perf_counter()
        collected = self.collect_epoch(epoch) if self.collector and epoch >= collect.start_epoch else None
        is_ready = self.refresh_data(epoch)
        learned = None
        if is_ready and epoch >= train.start_epoch and train.steps_per_epoch:
            learned = self.learn_epoch(epoch)
        self.progress.epoch = epoch + 1
        self._log(self._epoch_metrics(collected, learned, time.perf_counter() - begin), self.num_steps)
        self.end_of_epoch()

    def collect_epoch(self, epoch: int) -> CollectStats:
        """Act in the training environments, and add what happens to the replay."""
        assert self.collector is not None
        collector, begin = self.collector, time.perf_counter()
        total = self.config.collect.steps_per_epoch * collector.env.num_envs
        with self._progress_bar(f"epoch {epoch + 1} collect", total, " steps") as bar:

            def on_step(num: int, stats: CollectStats) -> None:
                bar.update(num)
                if not bar.disable and bar.n % (50 * num) == 0:
                    bar.set_postfix_str(stats.shares(time.perf_counter() - begin), refresh=False)

            stats = merged(gather_object([collector.collect(epoch, on_step)]))
        self.progress.env_steps += stats.env_steps
        self.progress.num_episodes += len(stats.episodes)
        self.progress.num_faults += stats.num_faults
        if stats.num_faults:
            self.warn(f"epoch {epoch + 1}: {stats.num_faults} failures of environments; the last: {stats.last_fault}")
        return stats

    def refresh_data(self, epoch: int) -> bool:
        """Keep the replay within its budget, and tell the same on every process: whether there is enough to learn."""
        dataset = self.learner.dataset
        self.accelerator.wait_for_everyone()
        if self.replay is not None and self.accelerator.is_main_process:
            self.replay.refresh()
            self.replay.evict(budget_of(self.config.collect.replay))
        self.accelerator.wait_for_everyone()
        dataset.refresh(epoch)
        if self.role == "learn":
            wait_for_data(self, epoch)
        if self.replay is not None:
            self.progress.take_reports(reported_progress(self.folder.path))
        return all(gather_object([dataset.is_ready]))

    def learn_epoch(self, epoch: int) -> LearnStats:
        """Take one epoch's gradient steps."""
        seed_everything(self.config.train.seed, self.rank, epoch)
        with self._progress_bar(f"epoch {epoch + 1} learn", self.config.train.steps_per_epoch, " updates") as bar:

            def on_log(numbers: Any, step: int) -> None:
                self._log(numbers, step)
                bar.set_postfix_str(f"loss {numbers['loss/total']:.4g}", refresh=False)

            try:
                return self.learner.learn_epoch(
                    epoch,
                    log_every=self.config.experiment.logging.every_n_steps,
                    on_log=on_log,
                    on_step=lambda _: bar.update(),
                )
            except NonFiniteError as error:
                raise TrainingError(f"{error}; {self._dump_batches(error)}") from error

    def end_of_epoch(self) -> None:
        """Evaluate and save if it is time, and publish."""
        epoch, section = self.progress.epoch, self.config.experiment
        is_last = epoch == self.config.train.num_epochs
        if is_last or epoch % section.evaluation.every_n_epochs == 0:
            self._evaluate_and_log()
        render_epoch(self)
        kept = section.save.every_n_epochs
        if is_last or epoch % section.save.last_every_n_epochs == 0 or (kept and epoch % kept == 0):
            self.save()
        self.publish()
        self.accelerator.wait_for_everyone()

    def publish(self) -> None:
        """Give the weights to the collectors."""
        if self._publisher is not None:
            self._publisher.publish(self.algo.serialize(), self.progress.epoch)

    def _epoch_metrics(
        self, collected: CollectStats | None, learned: LearnStats | None, elapsed: float
    ) -> dict[str, float]:
        """Return what an epoch came to: data, speed, and where its time went."""
        out = self.learner.dataset.metrics()
        if collected is not None and self.collector is not None:
            out |= collected.metrics(self.collector.exploration)
            spent = collected.env_s + collected.policy_s + collected.record_s
            out["time/env_steps_per_s"] = collected.num_steps / max(spent, 1e-9)
            for part in ("env", "policy", "record"):
                out[f"time/{part}_share"] = getattr(collected, f"{part}_s") / elapsed
        if learned is not None:
            out["time/gradient_steps_per_s"] = learned.num_steps / learned.learn_s
            out["time/learn_share"] = (learned.learn_s - learned.wait_s) / elapsed
            out["time/data_wait_share"] = learned.wait_s / elapsed
            out["optim/skipped_steps"] = float(learned.num_skipped)
        return out

    # -------------------------------------------------------------------------------------- evaluation
    def evaluate_val(self) -> tuple[dict[str, float], list[Episode]]:
        """Return metrics and episodes of the current policy in the evaluation environments.

        Raises:
            EnvError: If there is no environment.
        """
        if self.evaluator is None:
            raise EnvError("there is no environment to evaluate in: give env.id, and set experiment.evaluation.enabled")
        return self.evaluator.evaluate(self.algo, self.progress.epoch)

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

    def _evaluate_and_log(self) -> None:
        if not self.accelerator.is_main_process:
            return
        valid = self.learner.validate()
        metrics = valid if self.evaluator is None else self.evaluate_val()[0] | valid
        if metrics:
            self.metrics, self.metrics_epoch = metrics, self.progress.epoch
            self._log(metrics, self.num_steps)
            done = self.progress.epoch - self._epochs_before
            left = self.config.train.num_epochs - self.progress.epoch
            spent = time.perf_counter() - self._started
            line = evaluation_line(
                self.progress.epoch,
                metrics,
                env_steps=self.progress.num_env_steps,
                left_s=spent / done * left if done else None,
            )
            logger.info("%s", line)

    # -------------------------------------------------------------------------------------- save, load
    @property
    def num_steps(self) -> int:
        """Gradient steps so far."""
        return self.algo.updater.num_steps

    @property
    def wall_s(self) -> float:
        """Seconds of the run so far, over all its parts."""
        return self.progress.wall_s + time.perf_counter() - self._started

    def save(self) -> None:
        """Write the checkpoint of this epoch, move ``last`` and the best marks, and drop what nothing names."""
        state = training_state(self)
        if not self.accelerator.is_main_process:
            return
        epoch, section = self.progress.epoch, self.config.experiment.save
        path = self.folder.checkpoint(epoch)
        is_measured = self.metrics_epoch == epoch
        improved = self._improved() if is_measured else []
        state.values["best"] = self.best
        save_checkpoint(
            path,
            self.algo,
            self.info.observation_space,
            self.info.action_space,
            env={"id": self.env_id, "kwargs": self.env_kwargs} if self.env_id else {},
            metrics={k: v for k, v in self.metrics.items() if np.isfinite(v)} if is_measured else {},
            training_state=state,
        )
        for measure in improved:
            self.folder.point(f"best_{measure}", path)
        self.folder.point("last", path)
        self.folder.remove_unused(section.every_n_epochs)

    def _improved(self) -> list[str]:
        """Return the measures in which this epoch is the best so far, and remember its scores."""
        improved: list[str] = []
        for measure in self.config.experiment.save.best:
            metric, sign = BEST_BY[measure]
            value = self.metrics.get(metric)
            if value is not None and sign * value > sign * self.best.get(measure, -sign * np.inf):
                self.best[measure] = value
                improved.append(measure)
        return improved

    def load_checkpoint(self, epoch: int, *, resume_training_state: bool = True) -> None:
        """Go back to an epoch of this run that was kept (``experiment.save.every_n_epochs``).

        With the training state, what the run's own replay has got since is deleted.

        Args:
            epoch: Epochs that were done then.
            resume_training_state: Restore optimiser and counters too; else the weights only.

        Raises:
            CheckpointError: If there is no checkpoint of that epoch.
        """
        self.load_checkpoint_from_path(self.folder.checkpoint(epoch), resume_training_state=resume_training_state)

    def load_checkpoint_from_path(self, path: str | Path, *, resume_training_state: bool = False) -> None:
        """Take the weights, or the whole training state, of any checkpoint whose networks fit.

        Raises:
            CheckpointError: If it is missing, damaged, or of other networks.
        """
        checkpoint = read_checkpoint(path)
        if resume_training_state:
            restore(self, checkpoint)
            return
        self.algo.deserialize(checkpoint.tensors("model.safetensors"))
        self.algo.on_checkpoint_loaded(is_resume=False)

    def delete_replay(self) -> None:
        """Delete everything that the run has collected; protected data stays.

        Raises:
            CheckpointError: If the run has no replay.
        """
        if self.replay is None:
            raise CheckpointError("this run has no replay")
        if self.collector is not None:
            self.collector.cut_off()
        self.close_writer()
        self.replay.cut({})

    # ------------------------------------------------------------------------------------ logs, report
    def _open_loggers(self) -> None:
        if not self.accelerator.is_main_process:
            return
        is_new = self.progress.epoch == 0
        step, epoch = (None, None) if is_new else (self.num_steps, self.progress.epoch)
        self.loggers.append(JsonlLogger(self.folder.metrics, step, epoch))
        if self.config.experiment.logging.tensorboard:
            self.loggers.append(TensorBoardLogger(self.folder.path / "tb", step))

    def _log(self, numbers: dict[str, float], step: int) -> None:
        if not self.loggers:
            return
        progress = self.progress
        axes = {
            "progress/epoch": float(progress.epoch),
            "progress/env_steps": float(progress.num_env_steps),
            "time/wall_s": self.wall_s,
        }
        if len(progress.env_steps) > 1:
            axes |= {f"progress/env_steps/{name}": float(n) for name, n in sorted(progress.env_steps.items())}
        for metrics_logger in self.loggers:
            metrics_logger.log({**numbers, **axes}, step)

    def _progress_bar(self, text: str, total: int, unit: str) -> Any:
        shown = self.config.experiment.logging.progress_bar
        quiet = not (shown and self.accelerator.is_main_process and sys.stderr.isatty())
        return tqdm(total=total, desc=text, unit=unit, unit_scale=True, disable=quiet, leave=False)

    def _dump_batches(self, error: NonFiniteError) -> str:
        if not self.accelerator.is_main_process:
            return "see the main process"
        file = self.folder.path / "nonfinite_batches.safetensors"
        tensors: dict[str, torch.Tensor] = {}
        for i, batch in enumerate(error.batches):
            for name, value in batch.to_mapping().items():
                entries = {f"{name}/{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
                tensors |= {f"{i}/{k}": v.cpu().contiguous().clone() for k, v in entries.items()}
        save_file(tensors, file)
        return f"the last two batches are in {file}"

    def _report(self) -> None:
        if self.accelerator.is_main_process and self.config.experiment.report.enabled:
            file = write_run_report(self)
            logger.info("report: %s", file)

    def close(self) -> None:
        """Close environments, files and loggers."""
        with contextlib.ExitStack() as stack:
            for closable in (*self.loggers, self._writer, self.collector, self.evaluator):
                if closable is not None:
                    stack.callback(closable.close)
            self.loggers.clear()
        if hasattr(self, "folder"):
            self.folder.release()
