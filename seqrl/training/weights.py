"""Weights on their way from a learner to its collectors, and what both tell one another through the run's folder."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seqrl.core.errors import TrainingError
from seqrl.core.files import space_left, write_atomic, write_json
from seqrl.core.strict_json import read_object
from seqrl.core.types import Trajectory
from seqrl.data import Store

logger = logging.getLogger(__name__)

RANKS_PER_SLOT = 10_000
"""Ranks of one collector, or Ray actors; from its slot's number they make ranks that nothing else of the run has."""

_WEIGHTS, _FINISHED = "weights.safetensors", "finished"
_PROGRESS, _SHARD = "progress.json", "shard.json"
_TRIES = 5
_REPORTED = ("env_steps_per_env", "episodes", "faults")


@dataclass(frozen=True)
class PublishedWeights:
    """What a learner has published.

    Attributes:
        version: Epochs that the learner has finished.
        tensors: Name -> tensor, as :meth:`Algo.serialize` gives them.
    """

    version: int
    tensors: dict[str, Tensor]


class Publisher:
    """Publishes a learner's weights, whole or not at all.

    Args:
        run: The run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._folder = run / "published"
        self._folder.mkdir(exist_ok=True)
        (self._folder / _FINISHED).unlink(missing_ok=True)

    def publish(self, tensors: dict[str, Tensor], version: int) -> None:
        """Replace what was published; where that cannot be written, collectors keep what they have."""
        try:
            write_atomic(self._folder / _WEIGHTS, save(tensors, {"version": str(version)}))
        except OSError as error:
            logger.warning("%s: the new weights were not published: %s", self._folder, space_left(self._folder, error))

    def finish(self) -> None:
        """Tell the collectors that no more weights will come."""
        (self._folder / _FINISHED).touch()


class Subscriber:
    """Sees what the learner of a run publishes.

    Args:
        run: The run's folder.
    """

    def __init__(self, run: Path) -> None:
        self._file = run / "published" / _WEIGHTS
        self._finished = run / "published" / _FINISHED
        self._seen: tuple[int, int] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the learner has ended."""
        return self._finished.exists()

    def poll(self) -> PublishedWeights | None:
        """Return what was published since the last call; None if nothing was.

        Raises:
            TrainingError: If the file is there but cannot be read.
        """
        for left in reversed(range(_TRIES)):
            try:
                stat = os.stat(self._file)
                if (mark := (stat.st_mtime_ns, stat.st_ino)) == self._seen:
                    return None
                with safe_open(self._file, framework="pt") as file:  # type: ignore[no-untyped-call]
                    tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
                    version = int((file.metadata() or {}).get("version", 0))
            except FileNotFoundError:
                return None
            except (OSError, SafetensorError, ValueError) as error:
                if not left:
                    raise TrainingError(f"{self._file}: the published weights cannot be read ({error})") from error
                time.sleep(0.05)
                continue
            self._seen = mark
            return PublishedWeights(version, tensors)
        return None


class CollectorSlot:
    """A collector's own place in the run's folder: a number that no other collector has, and what it has done.

    Args:
        run: The run's folder.
    """

    def __init__(self, run: Path) -> None:
        folder = run / "collectors"
        folder.mkdir(exist_ok=True)
        self.number = len(list(folder.iterdir()))
        while True:
            self.path = folder / f"{self.number:04d}"
            try:
                self.path.mkdir()
                break
            except FileExistsError:
                self.number += 1
        self._stored: Counter[str] = Counter()

    def begin_shard(self, shard: Path) -> None:
        """Note that the steps that come next lie in this shard of the replay, where they count even if it is killed.

        Raises:
            TrainingError: If the run's folder was replaced.
        """
        self._note(_SHARD, {"name": shard.name, "steps_before": dict(self._stored)})

    def count_stored(self, trajectory: Trajectory) -> None:
        """Count what has been stored."""
        self._stored[trajectory.env_name] += len(trajectory)

    def report(self, values: dict[str, Any]) -> None:
        """Say how far this collector has come.

        Raises:
            TrainingError: If the run's folder was replaced.
        """
        self._note(_PROGRESS, values)

    def _note(self, name: str, values: dict[str, Any]) -> None:
        try:
            write_json(self.path / name, values)
        except FileNotFoundError as error:
            raise TrainingError(f"{self.path} is gone: the run was replaced; start the collector again") from error


def reported_progress(run: Path) -> list[dict[str, Any]]:
    """Return what the collectors of a run have reported, living or not; a damaged report is left out."""
    reports = (_report(slot) for slot in sorted((run / "collectors").glob("*")))
    return [report for report in reports if report]


def _report(slot: Path) -> dict[str, Any]:
    """Return what a collector has reported; nothing where that is not there, or damaged."""
    value = read_object(slot / _PROGRESS)
    if not isinstance(value.get("env_steps"), dict):
        return {}
    numbers = [value.get(key, 0) for key in _REPORTED] + list(value["env_steps"].values())
    return value if all(type(number) is int and number >= 0 for number in numbers) else {}


def collected_progress(run: Path, replay: Store) -> dict[str, dict[str, Any]]:
    """Return slot -> the same, with the steps that lie in the replay, but were not reported before a kill."""
    reports = {}
    for slot in sorted((run / "collectors").glob("*")):
        report: dict[str, Any] = {"env_steps": {}, "episodes": 0, "faults": 0} | _report(slot)
        steps = Counter(report["env_steps"]) | _stored_steps(read_object(slot / _SHARD), replay)  # the larger of each
        reports[slot.name] = {**report, "env_steps": dict(steps)}
    return reports


def _stored_steps(shard: dict[str, Any], replay: Store) -> Counter[str]:
    """Return the steps that a collector had stored before its last shard, and in it as far as it is still there."""
    before = shard.get("steps_before")
    is_sound = isinstance(before, dict) and all(type(n) is int and n >= 0 for n in before.values())
    steps: Counter[str] = Counter(before if is_sound else {})
    if isinstance(name := shard.get("name"), str) and name in replay.watermark():
        for number in np.flatnonzero(replay.shard == replay.shard_number(replay.path / "fifo" / name)):
            steps[replay.env_names[number]] += int(replay.length[number])
    return steps
