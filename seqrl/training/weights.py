"""Weights on their way from a learner to its collectors, and what both tell one another through the run's folder."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seqrl.core.errors import TrainingError
from seqrl.core.files import write_atomic, write_json
from seqrl.core.strict_json import parse_json

_WEIGHTS, _FINISHED = "weights.safetensors", "finished"
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
        """Replace what was published."""
        write_atomic(self._folder / _WEIGHTS, save(tensors, {"version": str(version)}))

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

    def report(self, values: dict[str, Any]) -> None:
        """Say how far this collector has come.

        Raises:
            TrainingError: If the run's folder was replaced.
        """
        try:
            write_json(self.path / "progress.json", values)
        except FileNotFoundError as error:
            raise TrainingError(f"{self.path} is gone: the run was replaced; start the collector again") from error


def reported_progress(run: Path) -> list[dict[str, Any]]:
    """Return what the collectors of a run have reported, living or not; a damaged report is left out."""
    reports = []
    for file in sorted((run / "collectors").glob("*/progress.json")):
        try:
            report = parse_json(file.read_bytes())
        except (OSError, ValueError):
            continue
        if _is_report(report):
            reports.append(report)
    return reports


def _is_report(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("env_steps"), dict):
        return False
    numbers = [value.get(key) for key in _REPORTED] + list(value["env_steps"].values())
    return all(type(number) is int and number >= 0 for number in numbers)
