"""The store: a folder of shards that any number of processes read while others append."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import DataError
from seqrl.core.files import space_left, system_says, write_json
from seqrl.core.spaces import MASK_KEY, ActionCodec, space_to_json
from seqrl.core.strict_json import parse_json, sealed, unsealed
from seqrl.core.types import Trajectory
from seqrl.data.file_map import most_maps, num_maps
from seqrl.data.shard import (
    INDEX_DTYPE,
    Schema,
    ShardGoneError,
    ShardReader,
    ShardWriter,
    cut_log,
    remove_leftovers,
    schema_of,
    shards_of,
    trajectory_columns,
)
from seqrl.data.store_info import StoreInfo

SHARD_BYTES = 64 * 2**20
SHARDS_PER_BUDGET = 16
Area = Literal["protected", "fifo"]
_FILE = "store.json"


@dataclass(frozen=True)
class Budget:
    """How much ``fifo`` may hold; None is no limit.

    Attributes:
        trajectories: At most so many.
        transitions: At most so many.
        num_bytes: At most so many bytes on disk.
    """

    trajectories: int | None = None
    transitions: int | None = None
    num_bytes: int | None = None

    def is_exceeded_by(self, trajectories: int, transitions: int, num_bytes: int) -> bool:
        """Tell whether any of the three is above its limit."""
        pairs = ((trajectories, self.trajectories), (transitions, self.transitions), (num_bytes, self.num_bytes))
        return any(limit is not None and value > limit for value, limit in pairs)

    def of_one_shard(self) -> Budget:
        """Return when a shard is full: eviction takes whole shards, so they are small against the budget."""

        def share(limit: int | None) -> int | None:
            return None if limit is None else max(1, limit // SHARDS_PER_BUDGET)

        num_bytes = share(self.num_bytes)
        return Budget(share(self.trajectories), share(self.transitions), min(SHARD_BYTES, num_bytes or SHARD_BYTES))


def _read_info(path: Path) -> StoreInfo:
    """Return the info of a store.

    Raises:
        DataError: If there is none, or it is not what was written.
    """
    try:
        value = parse_json((path / _FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a seqrl store ({system_says(error)})") from error
    info = StoreInfo.from_json(value, str(path / _FILE))
    try:
        unsealed(value)
    except ValueError as error:
        raise DataError(f"{path / _FILE}: {error}") from error
    return info


class StoreWriter:
    """Appends trajectories to a store, in shards of its own.

    Args:
        path: Folder of the store; made if absent.
        info: Written if the store is new.
        area: ``protected`` (never deleted) or ``fifo``.
        budget: Of ``fifo``; the smaller, the smaller are the shards.
        on_shard: Told of each new shard, before anything is in it.
    """

    def __init__(
        self,
        path: Path,
        info: StoreInfo,
        area: Area = "protected",
        budget: Budget | None = None,
        on_shard: Callable[[Path], None] = lambda shard: None,
    ) -> None:
        self._area = path / area
        self._limit = (budget or Budget()).of_one_shard()
        self._shard: ShardWriter | None = None
        self.num_shards = 0
        self._on_shard = on_shard
        self._schema: Schema | None = schema_of(path)
        self._codec: ActionCodec | None = None
        self._action_space = info.action_space
        self._area.mkdir(parents=True, exist_ok=True)
        if not (path / _FILE).exists():
            write_json(path / _FILE, sealed(info.to_json()))
        else:
            _check_same_spaces(path, info)

    def append(self, trajectory: Trajectory, name: str = "") -> None:
        """Add one trajectory; ``name`` lets filters select it.

        An observation entry ``action_mask`` of discrete actions is also taken as the trajectory's action mask.

        Raises:
            DataError: If it is inconsistent, an action is not in the space or illegal by its mask, its columns differ
                from those before it, or it cannot be written (the disk is full). What was added before stays readable.
        """
        columns = trajectory_columns(self._with_mask(trajectory.check(), name))
        schema: Schema = {k: (str(v.dtype), v.shape[1:]) for k, v in columns.items()}
        if self._schema is None:
            self._schema = schema
        elif schema != self._schema:
            raise DataError(f"trajectory {name!r} differs from those before it: {difference(self._schema, schema)}")
        try:
            self._write(trajectory, columns, schema, name)
        except OSError as error:
            raise DataError(f"{self._area} cannot take the next trajectory: {space_left(self._area, error)}") from error

    def _write(self, trajectory: Trajectory, columns: dict[str, np.ndarray], schema: Schema, name: str) -> None:
        shard = self._shard
        if shard is None or self._is_full(shard):
            self.close()
            shard = self._shard = ShardWriter(self._area, schema)
            self.num_shards += 1
            self._on_shard(shard.path)
        if not shard.is_there:
            shard.abandon()
            self._shard = None
            raise DataError(f"{shard.path} was deleted while it was being written; its contents are lost")
        try:
            shard.append(trajectory, columns, name)
        except BaseException:
            shard.abandon()  # its columns may be of different lengths now; what is committed stays
            self._shard = None
            raise

    def _is_full(self, shard: ShardWriter) -> bool:
        limit = self._limit
        pairs = (
            (shard.num_trajectories, limit.trajectories),
            (shard.num_transitions, limit.transitions),
            (shard.num_bytes, limit.num_bytes),
        )
        return any(most is not None and value >= most for value, most in pairs)

    def _with_mask(self, trajectory: Trajectory, name: str) -> Trajectory:
        """Return the trajectory with its action mask in policy form; its actions are in the space, and legal."""
        if self._codec is None:
            self._codec = action_codec(self._action_space)
        codec, where = self._codec, f"trajectory {name!r} of {trajectory.env_name or 'unknown environment'}"
        try:
            codec.check(trajectory.actions)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
        mask = trajectory.action_mask
        if mask is None:
            mask = trajectory.obs.get(MASK_KEY)
        if mask is None or (codec.kind == "continuous" and trajectory.action_mask is None):
            return trajectory
        legal = codec.legal(mask, len(trajectory) + 1)
        stuck = codec.stuck(legal)
        legal[1:][stuck[1:] & trajectory.truncated] = True  # a limit may come where no move is left
        stuck[1:] &= ~(trajectory.terminated | trajectory.truncated)
        if stuck.any():
            raise DataError(f"{where}: action_mask allows no action at input {np.argmax(stuck)}, not terminal")
        illegal = ((codec.encode(trajectory.actions) > 0.5) & ~legal[:-1]).any(-1)
        if illegal.any():
            raise DataError(f"{where}: the action at step {np.argmax(illegal)} is forbidden by its action_mask")
        return replace(trajectory, action_mask=legal)

    def close(self) -> None:
        """Make what was written durable."""
        if self._shard is not None:
            self._shard.close()
            self._shard = None

    def __enter__(self) -> StoreWriter:
        """Return self."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()


class Store:
    """Reads a store as it was at the last :meth:`refresh`; trajectories are numbered from the oldest on.

    Args:
        path: Folder of the store.

    Attributes:
        label: What messages call it: the file that it was read from, or its folder.
        info: What holds for all trajectories.
        shard, row, length, start_step, total_reward, env_names, names: One entry per trajectory.
        num_evicted: Transitions that have vanished between two refreshes of this reader.

    Raises:
        DataError: If the folder is not a store, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.label = path, str(path)
        self.info = _read_info(path)
        self._shards: list[ShardReader] = []
        self.num_evicted = 0
        self._most_maps = most_maps()
        self.refresh()

    def refresh(self) -> None:
        """Take in what has been committed since, and leave out what has been evicted."""
        known = {s.path: s for s in self._shards}
        present: list[ShardReader] = []
        for folder in shards_of(self.path):
            try:
                shard = known.get(folder) or ShardReader(folder)
                shard.refresh()
            except ShardGoneError:
                continue
            present.append(shard)
        kept = {s.path for s in present}
        self.num_evicted += sum(int(s.index["length"].sum()) for p, s in known.items() if p not in kept)
        self._shards = present
        self._check_schemas()
        index = np.concatenate([np.zeros(0, INDEX_DTYPE), *(s.index for s in present)])
        self._verified: dict[tuple[str, ...], np.ndarray] = {}
        self.shard = np.repeat(np.arange(len(present)), [len(s.index) for s in present])
        self.row, self.length, self.start_step, self.total_reward = (
            np.ascontiguousarray(index[name]) for name in ("row", "length", "start_step", "total_reward")
        )
        self.env_names = [name for s in present for name in s.env_names]
        self.names = [name for s in present for name in s.names]

    def evict(self, budget: Budget) -> int:
        """Delete the oldest shards of ``fifo`` until the rest is within the budget; return how many.

        Shards with a living writer stay, so the store may exceed the budget by one shard per writer. Call
        :meth:`refresh` afterwards.
        """
        fifo = [s for s in self._shards if s.path.parent.name == "fifo"]
        total = np.array([(len(s.index), s.index["length"].sum(), s.num_bytes) for s in fifo], np.int64).reshape(-1, 3)
        held = total.sum(0)
        num_deleted = 0
        for shard, size in zip(fifo, total, strict=True):
            if not budget.is_exceeded_by(*held.tolist()):
                break
            if not shard.is_being_written:
                shard.delete()
                held -= size
                num_deleted += 1
        remove_leftovers(self.path / "fifo")
        return num_deleted

    def shard_number(self, path: Path) -> int:
        """Return the number by which :attr:`shard` names a shard."""
        return next(i for i, s in enumerate(self._shards) if s.path == path)

    def watermark(self) -> dict[str, int]:
        """Return the name of each shard of ``fifo`` and how many trajectories of it this reader sees."""
        return {s.path.name: len(s.index) for s in self._shards if s.path.parent.name == "fifo"}

    def cut(self, watermark: Mapping[str, int]) -> int:
        """Forget what was added to ``fifo`` after a :meth:`watermark`, and return how many trajectories that were.

        Nobody else may write to the store meanwhile.
        """
        num_forgotten = 0
        self.refresh()
        for shard in self._shards:
            if shard.path.parent.name == "fifo":
                kept = watermark.get(shard.path.name, 0)
                num_forgotten += max(0, len(shard.index) - kept)
                if kept == 0:
                    shard.delete()
                elif kept < len(shard.index):
                    cut_log(shard.path, kept)
        self.reopen()
        return num_forgotten

    def reopen(self) -> None:
        """Read everything again, because somebody else has called :meth:`cut`."""
        self._shards = []
        self.refresh()

    def _check_schemas(self) -> None:
        for shard in self._shards[1:]:
            if shard.schema != self._shards[0].schema:
                raise DataError(f"{shard.path}: other columns: {difference(self._shards[0].schema, shard.schema)}")

    def __len__(self) -> int:
        """Return the number of trajectories."""
        return len(self.length)

    @property
    def num_transitions(self) -> int:
        """Transitions of all trajectories together."""
        return int(self.length.sum())

    @property
    def num_bytes(self) -> int:
        """Bytes of all committed rows and their logs."""
        return sum(s.num_bytes for s in self._shards)

    @property
    def schema(self) -> Schema:
        """Column name -> (dtype, shape of one row); empty without data."""
        return self._shards[0].schema if self._shards else {}

    def gather(
        self, trajectories: np.ndarray, offsets: np.ndarray, columns: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Return column name -> ``(B, L, ...)``: one window of L rows per trajectory.

        Args:
            trajectories: ``(B,)`` numbers of trajectories.
            offsets: ``(B, L)`` rows within each trajectory, in ``[0, length]``.
            columns: Which; None gathers all.

        Raises:
            DataError: If a trajectory is not what was written. Each is compared with its checksums when it is first
                read, as far as its columns are.
            ShardGoneError: If one was evicted.
        """
        shards = self.shard[trajectories]
        rows = self.row[trajectories][:, None] + offsets
        present = np.unique(shards)
        self._limit_maps()
        schema = {name: self.schema[name] for name in columns or self.schema}
        self._verify_new(trajectories, tuple(schema))
        if len(present) == 1:
            return {name: np.take(self._shards[present[0]].column(name), rows, axis=0) for name in schema}
        out = {n: np.empty((*rows.shape, *shape), dtype) for n, (dtype, shape) in schema.items()}
        for shard in present:
            chosen = np.flatnonzero(shards == shard)
            for name, target in out.items():
                target[chosen] = np.take(self._shards[shard].column(name), rows[chosen], axis=0)
        return out

    def _limit_maps(self) -> None:
        """Let all maps go when there are too many: mapping those in use anew costs less than keeping an order."""
        if num_maps() > self._most_maps:
            for shard in self._shards:
                shard.let_go()

    @property
    def checksums(self) -> np.ndarray:
        """``(N, C)`` int64, of the rows of each trajectory, columns in alphabetical order."""
        return np.concatenate([shard.crcs for shard in self._shards])

    def _verify_new(self, trajectories: np.ndarray, names: tuple[str, ...]) -> None:
        """Compare with their checksums what has not been compared before."""
        is_known = self._verified.get(names)
        if is_known is not None and is_known[trajectories].all():
            return
        columns = [sorted(self.schema).index(name) for name in names]
        if is_known is None:
            is_known = self._verified[names] = np.concatenate([s.is_verified[:, columns].all(1) for s in self._shards])
        for number in np.unique(trajectories[~is_known[trajectories]]):
            shard = self.shard[number]
            self._shards[shard].check(int(number - np.searchsorted(self.shard, shard)), columns)
            is_known[number] = True

    def trajectory(self, number: int) -> Trajectory:
        """Return one whole trajectory."""
        index = np.array([number])
        columns = self.gather(index, np.arange(self.length[number] + 1)[None])
        one = {k: v[0] for k, v in columns.items()}
        return Trajectory(
            obs={k[4:]: v for k, v in one.items() if k.startswith("obs/")},
            goal={k[5:]: v for k, v in one.items() if k.startswith("goal/")},
            actions=one["prev_action"][1:],
            rewards=one["prev_reward"][1:],
            terminated=one["terminated"][1:],
            truncated=one["truncated"][1:],
            env_name=self.env_names[number],
            start_step=int(self.start_step[number]),
            prev_action=one["prev_action"][0],
            prev_reward=float(one["prev_reward"][0]),
            action_mask=one.get("action_mask"),
        )

    def name_of(self, number: int) -> str:
        """Return the name of a trajectory; one made of its number where it has none."""
        return self.names[number] or f"episode_{number}"

    def trajectories(self) -> Iterator[Trajectory]:
        """Yield every trajectory."""
        for number in range(len(self)):
            yield self.trajectory(number)

    def verify(self) -> list[str]:
        """Return a line for every trajectory whose bytes are not those that were written."""
        problems = []
        for shard in self._shards:
            for number, is_intact in shard.verify():
                if not is_intact:
                    row, name = shard.index["row"][number], shard.names[number] or shard.env_names[number]
                    problems.append(f"{shard.path.name}: trajectory at row {row} ({name}) is altered")
            self._limit_maps()
        return problems


def _check_same_spaces(path: Path, info: StoreInfo) -> None:
    """Refuse to add data of other spaces to a store that is there."""
    there = _read_info(path)
    for what in ("action_space", "observation_space"):
        old, new = getattr(there, what), getattr(info, what)
        if space_to_json(old) != space_to_json(new):
            raise DataError(f"{path} holds an {what} of {old}, so data with {new} cannot be added; use another store")
    if there.has_next_obs and not info.has_next_obs:
        raise DataError(f"{path} holds true last observations, which the new data lacks; use another store")


def difference(expected: Schema, got: Schema) -> str:
    """Return the columns in which two schemas differ, with dtype and shape of a row."""
    names = sorted(n for n in expected.keys() | got.keys() if expected.get(n) != got.get(n))
    return ", ".join(f"{n} is {got.get(n, 'absent')}, not {expected.get(n, 'absent')}" for n in names)
