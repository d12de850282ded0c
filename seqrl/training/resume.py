"""What a run needs, besides weights, to go on: gathered from all processes, and put back."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object

from seqrl.algo.checkpoint import Checkpoint, TrainingState
from seqrl.core.errors import CheckpointError, ConfigError, DataError
from seqrl.core.generators import generator_states

if TYPE_CHECKING:
    from seqrl.training.experiment import Experiment

logger = logging.getLogger(__name__)


def training_state(experiment: Experiment) -> TrainingState:
    """Return the state of a run, after a whole epoch or in the middle of one; every process has to call it."""
    progress, collector = experiment.progress, experiment.collector
    explorations = gather_object([collector.exploration.state() if collector else None])
    generators = gather_object([generator_states(experiment.device)]) if progress.step_in_epoch else []
    replay = experiment.replay
    values: dict[str, Any] = {
        "epoch": progress.epoch,
        "step_in_epoch": progress.step_in_epoch,
        "is_evaluated": progress.is_evaluated,
        "generators": generators,
        "wall_s": experiment.wall_s,
        "num_steps": experiment.num_steps,
        "num_skipped": experiment.algo.updater.guard.num_skipped,
        "env_steps": dict(progress.env_steps),
        "num_episodes": progress.num_episodes,
        "num_faults": progress.num_faults,
        "reported": progress.reported,
        "best": experiment.best,
        "improved": [],
        "kept_epochs": experiment.kept_epochs,
        "kept_at_s": experiment.kept_at_s,
        "num_threads": torch.get_num_threads(),
        "num_processes": experiment.accelerator.num_processes,
        "data": experiment.learner.dataset.state(),
        "explorations": explorations,
        "replay": replay.watermark() if replay is not None else {},
    }
    return TrainingState(experiment.algo.updater.state_tensors(), values)


def restore(experiment: Experiment, checkpoint: Checkpoint) -> None:
    """Put a run back to where a checkpoint stands; every process has to call it.

    What the replay has got since is forgotten, as far as it is the run's own and nobody else collects: the epoch that
    was not finished is taken again.

    Raises:
        ConfigError: If the data or the number of processes is not what it was.
        CheckpointError: If the checkpoint holds weights only, or lacks something.
    """
    state = checkpoint.training_state()
    values = state.values
    try:
        _check(experiment, values)
        experiment.algo.deserialize(checkpoint.tensors("model.safetensors"))
        experiment.algo.updater.load_state(state.optimizer, values["num_steps"])
        experiment.algo.on_checkpoint_loaded(is_resume=True)
        _restore_progress(experiment, values)
        _restore_collecting(experiment, values)
    except KeyError as error:
        raise CheckpointError(f"{checkpoint.path}: its training state lacks {error}") from error
    experiment.metrics, experiment.metrics_epoch = dict(checkpoint.card["metrics"]), experiment.progress.epoch
    if experiment.config.train.num_threads is None:
        torch.set_num_threads(values["num_threads"])
    if experiment.accelerator.is_main_process and checkpoint.path.parent == experiment.folder.checkpoints:
        for measure in values.get("improved", []):  # the run may have been killed before it had said so
            experiment.folder.point(f"best_{measure}", checkpoint.path)
    logger.info("resuming after epoch %d, gradient step %d", experiment.progress.epoch, experiment.num_steps)


def begin_again(experiment: Experiment) -> None:
    """Begin a run that was stopped before it had saved anything: forget what it had collected and logged."""
    num_processes = experiment.accelerator.num_processes
    _restore_collecting(experiment, {"explorations": [None] * num_processes, "replay": {}})
    if experiment.accelerator.is_main_process:
        shutil.rmtree(experiment.folder.path / "tb", ignore_errors=True)


def _check(experiment: Experiment, values: dict[str, Any]) -> None:
    now = experiment.accelerator.num_processes
    if values["num_processes"] != now:
        raise ConfigError(
            f"cannot resume {experiment.folder.path}: num_processes was {values['num_processes']}, now {now}"
        )
    try:
        experiment.learner.dataset.load_state(values["data"])
    except DataError as error:
        raise ConfigError(f"cannot resume {experiment.folder.path}: {error}") from error


def _restore_progress(experiment: Experiment, values: dict[str, Any]) -> None:
    progress = experiment.progress
    progress.epoch, progress.wall_s = values["epoch"], values["wall_s"]
    progress.step_in_epoch, progress.is_in_epoch = values.get("step_in_epoch", 0), False
    progress.is_evaluated = values.get("is_evaluated", True)
    experiment.generators = values["generators"][experiment.rank] if progress.step_in_epoch else None
    experiment.algo.updater.guard.num_skipped = values.get("num_skipped", 0)
    experiment.kept_epochs, experiment.kept_at_s = list(values.get("kept_epochs", [])), values.get("kept_at_s", 0.0)
    progress.env_steps = Counter(values["env_steps"])
    progress.num_episodes, progress.num_faults = values["num_episodes"], values["num_faults"]
    progress.reported = dict(values["reported"])
    experiment.best = dict(values["best"])


def _restore_collecting(experiment: Experiment, values: dict[str, Any]) -> None:
    collector, replay = experiment.collector, experiment.replay
    experiment.close_writer()  # what is cut must have no writer, on no process
    experiment.accelerator.wait_for_everyone()
    if collector is not None:
        collector.cut_off()
        if (state := values["explorations"][experiment.rank]) is not None:
            collector.exploration.load_state(state)
    is_shared = experiment.config.collect.replay.path is not None or (experiment.folder.path / "collectors").exists()
    is_own = experiment.role == "both" and not is_shared
    if replay is not None and is_own:
        if experiment.accelerator.is_main_process and (forgotten := replay.cut(values["replay"])):
            logger.info("%d trajectories of an epoch that was not finished are forgotten", forgotten)
        experiment.accelerator.wait_for_everyone()
        replay.reopen()
        experiment.learner.dataset.refresh(experiment.progress.epoch)
