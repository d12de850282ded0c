"""One shard: a raw append-only file per column, and a commit log that says which rows count.

All columns have one row per *input*, so a trajectory of T transitions takes T + 1 rows of each: row 0 of
``prev_action`` holds the action before the first input (zeros at an episode's start), row t + 1 holds action t.
One set of row numbers therefore gathers a window from every column.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.files import FileLock, is_locked, system_says, write_atomic, write_json
from seqrl.core.strict_json import parse_json
from seqrl.core.types import Trajectory
from seqrl.data.file_map import map_file

Schema = dict[str, tuple[str, tuple[int, ...]]]
"""Column name -> (dtype, shape of one row)."""

INDEX_DTYPE = np.dtype([("row", "i8"), ("length", "i8"), ("start_step", "i8"), ("total_reward", "f8")], align=True)
"""The numbers of one line of the log, which stands for one whole trajectory: its first row in every column; T (it
occupies T + 1 rows); steps of the episode before it; sum of its rewards."""

_LOG, _LOCK, _GONE = "commits.jsonl", "lock", ".evicted_"
_NUMBERED = re.compile(r"shard_(\d+)_")
_MAKING_S = 60.0
_CHECK = b', "check": '
_JOINED = -1
"""Stands for the checksums of all columns but the last where a log of an earlier version has one for all together."""


class ShardGoneError(DataError):
    """A shard was evicted by another process; draw from the others."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} was evicted while it was read")
        self.path = path


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
        self.path = area / f"shard_{_next_number(area):020d}_{uuid.uuid4().hex[:8]}"  # sorts in the order of creation
        self.num_bytes = self.num_trajectories = self.num_transitions = 0
        self._schema = schema
        self._rows = 0
        self.path.mkdir(parents=True)
        self._lock = FileLock(self.path / _LOCK)
        self._files = {name: open(self.path / column_file(name), "ab") for name in schema}  # noqa: SIM115
        write_json(self.path / "schema.json", {k: [d, list(s)] for k, (d, s) in schema.items()})
        self._log = open(self.path / _LOG, "ab")  # noqa: SIM115

    def append(self, trajectory: Trajectory, columns: dict[str, np.ndarray], name: str) -> None:
        """Write the columns, then the log line: a reader sees all of the trajectory or nothing."""
        crcs = []
        for key, values in columns.items():
            self._files[key].write(values.reshape(-1).view(np.uint8).data)  # contiguous, so nothing is copied
            crcs.append(column_crc(key, values))
            self.num_bytes += values.nbytes
        for file in self._files.values():
            file.flush()
        commit = {
            "row": self._rows,
            "length": len(trajectory),
            "start_step": trajectory.start_step,
            "env_name": trajectory.env_name,
            "name": name,
            "total_reward": trajectory.total_reward,
            "crcs": crcs,
        }
        self._rows += len(trajectory) + 1
        self.num_trajectories += 1
        self.num_transitions += len(trajectory)
        line = _checked_line(commit)
        self.num_bytes += len(line)
        self._log.write(line)
        self._log.flush()

    @property
    def is_there(self) -> bool:
        """Whether nobody has deleted it."""
        return (self.path / _LOG).exists()

    def abandon(self) -> None:
        """Close the files after an error, without trusting them any more."""
        for file in [*self._files.values(), self._log]:
            with contextlib.suppress(OSError):
                file.close()
        self._lock.release()

    def close(self) -> None:
        """Make everything durable."""
        try:
            for file in [*self._files.values(), self._log]:
                _sync_and_close(file)
        finally:
            self._lock.release()


class ShardReader:
    """Sees the committed trajectories of one shard, while another process may append to it.

    Attributes:
        index: ``(N,)`` of :data:`INDEX_DTYPE`, one entry per trajectory.
        crcs: ``(N, C)`` int64, checksums of the rows of each trajectory, columns in alphabetical order.
        is_verified: ``(N, C)`` bool, whether they have been compared with the rows.
        columns: C names in alphabetical order.
        env_names: Task of each trajectory.
        names: Name of each trajectory in the file it came from, or empty.

    Raises:
        ShardGoneError: If it does not exist any more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.schema = _read_schema(path / "schema.json")
        self.row_bytes = sum(int(np.dtype(d).itemsize * np.prod(s, dtype=np.int64)) for d, s in self.schema.values())
        self.columns = sorted(self.schema)
        self.index = np.zeros(0, INDEX_DTYPE)
        self.crcs = np.zeros((0, len(self.columns)), np.int64)
        self.is_verified = np.zeros((0, len(self.columns)), bool)
        self.env_names: list[str] = []
        self.names: list[str] = []
        self._log_position = 0
        self._maps: dict[str, np.ndarray] = {}

    def refresh(self) -> int:
        """Read the log lines that have come since, and return how many."""
        try:
            with open(self.path / _LOG, "rb") as file:
                file.seek(self._log_position)
                text = file.read()
        except FileNotFoundError as error:
            raise ShardGoneError(self.path) from error
        except OSError as error:
            raise DataError(f"{self.path / _LOG}: not readable ({system_says(error)})") from error
        whole = text[: text.rfind(b"\n") + 1]
        entries = [self._parse(line) for line in whole.splitlines()]
        if entries:
            numbers, crcs = zip(*entries, strict=True)
            self.index = np.concatenate([self.index, np.array(list(numbers), INDEX_DTYPE)])
            self.crcs = np.concatenate([self.crcs, np.array(crcs, np.int64)])
            self.is_verified = np.concatenate([self.is_verified, np.zeros((len(entries), len(self.columns)), bool)])
        self._log_position += len(whole)
        return len(entries)

    def _parse(self, line: bytes) -> tuple[tuple[Any, ...], list[int]]:
        """Return the numbers and the checksums of a line, and remember its names."""
        try:
            env_name, name, entry, crcs = _parse_commit(line, len(self.columns))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{self.path / _LOG}: damaged line {line[:80]!r} ({error})") from error
        row, length, start_step, total_reward = entry
        typed = all(type(n) is int and n < 2**40 for n in (row, length, start_step))
        typed = typed and type(total_reward) in (int, float) and all(type(c) is int and c < 2**32 for c in crcs)
        texts = isinstance(env_name, str) and isinstance(name, str)
        if not (typed and texts) or length < 1 or row < 0 or start_step < 0:
            raise DataError(f"{self.path / _LOG}: impossible line {line[:80]!r}")
        self.env_names.append(sys.intern(env_name))
        self.names.append(sys.intern(name))
        return entry, crcs

    @property
    def num_rows(self) -> int:
        """Rows that are committed."""
        return int(self.index["row"][-1] + self.index["length"][-1] + 1) if len(self.index) else 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the committed rows and of their log."""
        return self.num_rows * self.row_bytes + self._log_position

    @property
    def is_being_written(self) -> bool:
        """Whether a living writer appends to it."""
        return is_locked(self.path / _LOCK)

    def delete(self) -> None:
        """Delete the shard: it vanishes at once, whoever reads it."""
        self.let_go()
        gone = self.path.with_name(_GONE + self.path.name)
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path, gone)
        shutil.rmtree(gone, ignore_errors=True)

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
            return map_file(file, dtype, (self.num_rows, *shape))
        except FileNotFoundError as error:
            if not self.path.exists():
                raise ShardGoneError(self.path) from error
            raise DataError(f"{file}: is missing from its shard") from error
        except OSError as error:
            raise DataError(f"{file}: not readable ({system_says(error)})") from error
        except (ValueError, OverflowError) as error:
            raise DataError(f"{file}: shorter than its {self.num_rows} committed rows ({error})") from error

    def let_go(self) -> None:
        """Unmap the columns, as soon as no view of them is left; what is read next is mapped anew."""
        self._maps.clear()

    def check(self, number: int, columns: Sequence[int]) -> None:
        """Compare columns of a trajectory with their checksums, those that have not been compared before.

        Args:
            number: Of the trajectory in the shard.
            columns: Positions in :attr:`columns`.

        Raises:
            DataError: If one is not what was written.
        """
        if self.crcs[number, 0] == _JOINED:
            columns = range(len(self.columns))
        wrong = [] if self.is_verified[number, columns].all() else self._altered(number, columns)
        if wrong:
            row, name = self.index["row"][number], self.names[number] or self.env_names[number]
            raise DataError(
                f"{self.path}: {', '.join(wrong)} of the trajectory at row {row} ({name}) is not what was written (its "
                "checksum differs); delete the shard, or the whole store if it can be made again"
            )
        self.is_verified[number, columns] = True

    def _altered(self, number: int, columns: Sequence[int]) -> list[str]:
        """Return the names of the columns whose rows do not have the checksum that was written."""
        row, length = self.index["row"][number], self.index["length"][number]
        rows = {name: self.column(name)[row : row + length + 1] for name in (self.columns[c] for c in columns)}
        expected = self.crcs[number]
        if expected[0] == _JOINED:
            crc = 0
            for values in rows.values():
                crc = zlib.crc32(values.data, crc)
            return [] if crc == expected[-1] else ["something"]
        return [name for (name, v), c in zip(rows.items(), columns, strict=True) if column_crc(name, v) != expected[c]]

    def verify(self) -> Iterator[tuple[int, bool]]:
        """Yield the number of each trajectory, and whether its rows still have the checksum that was written."""
        for number in range(len(self.index)):
            yield number, not self._altered(number, range(len(self.columns)))


def cut_log(path: Path, num_trajectories: int) -> None:
    """Forget the trajectories of a shard from ``num_trajectories`` on; what nobody refers to stays in its columns."""
    log = path / _LOG
    lines = log.read_bytes().splitlines(keepends=True)
    write_atomic(log, b"".join(lines[:num_trajectories]))


def remove_leftovers(area: Path) -> None:
    """Delete what processes have left that were killed while evicting, or while making a shard a minute ago."""
    for folder in area.glob(f"{_GONE}*"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in area.glob("shard_*"):
        with contextlib.suppress(OSError):
            is_unmade = not (folder / _LOG).exists() and time.time() - folder.stat().st_mtime > _MAKING_S
            if is_unmade and not is_locked(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)


def _next_number(area: Path) -> int:
    """Return one more than the highest number of a shard there: a clock can go back, as it did where this was the time.

    Writers that make one at the same moment may get the same number; then their shards are of the same age.
    """
    found = (_NUMBERED.match(folder.name) for folder in area.glob("shard_*"))
    return max((int(f[1]) for f in found if f), default=-1) + 1


def column_file(name: str) -> str:
    """Return the file name of a column."""
    return quote(name, safe="") + ".bin"


def column_crc(name: str, rows: np.ndarray) -> int:
    """Return the CRC-32 of rows of a column; its name, dtype and the shape of a row count with the bytes."""
    return zlib.crc32(rows.data, zlib.crc32(f"{name} {rows.dtype} {rows.shape[1:]}".encode()))


def shards_of(path: Path) -> list[Path]:
    """Return the shards of a store that have a log, protected ones first, each area in the order of creation.

    Raises:
        DataError: If one has rows, but no log, which a writer makes before the first row, or they cannot be listed.
    """
    shards = []
    try:
        folders = [f for area in ("protected", "fifo") for f in sorted((path / area).glob("shard_*"))]
    except OSError as error:
        raise DataError(f"{path}: not readable ({system_says(error)})") from error
    for folder in folders:
        if (folder / _LOG).exists():
            shards.append(folder)
        elif any(_size(file) for file in folder.glob("*.bin")) and folder.exists() and not (folder / _LOG).exists():
            raise DataError(f"{folder}: its log {_LOG} is missing; delete the folder to do without it")
    return shards


def schema_of(path: Path) -> Schema | None:
    """Return the columns of the shards that a store has already."""
    for folder in shards_of(path):
        try:
            return ShardReader(folder).schema
        except ShardGoneError:
            continue
    return None


def _size(file: Path) -> int:
    with contextlib.suppress(OSError):  # evicted meanwhile
        return file.stat().st_size
    return 0


def _checked_line(commit: dict[str, Any]) -> bytes:
    """Return a line of the log, whose last entry is a checksum of what stands before it."""
    body = json.dumps(commit).encode()[:-1]
    return body + _CHECK + str(zlib.crc32(body)).encode() + b"}\n"


def _parse_commit(line: bytes, num_columns: int) -> tuple[Any, Any, tuple[Any, ...], list[int]]:
    """Return the task, the name, the numbers and the checksums of a line of the log.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: If it is damaged.
    """
    body, mark, check = line.rpartition(_CHECK)
    if mark and check != f"{zlib.crc32(body)}}}".encode():
        raise ValueError("its checksum differs")
    commit = parse_json(body + b"}" if mark else line)
    env_name, name = commit.pop("env_name"), commit.pop("name")
    entry = tuple(commit.pop(key) for key in INDEX_DTYPE.names or ())
    # Lines of earlier versions have no check, and one checksum for all columns.
    crcs = list(commit.pop("crcs")) if mark else [_JOINED] * (num_columns - 1) + [commit.pop("crc")]
    if len(crcs) != num_columns:
        raise ValueError(f"{len(crcs)} checksums for {num_columns} columns")
    if commit:
        raise ValueError(f"unknown entry {min(commit)!r}")
    return env_name, name, entry, crcs


def _read_schema(file: Path) -> Schema:
    try:
        raw: dict[str, Any] = parse_json(file.read_bytes())
        return {name: (_numeric(dtype), _row_shape(shape)) for name, (dtype, shape) in raw.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        if not file.parent.exists():
            raise ShardGoneError(file.parent) from error
        raise DataError(f"{file}: not the schema of a shard ({system_says(error)})") from error


def _numeric(dtype: Any) -> str:
    """Return the name of a dtype of plain numbers; bytes read as anything else would be addresses or text."""
    found = np.dtype(str(dtype))
    if found.kind not in "biuf" or found.shape or found.names:
        raise ValueError(f"dtype {dtype!r} is not one of numbers")
    return str(found)


def _row_shape(shape: Any) -> tuple[int, ...]:
    if not all(type(n) is int and 0 <= n < 2**40 for n in shape) or len(shape) > 32:
        raise ValueError(f"{shape} is not a shape")
    return tuple(shape)


def _sync_and_close(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()
