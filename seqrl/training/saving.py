"""What an experiment saves, what it keeps of it, and how it goes back to it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from accelerate.utils import gather_object

from seqrl.algo.checkpoint import TrainingState, read_checkpoint, save_checkpoint
from seqrl.configs import BaseConfig
from seqrl.core.errors import CheckpointError
from seqrl.training.callbacks import Callbacks
from seqrl.training.resume import restore, training_state
from seqrl.training.setup import ExperimentSetup

if TYPE_CHECKING:
    from seqrl.training.experiment import Experiment

BEST_BY = {
    "success": ("eval/success_mean", 1.0),
    "return": ("eval/return_mean", 1.0),
    "valid_loss": ("valid/total", -1.0),
}
"""Measure -> (metric, +1 if more is better)."""


class SavingExperiment(ExperimentSetup):
    """The part of an experiment that deals with checkpoints.

    Attributes:
        metrics: The last evaluation and validation.
        metrics_epoch: Epochs that were done then.
        best: Measure -> best score so far.
        kept_epochs: Epochs whose checkpoints are kept because of ``experiment.save.every_s``.
        kept_at_s: Seconds of the run at the last of them.
        generators: States with which the interrupted epoch goes on; None otherwise.
    """

    callbacks: Callbacks

    def __init__(self, config: BaseConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self.metrics: dict[str, float] = {}
        self.metrics_epoch = -1
        self.best: dict[str, float] = {}
        self.kept_epochs: list[int] = []
        self.kept_at_s = 0.0
        self.generators: dict[str, Any] | None = None
        self._started = time.perf_counter()

    @property
    def num_steps(self) -> int:
        """Gradient steps so far."""
        return self.algo.updater.num_steps

    @property
    def wall_s(self) -> float:
        """Seconds of the run so far, over all its parts."""
        return self.progress.wall_s + time.perf_counter() - self._started

    def _myself(self) -> Experiment:
        return cast("Experiment", self)

    # ------------------------------------------------------------------------------------------- save
    def save(self) -> None:
        """Write the checkpoint of this epoch, move ``last`` and the best marks, and drop what nothing names.

        Within an epoch, as from a callback, it is :meth:`save_interrupted`. Every process has to call it.
        """
        epoch = self.progress.epoch
        if self.progress.is_in_epoch:
            self.save_interrupted()
            return
        if (now := self._time_to_keep()) is not None and epoch not in self.kept_epochs:
            self.kept_epochs.append(epoch)
            self.kept_at_s = now
        state = training_state(self._myself())
        if not self.accelerator.is_main_process:
            return
        improved = self._improved() if self.metrics_epoch == epoch else []
        state.values.update(best=self.best, improved=improved)
        path = self.folder.checkpoint(epoch)
        self._write(path, state)
        for measure in improved:
            self.folder.point(f"best_{measure}", path)
        self.folder.remove_unused(self._is_kept)
        self.callbacks.on_save(self._myself(), path)

    def save_interrupted(self) -> Path | None:
        """Save where the run stands, and return the checkpoint from which it will go on; every process has to call it.

        In the middle of an epoch that is the gradient step taken last. A run that collects falls back on its last
        checkpoint then, as its environments begin anew anyway. None is returned if nothing was ever saved.
        """
        progress = self.progress
        self.algo.updater.guard.check(wait=True)
        if self.drops_epoch or progress.is_new:
            return self.folder.last
        path = self.folder.unfinished(progress.epoch, progress.step_in_epoch, is_evaluated=progress.is_evaluated)
        state = training_state(self._myself())
        if self.accelerator.is_main_process and self.folder.last != path:
            self._write(path, state)
            self.folder.remove_unused(self._is_kept)
            self.callbacks.on_save(self._myself(), path)
        return path

    @property
    def drops_epoch(self) -> bool:
        """Whether the epoch under way is lost if the run ends now."""
        return self.progress.is_in_epoch and self.config.collect.steps_per_epoch > 0

    def _write(self, path: Path, state: TrainingState) -> None:
        """Write a checkpoint, and let ``last`` name it. Whatever names a checkpoint names a whole one, always."""
        is_measured = self.metrics_epoch == self.progress.epoch and not self.progress.step_in_epoch
        save_checkpoint(
            path,
            self.algo,
            self.info.observation_space,
            self.info.action_space,
            env={"id": self.env_id, "kwargs": self.env_kwargs} if self.env_id else {},
            metrics={k: v for k, v in self.metrics.items() if np.isfinite(v)} if is_measured else {},
            training_state=state,
        )
        self.folder.point("last", path)

    def is_save_due(self) -> bool:
        """Tell whether the end of this epoch has a checkpoint; every process has to call it."""
        epoch = self.progress.epoch
        is_due = epoch % self.config.experiment.save.last_every_n_epochs == 0 or self._is_kept(epoch)
        return self._time_to_keep() is not None or is_due

    def _time_to_keep(self) -> float | None:
        """Return the time if ``every_s`` have passed; the main process's clock decides."""
        every_s = self.config.experiment.save.every_s
        if every_s is None:
            return None
        now = float(gather_object([self.wall_s])[0])
        return now if now - self.kept_at_s >= every_s else None

    def _is_kept(self, epoch: int) -> bool:
        """Tell whether the checkpoint after so many epochs stays, whatever names it."""
        section = self.config.experiment.save
        is_periodic = section.every_n_epochs is not None and epoch % section.every_n_epochs == 0
        return is_periodic or epoch in section.epochs or epoch in self.kept_epochs

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

    # ------------------------------------------------------------------------------------------- load
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
            restore(self._myself(), checkpoint)
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
