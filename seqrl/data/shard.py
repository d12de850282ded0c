"""One shard: a raw append-only file per column, and a commit log that says which rows count.

All columns have one row per *input*, so a trajectory of T transitions takes T + 1 rows of each: row 0 of
``prev_action`` holds the action before the first input (zeros at an episode's start), row t + 1 holds action t.
One set of row numbers therefore gathers a window from every column.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.files import write_json
from seqrl.core.types import Trajectory

Schema = dict[str, tuple[str, tuple[int, ...]]]
"""Column name -> (dtype, shape of one row)."""


@dataclass(frozen=True)
class Commit:
    """One line of the log: one whole trajectory.

    Attributes:
        row: First row in every column.
        length: T; the trajectory occupies T + 1 rows.
        start_step: Steps of the episode before the trajectory.
        env_name: Task.
        name: Name of the episode in the file it came from, or empty.
        total_reward: Sum of its rewards.
        crc: CRC-32 of all its rows, columns in alphabetical order.
    """

    row: int
    length: int
    start_step: int
    env_name: str
    name: str
    total_reward: float
    crc: int


def trajectory_columns(trajectory: Trajectory) -> dict[str, np.ndarray]:
    """Return column name -> ``(T + 1, ...)`` array, C-contiguous, in the order of the names."""
    first_action = trajectory.prev_action
    if first_action is None:
        first_action = np.zeros_like(trajectory.actions[0])
    columns = {f"obs/{k}": v for k, v in trajectory.obs.items()}
    columns |= {f"goal/{k}": v for k, v in trajectory.goal.items()}
    columns["prev_action"] = np.concatenate([np.asarray(first_action)[None], trajectory.actions])
    columns["prev_reward"] = np.concatenate([[trajectory.prev_reward], trajectory.rewards]).astype(np.float32)
    columns["terminated"] = np.concatenate([[False], trajectory.terminated])
    columns["truncated"] = np.concatenate([[False], trajectory.truncated])
    if trajectory.action_mask is not None:
        columns["action_mask"] = trajectory.action_mask
    return {k: np.ascontiguousarray(columns[k]) for k in sorted(columns)}


class ShardWriter:
    """Appends whole trajectories to a new shard of its own; no other process writes there.

    Args:
        area: Folder in which the shard's folder is made.
        schema: Columns; every trajectory must have these.
    """

    def __init__(self, area: Path, schema: Schema) -> None:
        self.path = area / f"shard_{time.time_ns():020d}_{uuid.uuid4().hex[:8]}"  # sorts in the order of creation
        self.num_bytes = 0
        self._schema = schema
        self._rows = 0
        self.path.mkdir(parents=True)
        self._files = {name: open(self.path / column_file(name), "ab") for name in schema}  # noqa: SIM115
        write_json(self.path / "schema.json", {k: [d, list(s)] for k, (d, s) in schema.items()})
        self._log = open(self.path / "commits.jsonl", "ab")  # noqa: SIM115

    def append(self, trajectory: Trajectory, columns: dict[str, np.ndarray], name: str) -> None:
        """Write the columns, then the log line: a reader sees all of the trajectory or nothing."""
        crc = 0
        for key, values in columns.items():
            payload = values.tobytes()
            self._files[key].write(payload)
            crc = zlib.crc32(payload, crc)
            self.num_bytes += len(payload)
        for file in self._files.values():
            file.flush()
        commit = Commit(
            row=self._rows,
            length=len(trajectory),
            start_step=trajectory.start_step,
            env_name=trajectory.env_name,
            name=name,
            total_reward=trajectory.total_reward,
            crc=crc,
        )
        self._rows += len(trajectory) + 1
        self._log.write(json.dumps(asdict(commit)).encode() + b"\n")
        self._log.flush()

    def abandon(self) -> None:
        """Close the files after an error, without trusting them any more."""
        for file in [*self._files.values(), self._log]:
            with contextlib.suppress(OSError):
                file.close()

    def close(self) -> None:
        """Make everything durable."""
        for file in [*self._files.values(), self._log]:
            _sync_and_close(file)


class ShardReader:
    """Sees the committed trajectories of one shard, while another process may append to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.schema = _read_schema(path / "schema.json")
        self.commits: list[Commit] = []
        self._log_position = 0
        self._maps: dict[str, np.ndarray] = {}

    def refresh(self) -> list[Commit]:
        """Read the log lines that have come since, and return them."""
        with open(self.path / "commits.jsonl", "rb") as file:
            file.seek(self._log_position)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        new = [self._parse(line) for line in whole.splitlines()]
        self.commits += new
        self._log_position += len(whole)
        return new

    def _parse(self, line: bytes) -> Commit:
        try:
            commit = Commit(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.path / 'commits.jsonl'}: damaged line {line[:80]!r} ({error})") from error
        numbers = (commit.row, commit.length, commit.start_step, commit.crc)
        typed = all(type(n) is int for n in numbers) and type(commit.total_reward) in (int, float)
        texts = isinstance(commit.env_name, str) and isinstance(commit.name, str)
        if not (typed and texts) or commit.length < 1 or commit.row < 0 or commit.start_step < 0:
            raise DataError(f"{self.path / 'commits.jsonl'}: impossible line {line[:80]!r}")
        return commit

    @property
    def num_rows(self) -> int:
        """Rows that are committed."""
        return self.commits[-1].row + self.commits[-1].length + 1 if self.commits else 0

    def column(self, name: str) -> np.ndarray:
        """Return the committed rows of a column, as a view of the file."""
        mapped = self._maps.get(name)
        if mapped is None or len(mapped) < self.num_rows:
            mapped = self._maps[name] = self._map(name)
        return mapped

    def _map(self, name: str) -> np.ndarray:
        dtype, shape = self.schema[name]
        file = self.path / column_file(name)
        if 0 in shape:
            return np.zeros((self.num_rows, *shape), dtype)
        try:
            array = np.memmap(file, dtype, mode="r", shape=(self.num_rows, *shape))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{file}: shorter than its {self.num_rows} committed rows, or unreadable ({error})"
            ) from error
        return np.asarray(array)

    def verify(self) -> Iterator[tuple[Commit, bool]]:
        """Yield each commit and whether its rows still have the checksum that was written."""
        for commit in self.commits:
            crc = 0
            for name in sorted(self.schema):
                rows = self.column(name)[commit.row : commit.row + commit.length + 1]
                crc = zlib.crc32(np.ascontiguousarray(rows).tobytes(), crc)
            yield commit, crc == commit.crc


def column_file(name: str) -> str:
    """Return the file name of a column."""
    return quote(name, safe="") + ".bin"


def _read_schema(file: Path) -> Schema:
    try:
        raw: dict[str, Any] = json.loads(file.read_text())
        return {k: (str(np.dtype(d)), tuple(int(n) for n in s)) for k, (d, s) in raw.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: not the schema of a shard ({error})") from error


def _sync_and_close(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()
