"""Videos in the middle of a run, and in its report."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqrl.configs import BaseConfig
from seqrl.core.errors import EnvError
from seqrl.core.seeding import integer_seed
from seqrl.envs.metrics import Episode
from seqrl.reports.series import read_metrics
from seqrl.rollout.filming import record_episodes
from seqrl.rollout.video import VideoWriter, check_video_suffix

if TYPE_CHECKING:
    from seqrl.training.experiment import Experiment

logger = logging.getLogger(__name__)

_MEASURES = ("eval/success_mean", "eval/return_mean")


def check_rendering(config: BaseConfig) -> None:
    """Refuse, before anything is made, videos that this installation cannot write.

    Raises:
        ConfigError: That names the extra to install.
    """
    section = config.experiment.rendering
    if section.enabled:
        check_video_suffix(f".{section.format}")


def render_epoch(experiment: Experiment) -> None:
    """Write the video of the epoch that has ended, if it is time; whatever fails is a warning, told once."""
    config, epoch = experiment.config, experiment.progress.epoch
    section = config.experiment.rendering
    is_due = epoch == config.train.num_epochs or epoch % section.every_n_epochs == 0
    if not (section.enabled and is_due and experiment.accelerator.is_main_process):
        return
    if section.keep == "best" and not _is_best(experiment):
        return
    file = experiment.folder.path / "videos" / f"epoch_{epoch:06d}.{section.format}"
    if record_evaluation(
        experiment, file, section.episodes, section.fps, every=section.every_n_frames, max_frames=section.max_frames
    ) is None:  # fmt: skip
        return
    logger.info("video: %s", file)
    if section.keep == "best":
        for other in file.parent.glob("epoch_*"):
            if other != file:
                other.unlink()


def record_evaluation(
    experiment: Experiment, file: Path, num_episodes: int, fps: float, *, every: int = 1, max_frames: int = 400
) -> list[Episode] | None:
    """Film the first episodes of this epoch's evaluation, and return them; None, after a warning, if that fails.

    A greedy policy plays exactly the episodes that the evaluation counts.
    """
    seed, epoch = experiment.config.train.seed, experiment.progress.epoch
    try:
        if experiment.eval_makers is None:
            raise EnvError("there is no environment to evaluate in")
        with VideoWriter(file, fps) as video:
            return record_episodes(
                experiment.algo,
                experiment.eval_makers,
                video,
                num_episodes,
                seed=integer_seed(seed, "eval", "env", epoch),
                policy_seed=integer_seed(seed, "eval", "policy", epoch),
                deterministic=experiment.config.experiment.evaluation.deterministic,
                every=every,
                max_frames=max_frames,
            )
    except Exception as error:
        text = f"no video: {type(error).__name__}: {error}"
        if text not in experiment.warnings:
            experiment.warn(text)
        return None


def _is_best(experiment: Experiment) -> bool:
    """Tell whether this epoch was evaluated, and at least as well as every epoch before it."""
    name = next((m for m in _MEASURES if m in experiment.metrics), None)
    if name is None or experiment.metrics_epoch != experiment.progress.epoch:
        return False
    seen = [row[name] for row in read_metrics(experiment.folder.metrics) if row.get(name) is not None]
    return experiment.metrics[name] >= max(seen, default=-np.inf)
