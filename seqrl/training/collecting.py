"""Collecting in one process or in many: what they add up to, and how collectors and a learner wait for one another."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelerate.utils import gather_object

from seqrl.reports.console import format_count
from seqrl.training.collector import CollectStats
from seqrl.training.loggers import JsonlLogger
from seqrl.training.run_folder import is_running
from seqrl.training.sources import budget_of
from seqrl.training.weights import Subscriber, reported_progress

if TYPE_CHECKING:
    from seqrl.training.experiment import Experiment

logger = logging.getLogger(__name__)

POLL_S = 0.2
REMIND_S = 30.0


def merged(parts: Sequence[CollectStats]) -> CollectStats:
    """Return what all processes collected in an epoch; seconds are means over processes."""
    if len(parts) == 1:
        return parts[0]
    return CollectStats(
        env_steps=sum((p.env_steps for p in parts), Counter()),
        episodes=[e for p in parts for e in p.episodes],
        num_faults=sum(p.num_faults for p in parts),
        last_fault=next((p.last_fault for p in parts if p.last_fault), ""),
        env_s=sum(p.env_s for p in parts) / len(parts),
        policy_s=sum(p.policy_s for p in parts) / len(parts),
        record_s=sum(p.record_s for p in parts) / len(parts),
    )


def wait_for_data(experiment: Experiment, epoch: int) -> None:
    """Wait until the collectors have brought enough to learn from, on every process."""
    dataset, said = experiment.learner.dataset, time.monotonic() - REMIND_S
    if epoch < experiment.config.train.start_epoch:
        return
    while not all(gather_object([dataset.is_ready])):
        if time.monotonic() - said >= REMIND_S and experiment.accelerator.is_main_process:
            logger.info(
                "waiting for collectors (the same command with --role collect); so far %d trajectories",
                dataset.num_trajectories,
            )
            said = time.monotonic()
        time.sleep(POLL_S)
        experiment.check_signal()
        dataset.refresh(epoch)


def collect_until_finished(experiment: Experiment) -> None:
    """Collect with the newest published weights until the learner has ended."""
    collector, replay, slot = experiment.collector, experiment.replay, experiment.slot
    assert collector is not None
    assert replay is not None
    assert slot is not None
    progress, run = experiment.progress, Subscriber(experiment.folder.path)
    metrics_logger = JsonlLogger(slot.path / "metrics.jsonl", None)
    logger.info("collector %d of %s", slot.number, experiment.folder.path)
    version, epoch = -1, 0
    if before := [r["env_steps_per_env"] for r in reported_progress(experiment.folder.path)]:
        collector.exploration.num_steps[:] = int(sum(before) / len(before))  # go on where the others are
    try:
        while not run.is_finished:
            experiment.ending.check()
            if not is_running(experiment.folder.path):
                time.sleep(POLL_S)  # the learner was stopped, and may be resumed
                continue
            if (weights := run.poll()) is not None:
                experiment.algo.deserialize(weights.tensors)
                version = weights.version
            if version < experiment.config.collect.start_epoch:
                time.sleep(POLL_S)
                continue
            stats = collector.collect(epoch, lambda *_: experiment.ending.check())
            epoch += 1
            progress.epoch = epoch
            progress.env_steps += stats.env_steps
            progress.num_episodes += len(stats.episodes)
            progress.num_faults += stats.num_faults
            if stats.num_faults:
                experiment.warn(f"{stats.num_faults} failures of environments; the last: {stats.last_fault}")
            numbers = stats.metrics(collector.exploration)
            spent = stats.env_s + stats.policy_s + stats.record_s
            numbers["time/env_steps_per_s"] = stats.num_steps / max(spent, 1e-9)
            metrics_logger.log({**numbers, "progress/weights": float(version)}, progress.num_env_steps)
            slot.report(
                {
                    "env_steps": dict(progress.env_steps),
                    "env_steps_per_env": int(collector.exploration.num_steps.mean()),
                    "episodes": progress.num_episodes,
                    "faults": progress.num_faults,
                    "weights": version,
                    "time": time.time(),
                }
            )
            replay.refresh()
            replay.evict(budget_of(experiment.config.collect.replay))
        logger.info("the learner has ended; %s steps collected here", format_count(progress.num_env_steps))
    finally:
        metrics_logger.close()
