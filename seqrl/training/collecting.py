"""Collecting in one process or in many: what they add up to, and how collectors and a learner wait for one another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from seqrl.algo.algo import Algo
from seqrl.configs import BaseConfig
from seqrl.core.errors import CheckpointError, ConfigError, TrainingError
from seqrl.reports.console import format_count
from seqrl.training import setup
from seqrl.training.collector import Collector, CollectStats
from seqrl.training.ending import Ending
from seqrl.training.loggers import JsonlLogger
from seqrl.training.parts import Parts
from seqrl.training.progress import Progress
from seqrl.training.ray_collectors import RayCollectors
from seqrl.training.run_folder import is_orphan, is_running
from seqrl.training.run_log import progress_bar
from seqrl.training.sources import budget_of
from seqrl.training.weights import PublishedWeights, Subscriber, collected_progress, reported_progress
from seqrl.training.world import Warn

logger = logging.getLogger(__name__)

POLL_S = 0.2
LOOK_S = 1.0
"""Between two looks at whether the learner still runs, each of which takes a tenth of a second."""
REMIND_S = 30.0


def collect_epoch(config: BaseConfig, parts: Parts, ending: Ending, epoch: int) -> CollectStats:
    """Act in the training environments of this process for one epoch, and add what happens to the replay.

    Raises:
        RunInterrupted: If a signal comes, and no other process has to know.
    """
    collector, begin = parts.collector, time.perf_counter()
    if collector is None:
        raise ConfigError("this run collects nothing: set collect.steps_per_epoch above 0")
    if parts.role == "collect":
        return collector.collect(epoch, lambda *_: ending.check())
    check, total = ending.checking(parts.processes), config.collect.steps_per_epoch * collector.env.num_envs
    with progress_bar(config, parts, f"epoch {epoch + 1} collect", total, " steps") as bar:

        def on_step(num: int, stats: CollectStats) -> None:
            check()
            bar.update(num)
            if not bar.disable and bar.n % (50 * num) == 0:
                bar.set_postfix_str(stats.shares(time.perf_counter() - begin), refresh=False)

        return collector.collect(epoch, on_step)


def count(stats: CollectStats, progress: Progress, warn: Warn, label: str = "") -> None:
    """Add what was collected to the progress, and warn of environments that failed."""
    progress.add(stats.env_steps, len(stats.episodes), stats.num_faults)
    if stats.num_faults:
        times = "once" if stats.num_faults == 1 else f"{stats.num_faults} times"
        warn(f"{label}environments failed {times}; the last: {stats.last_fault}")


def refresh_data(config: BaseConfig, parts: Parts, progress: Progress, ending: Ending, epoch: int) -> bool:
    """Keep the replay within its budget, and tell the same on every process: whether there is enough to learn.

    Raises:
        RunInterrupted: If a signal comes while a learner waits for its collectors.
    """
    dataset, processes, replay = parts.learner.dataset, parts.processes, parts.replay
    processes.wait()
    if replay is not None and processes.is_main:
        replay.refresh()
        replay.evict(budget_of(config.collect.replay))
    processes.wait()
    dataset.refresh(epoch)
    if parts.role == "learn" and epoch >= max(config.train.start_epoch, config.collect.start_epoch):
        _wait_for_data(parts, ending, epoch, is_by_ray=parts.commands_actors)
    if replay is not None:
        progress.take_reports(collected_progress(parts.folder.path, replay))
    return all(processes.gather(dataset.is_ready))


def _wait_for_data(parts: Parts, ending: Ending, epoch: int, *, is_by_ray: bool) -> None:
    """Wait until the collectors have brought enough to learn from, on every process."""
    dataset, processes, said = parts.learner.dataset, parts.processes, time.monotonic() - REMIND_S
    while not all(processes.gather(dataset.is_ready)):
        if time.monotonic() - said >= REMIND_S and processes.is_main:
            who = "Ray's actors" if is_by_ray else "collectors (the same command with --role collect)"
            logger.info("waiting for %s; so far %d trajectories", who, dataset.num_trajectories)
            said = time.monotonic()
        time.sleep(POLL_S)
        ending.agree_and_check(processes)
        dataset.refresh(epoch)


def delete_replay(parts: Parts) -> None:
    """Delete everything that a run has collected; protected data stays.

    Raises:
        CheckpointError: If the run has no replay, or others may share it (``collect.replay.path``).
    """
    if parts.replay is None:
        raise CheckpointError("this run has no replay")
    if parts.algo.config.collect.replay.path is not None:
        raise CheckpointError(f"{parts.replay.path} may be shared with other runs (collect.replay.path)")
    if parts.collector is not None:
        parts.collector.cut_off()
    if parts.writer is not None:
        parts.writer.close()
    parts.replay.cut({})


class Collecting(Protocol):
    """Where a process of role ``collect`` gets experience: environments of its own, or Ray's actors.

    Attributes:
        version: Of the weights that act; -1 before the first.
        steps_per_env: Steps of each environment so far, on average.
    """

    @property
    def version(self) -> int: ...  # noqa: D102

    @property
    def steps_per_env(self) -> int: ...  # noqa: D102

    def take_weights(self, weights: PublishedWeights) -> None:
        """Act by new weights from now on."""

    def collect(self) -> CollectStats:
        """Collect for a while, and add what happens to the replay."""

    def metrics(self, stats: CollectStats) -> dict[str, float]:
        """Return what to log of the last of :meth:`collect`."""

    def close(self) -> None:
        """Let go of what it holds."""


class CollectingHere:
    """Collects in the environments of this process.

    Args:
        algo: Acts.
        collector: Of the run's parts.
        interact: Collects one epoch, by its number.
        steps_per_env: Steps of each environment that the exploration begins with.
    """

    def __init__(
        self, algo: Algo, collector: Collector, interact: Callable[[int], CollectStats], steps_per_env: int
    ) -> None:
        self._algo, self._collector, self._interact = algo, collector, interact
        self.version, self._epoch = -1, 0
        collector.exploration.num_steps[:] = steps_per_env

    @property
    def steps_per_env(self) -> int:
        """Steps of each environment so far, on average."""
        return int(self._collector.exploration.num_steps.mean())

    def take_weights(self, weights: PublishedWeights) -> None:
        """Act by new weights from now on."""
        self._algo.deserialize(weights.tensors)
        self.version = weights.version

    def collect(self) -> CollectStats:
        """Collect one epoch."""
        stats = self._interact(self._epoch)
        self._epoch += 1
        return stats

    def metrics(self, stats: CollectStats) -> dict[str, float]:
        """Return what to log of it, with the speed of this process."""
        spent = stats.env_s + stats.policy_s + stats.record_s
        return {
            **stats.metrics(self._collector.epsilon),
            "time/env_steps_per_s": stats.num_steps / max(spent, 1e-9),
        }

    def close(self) -> None:
        """Nothing: the environments belong to the run."""


def _source(
    config: BaseConfig, parts: Parts, check: Callable[[], None], interact: Callable[[int], CollectStats]
) -> Collecting:
    """Return where a process of role ``collect`` gets its experience."""
    assert parts.slot is not None
    before = [r.get("env_steps_per_env", 0) for r in reported_progress(parts.folder.path)]
    steps_per_env = max(before, default=0)  # the exploration goes on where the others are
    if config.collect.collectors == "ray":
        write, number = setup.replay_write(config, parts), parts.slot.number
        return RayCollectors(config, parts.world.info, number, write, check, steps_per_env)
    assert parts.collector is not None
    return CollectingHere(parts.algo, parts.collector, interact, steps_per_env)


def collect_until_finished(
    config: BaseConfig,
    parts: Parts,
    progress: Progress,
    ending: Ending,
    interact: Callable[[int], CollectStats],
    warn: Warn,
) -> None:
    """Collect with the newest published weights until the learner has ended.

    Args:
        config: The run file.
        parts: Of a run of role ``collect``.
        progress: What this collector has done.
        ending: Tells of signals.
        interact: Collects one epoch in the environments of this process, by its number.
        warn: Takes failures of environments.
    """
    replay, slot, folder = parts.replay, parts.slot, parts.folder.path
    assert replay is not None
    assert slot is not None
    run = Subscriber(folder)
    metrics_logger = JsonlLogger(slot.path / "metrics.jsonl", None)
    logger.info("collector %d of %s", slot.number, folder)

    def check() -> None:
        ending.check()
        if is_orphan():
            raise TrainingError("the learner that started this process is gone")

    source, looked = _source(config, parts, check, interact), -LOOK_S
    try:
        while not run.is_finished:
            check()
            if time.monotonic() - looked > LOOK_S:
                if not is_running(folder):
                    time.sleep(POLL_S)  # the learner was stopped, and may be resumed
                    continue
                looked = time.monotonic()
            if (weights := run.poll()) is not None:
                source.take_weights(weights)
            if source.version < config.collect.start_epoch:
                time.sleep(POLL_S)
                continue
            stats = source.collect()
            progress.epoch += 1
            count(stats, progress, warn)
            numbers = {**source.metrics(stats), "progress/weights": float(source.version)}
            metrics_logger.log(numbers, progress.num_env_steps)
            slot.report(_reported(progress, source))
            replay.refresh()
            replay.evict(budget_of(config.collect.replay))
        logger.info("the learner has ended; %s steps collected here", format_count(progress.num_env_steps))
    finally:
        metrics_logger.close()
        source.close()


def _reported(progress: Progress, source: Collecting) -> dict[str, Any]:
    """Return what the learner of the run, and the collectors that come later, read of this collector."""
    return {
        "env_steps": dict(progress.env_steps),
        "env_steps_per_env": source.steps_per_env,
        "episodes": progress.num_episodes,
        "faults": progress.num_faults,
        "weights": source.version,
        "time": time.time(),
    }
