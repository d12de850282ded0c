"""The epochs of a run: collect, learn, evaluate, save and publish, until it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqrl.algo.ema import without_averages
from seqrl.algo.finite_guard import NonFiniteError
from seqrl.configs import BaseConfig
from seqrl.core.errors import RunInterrupted, TrainingError
from seqrl.core.generators import seed_everything
from seqrl.core.host import cpu_seconds
from seqrl.reports.best import fall_from_best
from seqrl.reports.console import evaluation_line
from seqrl.reports.series import read_metrics
from seqrl.training.callbacks import Callbacks
from seqrl.training.checkpoints import Checkpoints, save_at_signal
from seqrl.training.collecting import collect_until_finished, count, refresh_data
from seqrl.training.collector import CollectStats, merged
from seqrl.training.ending import Ending
from seqrl.training.learner import LearnStats, save_batches
from seqrl.training.parts import Parts
from seqrl.training.progress import Progress
from seqrl.training.rendering import render_epoch
from seqrl.training.run_log import RunLog, progress_bar
from seqrl.training.run_report import write_run_report
from seqrl.training.summary import epoch_metrics, host_metrics, numbers_of
from seqrl.training.weights import Publisher

logger = logging.getLogger(__name__)

WAITING_EPOCHS = 5
"""Epochs without enough to learn from, after which that is said."""


@dataclass(frozen=True)
class Hooks:
    """What a user may have overridden of the epochs.

    Attributes:
        interact: Collects one epoch, by its number, in this process.
        evaluate: Returns metrics of the current policy; none where nothing is evaluated.
        log: Takes numbers and the gradient step.
        open_loggers: Opens what ``log`` gives them to; the main process calls it before ``on_start``.
        log_video: Gives loggers a file.
    """

    interact: Callable[[int], CollectStats]
    evaluate: Callable[[], dict[str, float]]
    log: Callable[[Mapping[str, float], int], None]
    open_loggers: Callable[[], None]
    log_video: Callable[[Path], None]


class Epochs:
    """Goes through the epochs of a run whose parts are built.

    Args:
        config: The run file.
        parts: Of the run.
        progress: Of the run; it moves.
        checkpoints: Of the run.
        callbacks: Called at their moments.
        ending: Asked whether the run is to end.
        run_log: Takes warnings.
        hooks: What a user may have overridden.
    """

    def __init__(
        self,
        config: BaseConfig,
        parts: Parts,
        progress: Progress,
        checkpoints: Checkpoints,
        callbacks: Callbacks,
        ending: Ending,
        run_log: RunLog,
        hooks: Hooks,
    ) -> None:
        self._config, self._parts, self._progress = config, parts, progress
        self._checkpoints, self._callbacks, self._ending = checkpoints, callbacks, ending
        self._run_log, self._hooks = run_log, hooks
        self._publisher: Publisher | None = None

    def run(self) -> None:
        """Learn or collect until the run ends; after a signal, save first.

        Raises:
            RunInterrupted: After a signal.
        """
        if self._parts.processes.is_main and self._parts.role != "collect":
            self._hooks.open_loggers()  # on_start may log
        try:
            self._callbacks.on_start()
            self._run_saved()
            if self._parts.processes.is_main:
                if self._parts.role != "collect":
                    self._report()
                self._run_log.repeat_warnings()
        finally:
            self._callbacks.on_end()

    def _run_saved(self) -> None:
        """Learn or collect; after a signal, save."""
        is_alone, ending = self._parts.processes.is_alone, self._ending
        try:
            if self._parts.role == "collect":
                warn, interact = self._run_log.warn, self._hooks.interact
                collect_until_finished(self._config, self._parts, self._progress, ending, interact, warn)
            else:
                self._learn()
        except KeyboardInterrupt as error:
            # An environment's process may have got Ctrl-C as well, and its vector raises that here.
            is_echo = is_alone and not ending.is_forced
            if ending.signal is None or not (isinstance(error, RunInterrupted) or is_echo):
                raise
            save_at_signal(self._checkpoints, ending.signal)
            raise RunInterrupted(ending.signal) from None

    def _learn(self) -> None:
        config, parts, progress, ending = self._config, self._parts, self._progress, self._ending
        if parts.processes.is_main:
            self._tell_if_complete()
        if config.collect.steps_per_epoch and parts.processes.is_main:
            self._publisher = Publisher(parts.folder.path)
        self.publish()
        if progress.is_new and config.experiment.evaluation.first_epoch == 0:
            self._evaluate()
        elif not progress.is_evaluated:
            self.end_epoch()
        for epoch in range(progress.epoch, config.train.num_epochs):
            ending.agree_and_check(parts.processes)
            if ending.reason is not None:
                break
            self.run_epoch(epoch)
        if ending.reason is not None and parts.processes.is_main:
            logger.info("stopped after epoch %d: %s", progress.epoch, ending.reason)
        if config.train.steps_per_epoch and not parts.num_steps and ending.reason is None:
            self._run_log.warn("nothing was learned: the replay never had enough, or train.start_epoch was not reached")
        self._tell_what_was_dropped()
        self._checkpoints.check_saved()
        if self._publisher is not None:
            self._publisher.finish()

    def _report(self) -> None:
        """Write the report of a run that is complete; a signal ends that at once."""
        section, folder = self._config.experiment.report, self._parts.folder
        if text := fall_from_best(read_metrics(folder.metrics), self._config.experiment.save.best):
            self._run_log.warn(text)
        if not section.enabled:
            return
        missing = "; the report is not written, --resume writes it"
        try:
            with self._ending.at_once():
                logger.info("writing the report")
                file, animation = write_run_report(self._config, self._parts, self._progress, self._run_log)
                missing = ""
                if animation is not None:
                    self._hooks.log_video(animation)
                logger.info("report: %s", file)
        except RunInterrupted as interrupt:
            logger.warning("%s: training is complete and saved in %s%s", interrupt, folder.last, missing)
            raise

    def _tell_if_complete(self) -> None:
        done, planned = self._progress.epoch, self._config.train.num_epochs
        if done >= planned > 0 and self._progress.is_evaluated:
            text = "nothing is left to learn: %d epochs are done, and train.num_epochs is %d; raise it, or the budget"
            logger.info(text, done, planned)

    def _tell_what_was_dropped(self) -> None:
        if self._progress.num_dropped > self._parts.num_steps / 10:
            self._tell_dropped("were not taken, as the replay had too little")

    def _tell_dropped(self, text: str) -> None:
        if self._parts.processes.is_main:
            self._run_log.warn(
                f"{self._progress.num_dropped} planned gradient steps {text}: "
                "only whole episodes are stored, or pieces of collect.trajectory_steps; "
                f"collect.replay.min_transitions is {self._config.collect.replay.min_transitions}"
            )

    def run_epoch(self, epoch: int) -> None:
        """Collect, learn, evaluate, save and publish: the same path in every epoch."""
        config, parts, progress = self._config, self._parts, self._progress
        begin, cpu_begin = time.perf_counter(), cpu_seconds()
        progress.is_in_epoch = True
        collected = None
        if parts.collector is not None and epoch >= config.collect.start_epoch:
            collected = merged(parts.processes.gather(self._hooks.interact(epoch)))
            count(collected, progress, self._run_log.warn, f"epoch {epoch + 1}: ")
        is_ready = refresh_data(config, parts, progress, self._ending, epoch)
        learned = None
        if epoch >= config.train.start_epoch and config.train.steps_per_epoch:
            if is_ready:
                learned = self._learn_epoch(epoch)
            else:
                progress.num_dropped += config.train.steps_per_epoch
                if progress.num_dropped == WAITING_EPOCHS * config.train.steps_per_epoch:
                    self._tell_dropped("have not been taken so far, as the replay has too little")
        progress.end_epoch()
        elapsed = time.perf_counter() - begin
        numbers = epoch_metrics(parts, collected, learned, elapsed) | host_metrics(cpu_seconds() - cpu_begin, elapsed)
        self._hooks.log(numbers, parts.num_steps)
        self._callbacks.on_epoch_end(numbers)
        self.end_epoch()

    def _learn_epoch(self, epoch: int) -> LearnStats:
        """Take one epoch's gradient steps."""
        config, progress, processes = self._config, self._progress, self._parts.processes
        log_every, num_steps = config.experiment.logging.every_n_steps, config.train.steps_per_epoch
        seed_everything(config.train.seed, processes.rank, epoch)
        self._checkpoints.use_generators()  # if the epoch was interrupted
        with progress_bar(config, self._parts, f"epoch {epoch + 1} learn", num_steps, " updates") as bar:
            bar.update(progress.step_in_epoch)

            def on_log(numbers: Mapping[str, float], step: int) -> None:
                self._hooks.log(numbers, step)
                bar.set_postfix_str(f"loss {numbers['loss/total']:.4g}", refresh=False)

            def on_step(step: int) -> None:
                progress.step_in_epoch += 1
                bar.update()
                if self._callbacks.watch_steps:
                    self._callbacks.on_gradient_step(step)
                if processes.is_alone:
                    self._ending.check()
                elif step % log_every == 0:  # all processes have to end after the same step
                    self._ending.agree_and_check(processes)

            try:
                return self._parts.learner.learn_epoch(
                    epoch, log_every=log_every, on_log=on_log, on_step=on_step, num_done=progress.step_in_epoch
                )
            except NonFiniteError as error:
                where = "see the main process"
                if processes.is_main:
                    where = f"the last two batches are in {save_batches(error.batches, self._parts.folder.path)}"
                raise TrainingError(f"{error}; {where}") from error

    def end_epoch(self) -> None:
        """Evaluate and save if it is time, and publish."""
        config, progress, ending = self._config, self._progress, self._ending
        processes = self._parts.processes
        progress.is_evaluated = False
        ending.agree_and_check(processes)
        is_last = progress.epoch == config.train.num_epochs
        section, epoch = config.experiment.evaluation, progress.epoch
        is_due = epoch >= section.first_epoch and epoch % section.every_n_epochs == 0
        if is_last or ending.reason or is_due:
            self._evaluate()
        if (video := render_epoch(config, self._parts, progress, self._run_log)) is not None:
            self._hooks.log_video(video)
        progress.is_evaluated = True
        ending.agree(processes)
        if self._checkpoints.is_due() or is_last or ending.reason:
            self._checkpoints.save()
        self.publish()
        processes.wait()

    def publish(self) -> None:
        """Give the weights to the collectors, if there can be any."""
        if self._publisher is not None:
            self._publisher.publish(without_averages(self._parts.algo.serialize()), self._progress.epoch)

    def _evaluate(self) -> None:
        if not self._parts.processes.is_main:
            return
        progress, valid = self._progress, self._parts.learner.validate()
        metrics = numbers_of(self._hooks.evaluate()) | valid
        if not metrics:
            return
        progress.metrics, progress.metrics_epoch = metrics, progress.epoch
        self._hooks.log(metrics, self._parts.num_steps)
        left_s = progress.left_s(self._config.train.num_epochs)
        line = evaluation_line(progress.epoch, metrics, env_steps=progress.num_env_steps, left_s=left_s)
        logger.info("%s", line)
        self._callbacks.on_evaluation(metrics)
