"""Videos in the middle of a run, and in its report."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqrl.configs import BaseConfig
from seqrl.core.errors import EnvError, SeqrlError
from seqrl.core.seeding import integer_seed
from seqrl.envs.metrics import Episode
from seqrl.moved import moved_names
from seqrl.reports.series import read_metrics
from seqrl.rollout.filming import record_episodes, why_not_rendered
from seqrl.rollout.video import VideoWriter, check_video_suffix
from seqrl.training.parts import Parts
from seqrl.training.progress import Progress
from seqrl.training.run_log import RunLog

if not TYPE_CHECKING:  # mypy shall not take every name for one of this module
    __getattr__ = moved_names(__name__, "seqrl.rollout.filming", "Film", "is_named", "rendering_env")

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


def render_epoch(config: BaseConfig, parts: Parts, progress: Progress, run_log: RunLog) -> Path | None:
    """Write the video of the epoch that has ended, if it is time, and return its path; a failure is a warning."""
    section, epoch = config.experiment.rendering, progress.epoch
    is_due = epoch == config.train.num_epochs or epoch % section.every_n_epochs == 0
    if not (section.enabled and is_due and parts.processes.is_main):
        return None
    if section.keep == "best" and not _is_best(progress, parts.folder.metrics):
        return None
    file = parts.folder.path / "videos" / f"epoch_{epoch:06d}.{section.format}"
    if record_evaluation(
        config, parts, epoch, file, section.episodes, section.fps,
        run_log=run_log, every=section.every_n_frames, max_frames=section.max_frames,
    ) is None:  # fmt: skip
        return None
    logger.info("video: %s", file)
    if section.keep == "best":
        for other in file.parent.glob("epoch_*"):
            if other != file:
                other.unlink()
    return file


def record_evaluation(
    config: BaseConfig,
    parts: Parts,
    epoch: int,
    file: Path,
    num_episodes: int,
    fps: float,
    *,
    run_log: RunLog,
    every: int = 1,
    max_frames: int = 400,
    max_s: float = math.inf,
) -> list[Episode] | None:
    """Film the first episodes of an epoch's evaluation, and return them; None, with the reason, if that fails.

    A greedy policy plays exactly the episodes that the evaluation counts; one that samples draws other actions in them.
    """
    seed = config.train.seed
    try:
        if parts.world.eval_makers is None:
            raise EnvError("there is no environment to evaluate in")
        if reason := why_not_rendered(parts.world.eval_makers):
            logger.info("no video: %s", reason)
            return None
        with VideoWriter(file, fps) as video:
            return record_episodes(
                parts.algo,
                parts.world.eval_makers,
                video,
                num_episodes,
                seed=integer_seed(seed, "eval", "env", epoch),
                policy_seed=integer_seed(seed, "eval", "policy", epoch),
                deterministic=config.experiment.evaluation.deterministic,
                every=every,
                max_frames=max_frames,
                max_s=max_s,
            )
    except Exception as error:
        foreign = error.__cause__ or (None if isinstance(error, SeqrlError) else error)
        run_log.warn_once(f"no video: {type(error).__name__}: {error}", foreign)
        return None


def _is_best(progress: Progress, file: Path) -> bool:
    """Tell whether this epoch was evaluated, and at least as well as every epoch before it."""
    name = next((m for m in _MEASURES if m in progress.metrics), None)
    if name is None or progress.metrics_epoch != progress.epoch:
        return False
    seen = [row[name] for row in read_metrics(file) if row.get(name) is not None]
    return progress.metrics[name] >= max(seen, default=-np.inf)
