"""What a run saves, what it keeps of it, and how it goes back to it."""

from __future__ import annotations

import logging
import shlex
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqrl.algo.checkpoint import Checkpoint, TrainingState, save_checkpoint
from seqrl.configs import BaseConfig
from seqrl.core.errors import CheckpointError, ConfigError, DataError
from seqrl.core.generators import generator_states, set_generator_states
from seqrl.training.parts import Parts
from seqrl.training.progress import Progress
from seqrl.training.saved_values import check_values, restoring

logger = logging.getLogger(__name__)

BEST_BY = {
    "success": ("eval/success_mean", 1.0),
    "return": ("eval/return_mean", 1.0),
    "valid_loss": ("valid/total", -1.0),
    "value": ("valid/value", 1.0),
}
"""Measure -> (metric, +1 if more is better)."""


class Checkpoints:
    """The checkpoints of a run: whole ones, at every moment.

    Args:
        config: The run file.
        parts: Of the run; all of them are built.
        progress: Of the run; saved and restored with it.
        on_save: Called by the main process after each checkpoint, with its folder.

    Attributes:
        best: Measure -> best score so far.
        kept_epochs: Epochs whose checkpoints are kept because of ``experiment.save.every_s``.
        kept_at_s: Seconds of the run at the last of them.
        generators: States with which this process goes on in an interrupted epoch; None otherwise.
        failure: Why the last save failed, in the main process; None if it did not.
    """

    def __init__(
        self, config: BaseConfig, parts: Parts, progress: Progress, *, on_save: Callable[[Path], Any] | None = None
    ) -> None:
        self.config = config
        self.parts = parts
        self.progress = progress
        self.best: dict[str, float] = {}
        self.kept_epochs: list[int] = []
        self.kept_at_s = 0.0
        self.generators: dict[str, Any] | None = None
        self.failure: CheckpointError | None = None
        self._on_save = on_save

    # ------------------------------------------------------------------------------------------- save
    def save(self) -> None:
        """Write the checkpoint of this epoch, move ``last`` and the best marks, and drop what nothing names.

        Within an epoch, as from a callback, it is :meth:`save_interrupted`, which writes nothing in a run that
        collects: that is a warning. Every process has to call it. Where there is an older checkpoint, one that cannot
        be written is a warning, too.

        Raises:
            CheckpointError: If it cannot be written, and there is none yet.
        """
        epoch, folder = self.progress.epoch, self.parts.folder
        if self.progress.is_in_epoch:
            self.save_interrupted()
            if self.drops_epoch:
                logger.warning("nothing is saved within epoch %d, as the run collects; save on_epoch_end", epoch + 1)
            return
        kept_before = [*self.kept_epochs], self.kept_at_s
        if (now := self._time_to_keep()) is not None and epoch not in self.kept_epochs:
            self.kept_epochs.append(epoch)
            self.kept_at_s = now
        state = self.state()
        if not self.parts.processes.is_main:
            return
        best_before = dict(self.best)
        improved = self._improved() if self.progress.metrics_epoch == epoch else []
        state.values.update(best=self.best, improved=improved)
        path = folder.checkpoint(epoch)
        if self._write(path, state, improved):
            self._end_save(path)
        else:
            self.best = best_before  # the best of those that are there
            self.kept_epochs, self.kept_at_s = kept_before

    def save_interrupted(self) -> Path | None:
        """Save where the run stands, and return the checkpoint from which it will go on; every process has to call it.

        In the middle of an epoch that is the gradient step taken last. A run that collects falls back on its last
        checkpoint then, as its environments begin anew anyway. None is returned if nothing was ever saved.
        """
        progress, folder = self.progress, self.parts.folder
        self.parts.algo.updater.guard.check(wait=True)
        if self.drops_epoch or progress.is_new:
            return folder.last
        path = folder.unfinished(progress.epoch, progress.step_in_epoch, is_evaluated=progress.is_evaluated)
        state = self.state()
        if self.parts.processes.is_main and folder.last != path:
            if not self._write(path, state):
                return folder.last
            self._end_save(path)
        return path

    @property
    def drops_epoch(self) -> bool:
        """Whether the epoch under way is lost if the run ends now."""
        return self.progress.is_in_epoch and self.config.collect.steps_per_epoch > 0

    def is_due(self) -> bool:
        """Tell whether the end of this epoch has a checkpoint; every process has to call it."""
        epoch = self.progress.epoch
        is_due = epoch % self.config.experiment.save.last_every_n_epochs == 0 or self.is_kept(epoch)
        is_best = self.parts.processes.gather(self.progress.metrics_epoch == epoch and bool(self._better()))[0]
        return self._time_to_keep() is not None or is_due or is_best

    def is_kept(self, epoch: int) -> bool:
        """Tell whether the checkpoint after so many epochs stays, whatever names it."""
        section = self.config.experiment.save
        is_periodic = section.every_n_epochs is not None and epoch % section.every_n_epochs == 0
        return is_periodic or epoch in section.epochs or epoch in self.kept_epochs

    def _write(self, path: Path, state: TrainingState, improved: Sequence[str] = ()) -> bool:
        """Write a checkpoint, and let ``last`` name it. Whatever names a checkpoint names a whole one, always.

        Returns:
            Whether it was written; if not, the run goes on as far as an older one is there.
        """
        progress, world, folder = self.progress, self.parts.world, self.parts.folder
        is_measured = progress.metrics_epoch == progress.epoch and not progress.step_in_epoch
        older = folder.last
        try:
            save_checkpoint(
                path,
                self.parts.algo,
                world.info.observation_space,
                world.info.action_space,
                env={"id": world.env_id, "kwargs": world.env_kwargs} if world.env_id else {},
                metrics={k: v for k, v in progress.metrics.items() if np.isfinite(v)} if is_measured else {},
                training_state=state,
            )
            for name in ("last", *(f"best_{measure}" for measure in improved)):
                folder.point(name, path)
        except CheckpointError as error:
            if older is None:
                raise
            self.failure = error
            logger.warning("%s. The run goes on; until a save succeeds, --resume begins after %s", error, older)
            return False
        self.failure = None
        return True

    def check_saved(self) -> None:
        """Refuse to call a run complete whose end could not be saved.

        Raises:
            CheckpointError: If the last save failed.
        """
        if self.failure is not None:
            raise CheckpointError(f"{self.failure}; then go on from {self.parts.folder.last} with --resume")

    def _end_save(self, path: Path) -> None:
        self.parts.folder.remove_unused(self.is_kept)
        if self._on_save is not None:
            self._on_save(path)

    def _time_to_keep(self) -> float | None:
        """Return the time if ``every_s`` have passed; the main process's clock decides."""
        every_s = self.config.experiment.save.every_s
        if every_s is None:
            return None
        now = self.parts.processes.gather(self.progress.run_s)[0]
        return now if now - self.kept_at_s >= every_s else None

    def _improved(self) -> list[str]:
        """Return the measures in which this epoch is the best so far, and remember its scores."""
        better = self._better()
        self.best |= better
        return list(better)

    def _better(self) -> dict[str, float]:
        """Return the measures in which the last evaluation is better than every checkpoint, and its scores."""
        better: dict[str, float] = {}
        for measure in self.config.experiment.save.best:
            metric, sign = BEST_BY[measure]
            value = self.progress.metrics.get(metric)
            if value is not None and sign * value > sign * self.best.get(measure, -sign * np.inf):
                better[measure] = value
        return better

    # ------------------------------------------------------------------------------------------ state
    def state(self) -> TrainingState:
        """Return what a run needs, besides weights, to go on, after a whole epoch or in the middle of one.

        Every process has to call it: what differs between them is gathered.
        """
        parts, progress = self.parts, self.progress
        processes, updater = parts.processes, parts.algo.updater
        explorations = processes.gather(parts.collector.exploration.state() if parts.collector else None)
        generators = processes.gather(generator_states(processes.device)) if progress.step_in_epoch else []
        values: dict[str, Any] = {
            **progress.state(),
            "generators": generators,
            "num_steps": updater.num_steps,
            "num_skipped": updater.guard.num_skipped,
            "best": self.best,
            "improved": [],
            "kept_epochs": self.kept_epochs,
            "kept_at_s": self.kept_at_s,
            "num_threads": torch.get_num_threads(),
            "num_processes": processes.number,
            "data": parts.learner.dataset.state(),
            "explorations": explorations,
            "replay": parts.replay.watermark() if parts.replay is not None else {},
        }
        return TrainingState(updater.state_tensors(), values)

    def load_state(self, checkpoint: Checkpoint) -> None:
        """Put the run back to where a checkpoint stands; every process has to call it.

        What the replay has got since is forgotten, as far as it is the run's own and nobody else collects: the epoch
        that was not finished is taken again.

        Raises:
            ConfigError: If the data is not what it was.
            CheckpointError: If the checkpoint holds weights only, or lacks something.
        """
        state = checkpoint.training_state()
        values, algo, folder = state.values, self.parts.algo, self.parts.folder
        check_values(values, checkpoint.path)
        with restoring(checkpoint.path):
            _check(self.config, self.parts, values)
            algo.deserialize(checkpoint.tensors("model.safetensors"))
            algo.updater.load_state(state.optimizer, values["num_steps"])
            algo.on_checkpoint_loaded(is_resume=True)
            self._load_counters(values)
            _load_collecting(self.config, self.parts, self.progress.epoch, values)
        self.progress.metrics, self.progress.metrics_epoch = dict(checkpoint.card["metrics"]), self.progress.epoch
        if self.config.train.num_threads is None:
            torch.set_num_threads(values["num_threads"])
        if self.parts.processes.is_main and checkpoint.path.parent == folder.checkpoints:
            for measure in values.get("improved", []):  # the run may have been killed before it had said so
                folder.point(f"best_{measure}", checkpoint.path)
        logger.info("resuming after epoch %d, gradient step %d", self.progress.epoch, algo.updater.num_steps)

    def begin_again(self) -> None:
        """Begin a run that was stopped before it had saved anything: forget what it had collected and logged."""
        processes = self.parts.processes
        values = {"explorations": [None] * processes.number, "replay": {}}
        _load_collecting(self.config, self.parts, self.progress.epoch, values)
        if processes.is_main:
            shutil.rmtree(self.parts.folder.path / "tb", ignore_errors=True)

    def use_generators(self) -> None:
        """Let the generators of this process go on where they were, if the epoch was interrupted."""
        if self.generators is not None:
            with restoring(self.parts.folder.path):
                set_generator_states(self.generators, self.parts.processes.device)
            self.generators = None

    def _load_counters(self, values: Mapping[str, Any]) -> None:
        self.progress.load_state(values)
        processes = self.parts.processes
        is_whole = self.progress.step_in_epoch and values["num_processes"] == processes.number
        self.generators = values["generators"][processes.rank] if is_whole else None
        self.parts.algo.updater.guard.num_skipped = values.get("num_skipped", 0)
        self.kept_epochs, self.kept_at_s = list(values.get("kept_epochs", [])), values.get("kept_at_s", 0.0)
        self.best = dict(values["best"])


def save_at_signal(checkpoints: Checkpoints, number: int) -> None:
    """Save what was reached when a signal came, and say how to go on; every process has to call it."""
    name, parts = signal.Signals(number).name, checkpoints.parts
    if parts.role == "collect":
        logger.warning("%s: this collector ends; the same command starts another", name)
        return
    path, epoch = checkpoints.save_interrupted(), checkpoints.progress.epoch + 1
    if not parts.processes.is_main:
        return
    if path is None:
        logger.warning("%s: nothing was saved yet in %s; --resume starts it over", name, parts.folder.path)
    elif checkpoints.failure is not None:
        logger.warning("%s: what was reached since is lost; go on from %s with --resume", name, path)
    elif checkpoints.drops_epoch:
        first = int(path.name.split("_")[1]) + 1  # epoch_000002: two are done
        lost = f"epoch {epoch} is" if first == epoch else f"epochs {first} to {epoch} are"
        logger.warning("%s: %s dropped; go on from %s with --resume", name, lost, path)
    else:
        role = "" if parts.role == "both" else f" --role {parts.role}"
        file = shlex.quote(str(parts.folder.path / "config.json"))
        again = f"--resume (seqrl train --config {file} --resume{role})"
        logger.warning("%s: saved at gradient step %d in %s; go on with %s", name, parts.num_steps, path, again)


def _of_other_number(config: BaseConfig) -> str:
    """Return what another number of processes changes."""
    changed = [] if config.train.batch_size_is == "total" else ["windows per gradient step (train.batch_size_is)"]
    changed += ["environment steps per epoch"] * (config.collect.steps_per_epoch > 0)
    return f", which changes {' and '.join(changed)}" if changed else ""


def _check(config: BaseConfig, parts: Parts, values: Mapping[str, Any]) -> None:
    before, now, path = values["num_processes"], parts.processes.number, parts.folder.path
    if before != now:
        logger.warning("%s: %d processes resume what %d began%s", path, now, before, _of_other_number(config))
    try:
        parts.learner.dataset.load_state(values["data"])
    except DataError as error:
        raise ConfigError(f"cannot resume {path}: {error}") from error


def _load_collecting(config: BaseConfig, parts: Parts, epoch: int, values: Mapping[str, Any]) -> None:
    """Restore exploration and replay; what is collected next begins with a reset."""
    collector, replay, processes = parts.collector, parts.replay, parts.processes
    if parts.writer is not None:
        parts.writer.close()  # what is cut must have no writer, on no process
    processes.wait()
    if collector is not None:
        collector.cut_off()
        states = values["explorations"]
        if processes.rank < len(states) and (state := states[processes.rank]) is not None:
            collector.exploration.load_state(state)
        elif states and states[0] is not None:  # more processes than before: as far as the first, by draws of their own
            collector.exploration.num_steps[:] = states[0]["num_steps"][0]
    is_shared = config.collect.replay.path is not None or (parts.folder.path / "collectors").exists()
    is_own = parts.role == "both" and not is_shared
    if replay is not None and is_own:
        if processes.is_main and (forgotten := replay.cut(values["replay"])):
            logger.info("%d trajectories of an epoch that was not finished are discarded", forgotten)
        processes.wait()
        replay.reopen()
        parts.learner.dataset.refresh(epoch)
