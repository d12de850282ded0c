"""A run from start to report."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from safetensors.torch import save_file
from tqdm import tqdm

from seqrl.algo.checkpoint import read_checkpoint
from seqrl.algo.finite_guard import NonFiniteError
from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError, EnvError, RunInterrupted, TrainingError
from seqrl.core.files import new_file
from seqrl.core.generators import seed_everything, set_generator_states
from seqrl.envs.metrics import Episode
from seqrl.reports.console import evaluation_line
from seqrl.training.callbacks import Callback, Callbacks
from seqrl.training.collecting import collect_until_finished, merged, wait_for_data
from seqrl.training.collector import CollectStats
from seqrl.training.ending import Ending
from seqrl.training.learner import LearnStats
from seqrl.training.loggers import LoggedRun, MetricsLogger, build_loggers
from seqrl.training.rendering import render_epoch
from seqrl.training.resume import begin_again, restore
from seqrl.training.run_report import write_run_report
from seqrl.training.setup import Progress, Role
from seqrl.training.sources import budget_of
from seqrl.training.summary import start_summary
from seqrl.training.testing import TestedExperiment
from seqrl.training.weights import Publisher, reported_progress

__all__ = ["Experiment", "Progress", "RunStats"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunStats:
    """What a run came to.

    Attributes:
        path: The run's folder.
        epochs: Epochs that are done.
        metrics: The last evaluation and validation.
        env_steps: Transitions taken in training environments.
        stop_reason: What :meth:`Experiment.stop` was given, if it ended the run.
    """

    path: Path
    epochs: int
    metrics: dict[str, float]
    env_steps: int = 0
    stop_reason: str | None = None


class Experiment(TestedExperiment):
    """Trains one algorithm by one run file: offline, online, or both; see :class:`ExperimentSetup` for the arguments.

    An epoch collects, learns, evaluates, saves and publishes; each of these is a method that can be overridden.

    Args:
        config: The run file.
        callbacks: Called at certain moments, in their order.
        options: See :class:`ExperimentSetup`.
    """

    def __init__(self, config: BaseConfig, *, callbacks: Iterable[Callback] = (), **options: Any) -> None:
        super().__init__(config, **options)
        self.callbacks = Callbacks(callbacks)
        self.ending = Ending()
        self.loggers: list[MetricsLogger] = []
        self._publisher: Publisher | None = None
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
            self.run_log.begin()
            self._prepare()
            if self.role == "collect":
                return
            if self._goes_on:
                restore(self, read_checkpoint(self.folder.path))
            elif self._resume:
                begin_again(self)
            if self.accelerator.is_main_process:
                logger.info("%s", start_summary(self))
        except BaseException as error:
            self.run_log.write_error(error)
            self.close()
            raise

    # ---------------------------------------------------------------------------------------- the run
    def learn(self) -> RunStats:
        """Train to the end, and write the report; in the role ``collect``, collect until the learner has ended.

        SIGTERM and Ctrl-C end it after the gradient step under way, saved so that ``resume=True`` goes on from there.

        Raises:
            TrainingError: If a loss was not finite and ``train.on_nonfinite`` is ``stop``; the last two batches lie
                in the run's folder then.
            RunInterrupted: After such a signal.
        """
        if not hasattr(self, "algo"):
            raise ConfigError("call start() before learn()")
        if self._has_learned:
            raise ConfigError("learn() was called before; go on with a new Experiment and resume=True")
        self._has_learned = True
        self._started, self._epochs_before = time.perf_counter(), self.progress.epoch
        accelerator = self.accelerator
        try:
            with self.ending.handling_signals(is_alone=self._is_alone, is_main=accelerator.is_main_process):
                self._run()
        except BaseException as error:
            self.run_log.write_error(error)
            raise
        finally:
            self.close()
        path = self.folder.path if accelerator.is_main_process else Path()
        return RunStats(path, self.progress.epoch, self.metrics, self.progress.num_env_steps, self.ending.reason)

    def stop(self, reason: str) -> None:
        """End the run after the epoch under way, which is evaluated, saved and reported like the last one."""
        self.ending.reason = self.ending.reason or reason

    def _run(self) -> None:
        """Learn or collect; after a signal, save first."""
        try:
            self.callbacks.on_start(self)
            if self.role == "collect":
                collect_until_finished(self)
            else:
                self._learn()
            self._repeat_warnings()
        except KeyboardInterrupt as error:
            ending = self.ending
            # An environment's process may have got Ctrl-C as well, and its vector raises that here.
            is_echo = self._is_alone and not ending.is_forced
            if ending.signal is None or not (isinstance(error, RunInterrupted) or is_echo):
                raise
            self._end_by_signal(ending.signal)
            raise RunInterrupted(ending.signal) from None
        finally:
            self.callbacks.on_end(self)

    def _learn(self) -> None:
        self._open_loggers()
        if self.config.collect.steps_per_epoch and self.accelerator.is_main_process:
            self._publisher = Publisher(self.folder.path)
        self.publish()
        if self.progress.is_new:
            self._evaluate_and_log()
        elif not self.progress.is_evaluated:
            self.end_of_epoch()
        for epoch in range(self.progress.epoch, self.config.train.num_epochs):
            self.check_signal()
            if self.ending.reason is not None:
                break
            self.run_epoch(epoch)
        if self.ending.reason is not None and self.accelerator.is_main_process:
            logger.info("stopped after epoch %d: %s", self.progress.epoch, self.ending.reason)
        if self.config.train.steps_per_epoch and not self.num_steps and self.ending.reason is None:
            self.warn("nothing was learned: the replay never had enough, or train.start_epoch was not reached")
        self._report()
        if self._publisher is not None:
            self._publisher.finish()

    def check_signal(self) -> None:
        """Let every process know of the signals and the wishes to stop; every process has to call it.

        Raises:
            RunInterrupted: If a signal has come.
        """
        self.ending.agree()
        self.ending.check()

    @property
    def _is_alone(self) -> bool:
        return int(self.accelerator.num_processes) == 1

    def _check_alone(self, *_: Any) -> None:
        """End the run if a signal has come, where no other process has to know."""
        if self._is_alone:
            self.ending.check()

    def _end_by_signal(self, number: int) -> None:
        """Save what was reached, and say how to go on."""
        name = signal.Signals(number).name
        if self.role == "collect":
            logger.warning("%s: this collector ends; the same command starts another", name)
            return
        path = self.save_interrupted()
        if not self.accelerator.is_main_process:
            return
        if path is None:
            logger.warning("%s: nothing was saved yet in %s; --resume begins it anew", name, self.folder.path)
        elif self.drops_epoch:
            logger.warning("%s: epoch %d is dropped; go on from %s with --resume", name, self.progress.epoch + 1, path)
        else:
            logger.warning("%s: saved at gradient step %d in %s; go on with --resume", name, self.num_steps, path)

    def run_epoch(self, epoch: int) -> None:
        """Collect, learn, evaluate, save and publish: the same path in every epoch."""
        train, collect = self.config.train, self.config.collect
        begin = time.perf_counter()
        self.progress.is_in_epoch = True
        collected = self.collect_epoch(epoch) if self.collector and epoch >= collect.start_epoch else None
        is_ready = self.refresh_data(epoch)
        learned = None
        if is_ready and epoch >= train.start_epoch and train.steps_per_epoch:
            learned = self.learn_epoch(epoch)
        self.progress.end_epoch()
        numbers = self._epoch_metrics(collected, learned, time.perf_counter() - begin)
        self._log(numbers, self.num_steps)
        self.callbacks.on_epoch_end(self, numbers)
        self.end_of_epoch()

    def collect_epoch(self, epoch: int) -> CollectStats:
        """Act in the training environments, and add what happens to the replay."""
        assert self.collector is not None
        collector, begin = self.collector, time.perf_counter()
        total = self.config.collect.steps_per_epoch * collector.env.num_envs
        with self._progress_bar(f"epoch {epoch + 1} collect", total, " steps") as bar:

            def on_step(num: int, stats: CollectStats) -> None:
                self._check_alone()
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
        progress, log_every = self.progress, self.config.experiment.logging.every_n_steps
        seed_everything(self.config.train.seed, self.rank, epoch)
        if self.generators is not None:  # the epoch was interrupted
            set_generator_states(self.generators, self.device)
            self.generators = None
        with self._progress_bar(f"epoch {epoch + 1} learn", self.config.train.steps_per_epoch, " updates") as bar:
            bar.update(progress.step_in_epoch)

            def on_log(numbers: Any, step: int) -> None:
                self._log(numbers, step)
                bar.set_postfix_str(f"loss {numbers['loss/total']:.4g}", refresh=False)

            def on_step(step: int) -> None:
                progress.step_in_epoch += 1
                bar.update()
                if self.callbacks.watch_steps:
                    self.callbacks.on_gradient_step(self, step)
                if self._is_alone:
                    self.ending.check()
                elif step % log_every == 0:  # all processes have to end after the same step
                    self.check_signal()

            try:
                return self.learner.learn_epoch(
                    epoch, log_every=log_every, on_log=on_log, on_step=on_step, num_done=progress.step_in_epoch
                )
            except NonFiniteError as error:
                raise TrainingError(f"{error}; {self._dump_batches(error)}") from error

    def end_of_epoch(self) -> None:
        """Evaluate and save if it is time, and publish."""
        progress, section = self.progress, self.config.experiment
        progress.is_evaluated = False
        self.check_signal()
        is_last = progress.epoch == self.config.train.num_epochs
        if is_last or self.ending.reason or progress.epoch % section.evaluation.every_n_epochs == 0:
            self._evaluate_and_log()
        render_epoch(self)
        progress.is_evaluated = True
        self.ending.agree()
        if self.is_save_due() or is_last or self.ending.reason:
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
        return self.evaluator.evaluate(self.algo, self.progress.epoch, on_step=self._check_alone)

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
            self.callbacks.on_evaluation(self, metrics)

    # ------------------------------------------------------------------------------------ logs, report
    def _open_loggers(self) -> None:
        if not self.accelerator.is_main_process:
            return
        step, epoch = (None, None) if self.progress.is_new else (self.num_steps, self.progress.epoch)
        is_evaluated = self.progress.is_evaluated
        run = LoggedRun(self.folder.path, self.config.to_json(), step, epoch, is_evaluated)
        self.loggers += build_loggers(self.config.experiment.logging, run)

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
        with new_file(file) as temporary:
            save_file(tensors, temporary)
        return f"the last two batches are in {file}"

    def _report(self) -> None:
        if self.accelerator.is_main_process and self.config.experiment.report.enabled:
            file = write_run_report(self)
            logger.info("report: %s", file)

    def _repeat_warnings(self) -> None:
        """Show the warnings once more, which may have scrolled out of sight."""
        if self.warnings and self.accelerator.is_main_process:
            logger.warning("the warnings of this run:%s", "".join(f"\n  {w}" for w in dict.fromkeys(self.warnings)))

    def close(self) -> None:
        """Close environments, files and loggers."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.run_log.close)
            for closable in (*self.loggers, self._writer, self.collector, self.evaluator):
                if closable is not None:
                    stack.callback(closable.close)
            self.loggers.clear()
        if hasattr(self, "folder"):
            self.folder.release()
