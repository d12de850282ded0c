"""Random windows from one or several stores, as training batches."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch.utils.data import Dataset, WeightedRandomSampler

from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import DataError
from seqrl.core.seeding import generator
from seqrl.core.tensors import SeqBatch, SeqInputs, legal_where_unused
from seqrl.core.types import Trajectory
from seqrl.data.agreement import disagreement
from seqrl.data.dataset import TrainingDataset
from seqrl.data.extras import EXTRAS, RETURNS, check_whole, usable, window_returns
from seqrl.data.items import as_item, locate
from seqrl.data.mixture import Source, without_shard
from seqrl.data.relabel import Relabeler, checked_window, relabelled
from seqrl.data.sampling import Padding, count_votes, draw_trajectories, draw_windows
from seqrl.data.shard import ShardGoneError, trajectory_columns
from seqrl.data.store import Store, difference
from seqrl.data.store_info import StoreInfo, codec_for


class SequenceDataset(TrainingDataset, Dataset[dict[str, Any]]):
    """Draws batches of windows; also a torch ``Dataset`` of all windows, for a DataLoader.

    Batch ``k`` of epoch ``e`` depends on (seed, rank, e, k), and on the sources as they were at the last
    :meth:`refresh`.

    Args:
        sources: At least one that has trajectories or may get some; all need the same columns.
        window: T, transitions per window.
        padding: Which ends of a trajectory a window may overhang.
        sample_by: Sampler that gives each trajectory its votes: ``trajectory`` one, ``transition`` its length, or one
            of a plug-in.
        weigh_by: ``share``: a source is drawn by its weight; ``size``: by its weight times its votes, so that sources
            of equal weights are drawn as if they were one.
        keys: Observation entries to read; None reads all.
        goal_keys: Entries whose last value in a trajectory is its goal, at all inputs.
        burn_in: Inputs before each window that fill the memory: :attr:`SeqBatch.before`.

    Raises:
        DataError: If there is no trajectory and none can come, the sources differ, or one relabels with ``burn_in``.
    """

    def __init__(
        self,
        sources: list[Source],
        window: int,
        *,
        padding: Padding = "none",
        sample_by: str = "trajectory",
        weigh_by: Literal["share", "size"] = "share",
        keys: list[str] | None = None,
        goal_keys: Sequence[str] = (),
        burn_in: int = 0,
    ) -> None:
        self.sources = [s for s in sources if s.is_live or s.num_trajectories]
        if not self.sources:
            where = ", ".join(s.store.info.source or str(s.store.path) for s in sources) or "no data"
            raise DataError(
                f"no episode is left for training ({where}): check filter_key, valid_filter_key, max_episodes"
            )
        self.info: StoreInfo = self.sources[0].store.info
        self._window = window
        self._padding = padding
        self._sample_by = sample_by
        self._weigh_by = weigh_by
        self._keys = keys
        self._goal_keys = tuple(goal_keys)
        self._burn_in = burn_in
        if burn_in and (changed := [s.name for s in self.sources if s.relabeler is not None]):
            raise DataError(
                f"{changed[0]} is relabelled, and what came before a window would not be: set train.burn_in_steps to 0"
            )
        self._codec = action_codec(self.info.action_space)
        self._action_space: spaces.Space[Any] | None = None
        self._problem: DataError | None = None
        self._checked: list[Source] = []
        self._extras: frozenset[str] = frozenset()
        self._discount = 1.0
        self._attached: dict[str, list[np.ndarray]] = {}
        self.refresh(0)

    def refresh(self, epoch: int) -> None:
        """Take in what has come to the sources, and set their shares for this epoch."""
        for source in self.sources:
            source.refresh(epoch)
        for source in self.sources:
            if source.num_trajectories and source not in self._checked:
                self._check(source)
        self._numbers = [usable(s, self._extras) for s in self.sources]
        self._lengths = [s.store.length[n] for s, n in zip(self.sources, self._numbers, strict=True)]
        self._votes = [self._count_votes(s, n) for s, n in zip(self.sources, self._numbers, strict=True)]
        weights = [s.weight_at(epoch) if len(n) else 0.0 for s, n in zip(self.sources, self._numbers, strict=True)]
        self.weight, self._weights = sum(weights), self._shares(weights)

    def _count_votes(self, source: Source, numbers: np.ndarray) -> np.ndarray:
        return count_votes(self._sample_by, source.store, numbers)

    def _shares(self, weights: list[float]) -> np.ndarray:
        """Return the share of each source of these weights; zeros where all weights are zero."""
        votes = np.array(weights)
        if self._weigh_by == "size":
            votes *= [v.sum() for v in self._votes]
        shares: np.ndarray = votes / max(votes.sum(), 1e-300)
        return shares

    def _check(self, source: Source) -> None:
        """Compare the columns of a source, once it has any, with those before it."""
        info = source.store.info
        if self._checked:
            first = self._checked[0].store
            names = [f"{s.name} ({s.store.info.source or s.store.path})" for s in (source, self._checked[0])]
            if source.store.schema != first.schema:
                raise DataError(f"{names[0]} differs from {names[1]}: {difference(first.schema, source.store.schema)}")
            if (problem := disagreement(source, self._checked[0], self._action_space)) is not None:
                if self._action_space is not None or (info.spaces_are_known and first.info.spaces_are_known):
                    raise problem
                self._problem = problem  # unless the policy's space tells what they are
        else:
            entries = obs_names(source.store)
            for key, asked in (("keys", self._keys or ()), ("goal_keys", self._goal_keys)):
                if missing := sorted(set(asked) - set(entries)):
                    raise DataError(
                        f"observation.{key}: {', '.join(missing)} not in the data, which has {', '.join(entries)}"
                    )
            unused = set() if self._keys is None else {f"obs/{k}" for k in set(entries) - set(self._keys)}
            self._columns = [name for name in source.store.schema if name not in unused]
        self._checked.append(source)

    def use_categories(self, action_space: spaces.Space[Any]) -> None:
        """Encode actions by what the policy's space says beyond the data's: more categories, bounds and rotations."""
        self._action_space, self._codec = action_space, codec_for(self.info, action_space)
        self._problem = None
        for source in self._checked[1:]:
            if (problem := disagreement(source, self._checked[0], action_space)) is not None:
                raise problem

    def provide(self, needs: Collection[str], discount: float = 1.0) -> None:
        """Fill :attr:`SeqBatch.extras` with what an algorithm needs; returns count relabelled rewards."""
        self._extras = frozenset(needs) & EXTRAS
        self._discount = discount

    def attach(self, name: str, rows: Sequence[np.ndarray]) -> None:
        """Bring values of one's own with every batch, in :attr:`SeqBatch.extras`.

        Args:
            name: Of the extra, ``(B, L, ...)``.
            rows: For each source, one row for every input of its store, trajectory after trajectory.

        Raises:
            DataError: If the rows are not as many as the inputs, or a source is live or relabels.
        """
        for source, values in zip(self.sources, rows, strict=True):
            num = len(source.store) + source.store.num_transitions
            if source.is_live or source.relabeler is not None or len(values) != num:
                raise DataError(
                    f"{source.name}: {name} needs {num} rows for data that is fixed, not relabelled, got {len(values)}"
                )
        self._attached[name] = list(rows)

    @property
    def is_ready(self) -> bool:
        """Whether some source has enough."""
        return bool(self._weights.any())

    @property
    def num_trajectories(self) -> int:
        """Trajectories of all sources."""
        return sum(len(lengths) for lengths in self._lengths)

    @property
    def num_transitions(self) -> int:
        """Transitions of all sources."""
        return int(sum(lengths.sum() for lengths in self._lengths))

    def metrics(self) -> dict[str, float]:
        """Return the size and the share of each source, if there are several or one that changes."""
        if len(self.sources) == 1 and not self.sources[0].is_live:
            return {}
        out: dict[str, float] = {}
        for source, lengths, share in zip(self.sources, self._lengths, self._weights, strict=True):
            group = f"data/{source.name}"
            out |= {
                f"{group}/trajectories": float(len(lengths)),
                f"{group}/transitions": float(lengths.sum()),
                f"{group}/share": float(share),
            }
            if source.is_live:
                out[f"{group}/megabytes"] = source.store.num_bytes / 1e6
                out[f"{group}/evicted_transitions"] = float(source.store.num_evicted)
        return out

    def describe(self) -> dict[str, str]:
        """Return the size of the sources."""
        if len(self.sources) == 1:
            return super().describe()
        shares = self._shares([s.weight for s in self.sources])
        return {
            s.name: f"{s.num_trajectories} trajectories, {s.num_transitions} transitions, weight {share:.3g}"
            for s, share in zip(self.sources, shares, strict=True)
        }

    def state(self) -> dict[str, Any]:
        """Return since when each source is ready, and the size and checksums of those that may not change."""
        fixed = [s for s in self.sources if not s.is_live]
        crc = content = 0
        for source in fixed:
            for values in (source.numbers, source.store.length, source.store.total_reward):
                crc = zlib.crc32(np.ascontiguousarray(values).tobytes(), crc)
            content = zlib.crc32(source.store.checksums[source.numbers].tobytes(), content)
        return {
            "ready_since": [s.ready_since for s in self.sources],
            "fixed": [sum(s.num_trajectories for s in fixed), sum(s.num_transitions for s in fixed)],
            "checksum": crc,
            "content": content,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` gave.

        Raises:
            DataError: If the data that may not change has changed.
        """
        now = self.state()
        if len(now["ready_since"]) != len(state["ready_since"]) or now["fixed"] != state["fixed"]:
            raise DataError(
                f"the data (trajectories, transitions) was {state['fixed']} in {len(state['ready_since'])} sources, "
                f"and is {now['fixed']} in {len(self.sources)}"
            )
        if any(state.get(key, now[key]) != now[key] for key in ("checksum", "content")):  # earlier versions have none
            raise DataError(
                "the data has the same size as before, but other episodes are trained on, or they were changed, "
                "for instance by rewriting a filter key, observations or actions"
            )
        for source, ready_since in zip(self.sources, state["ready_since"], strict=True):
            source.ready_since = ready_since

    def batch(self, batch_size: int, *, seed: int, path: tuple[int | str, ...]) -> SeqBatch:
        """Return the batch that belongs to a seed and a path such as ``("train", rank, epoch, k)``."""
        rng = generator(seed, *path)
        counts = rng.multinomial(batch_size, self._weights)
        parts = [self._windows(i, int(n), rng) for i, n in enumerate(counts) if n]
        if any("rewards" in p for p in parts):
            for part in parts:
                part.setdefault("rewards", part["prev_reward"][:, 1:])
        columns = {k: np.concatenate([p[k] for p in parts]) if len(parts) > 1 else parts[0][k] for k in parts[0]}
        return self._collate(columns)

    def _windows(self, source: int, num: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return ``num`` windows; what another process has evicted meanwhile is drawn again."""
        while True:
            try:
                return self._draw(source, num, rng)
            except ShardGoneError as error:
                left = without_shard(self.sources[source], self._numbers[source], error)
                if not len(left) and self.sources[source].is_live:
                    self.sources[source].store.refresh()  # others collect faster than this process learns
                    left = usable(self.sources[source], self._extras)
                if not len(left):
                    raise DataError(f"every trajectory of {self.sources[source].name} was evicted meanwhile") from error
                self._numbers[source] = left
                self._lengths[source] = self.sources[source].store.length[left]
                self._votes[source] = self._count_votes(self.sources[source], left)

    def _draw(self, source: int, num: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        lengths, store = self._lengths[source], self.sources[source].store
        relabeler = self.sources[source].relabeler
        chosen = draw_trajectories(self._votes[source], num, rng)
        trajectories = self._numbers[source][chosen]
        if relabeler is not None and relabeler.needs == "trajectory":
            one_by_one = [self._relabelled(store, int(n), relabeler, rng) for n in trajectories]
            return {k: np.stack([columns[k] for columns in one_by_one]) for k in one_by_one[0]}
        start, real = draw_windows(lengths[chosen], self._window, self._padding, rng)
        return self._read(source, trajectories, start, real, rng)

    def _read(
        self, source: int, trajectories: np.ndarray, start: np.ndarray, real: np.ndarray, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Return the windows of these trajectories that begin at these inputs, with so many real transitions."""
        store, relabeler = self.sources[source].store, self.sources[source].relabeler
        lengths = store.length[trajectories]
        offsets = start[:, None] + np.minimum(np.arange(self._window + 1), real[:, None])
        if relabeler is not None and self._extras & RETURNS:
            raise DataError(
                f"{self.sources[source].name}: its relabeler changes windows, so the return of a whole trajectory is "
                "not known; use one that changes trajectories, or an algorithm that needs no returns"
            )
        rows = np.concatenate([self._rows_before(start, lengths), offsets], axis=1)
        columns = store.gather(trajectories, rows, self._columns if relabeler is None else None)
        columns["step"] = store.start_step[trajectories][:, None] + rows
        columns["mask"] = np.arange(self._window) < real[:, None]
        if relabeler is not None:
            relabelled = checked_window(type(relabeler).__name__, columns, relabeler.relabel_window(dict(columns), rng))
            columns = {k: v for k, v in relabelled.items() if k in self._columns or k not in store.schema}
        if self._goal_keys:
            ends = store.gather(trajectories, lengths[:, None], [f"obs/{k}" for k in self._goal_keys])
            columns |= self._goals({k: v[:, 0] for k, v in ends.items()}, len(trajectories))
        first_rows = np.concatenate([[0], np.cumsum(store.length + 1)])[trajectories][:, None] if self._attached else 0
        attached = {f"extras/{k}": rows[source][first_rows + offsets] for k, rows in self._attached.items()}
        return columns | self._extra_columns(store, trajectories, lengths, offsets) | attached

    def _rows_before(self, start: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return which inputs ``(B, N)`` come before windows; any others of the trajectory where fewer than N do."""
        at = np.arange(self._burn_in)
        has_before = (start >= self._burn_in)[:, None]
        rows = np.where(has_before, start[:, None] - self._burn_in + at, start[:, None] + 1 + at)
        return np.asarray(np.minimum(rows, lengths[:, None]))

    # ------------------------------------------------------------------------- as a torch.utils.data.Dataset
    def __len__(self) -> int:
        """Return how many windows there are.

        With ``padding`` ``right`` or ``both`` one begins at every transition; else a trajectory of N transitions has
        N - T + 1, at least one.
        """
        return int(sum(counts.sum() for counts in self._window_counts()))

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return one window in robomimic's form, for a DataLoader, whose batches ``process_batch_for_training`` takes.

        Returns:
            See :func:`~seqrl.data.items.as_item`.

        Raises:
            IndexError: If there are fewer windows.
            DataError: If its source relabels, which takes random numbers: draw a :meth:`batch`.
        """
        counts = self._window_counts()
        source, trajectory, start = locate(index, counts)
        if self.sources[source].relabeler is not None:
            raise DataError(f"{self.sources[source].name} relabels what is drawn: use SequenceDataset.batch")
        length = int(self._lengths[source][trajectory])
        number, real = self._numbers[source][[trajectory]], np.array([min(self._window, length - start)])
        return as_item(self._collate(self._read(source, number, np.array([start]), real, np.random.default_rng(0))))

    def get_dataset_sampler(self) -> WeightedRandomSampler | None:
        """Return what draws windows with the shares of the sources and votes of :meth:`batch`; None if all are alike.

        For ``DataLoader(dataset, sampler=sampler, shuffle=sampler is None)``.
        """
        counts = self._window_counts()
        weights = [
            np.repeat(share * v / max(v.sum(), 1e-300) / c, c)
            for share, v, c in zip(self._weights, self._votes, counts, strict=True)
        ]
        weight = np.concatenate(weights)
        if np.allclose(weight, weight[0]):
            return None
        return WeightedRandomSampler(weight.tolist(), len(weight), replacement=True)

    def get_trajectory_at_index(self, index: int) -> dict[str, Any]:
        """Return a whole trajectory.

        Args:
            index: Of the trajectory, counted over the sources.

        Returns:
            The whole of it in the form of :meth:`__getitem__`, and its name in the data as ``ep``.

        Raises:
            IndexError: If there are fewer trajectories.
        """
        source, number, _ = locate(index, [np.ones(len(x), np.int64) for x in self._lengths])
        store, chosen = self.sources[source].store, int(self._numbers[source][number])
        whole = SequenceDataset(
            [Source(store, indices=np.array([chosen]))],
            int(store.length[chosen]),
            keys=self._keys,
            goal_keys=self._goal_keys,
        )
        whole._codec, whole._extras, whole._discount = self._codec, self._extras, self._discount
        return {**whole[0], "ep": store.names[chosen]}

    def _window_counts(self) -> list[np.ndarray]:
        """Return the number of windows of each trajectory of each source."""
        if self._padding in ("right", "both"):
            return self._lengths
        return [np.maximum(lengths - self._window + 1, 1) for lengths in self._lengths]

    def _extra_columns(
        self, store: Store, trajectories: np.ndarray, lengths: np.ndarray, offsets: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return what algorithms need beside the columns, as ``extras/...``."""
        found: dict[str, np.ndarray] = {}
        if "next_action" in self._extras:
            after = np.minimum(offsets + 1, lengths[:, None])
            found["next_action"] = store.gather(trajectories, after, ["prev_action"])["prev_action"]
            found["has_next_action"] = offsets < lengths[:, None]  # nothing is done after the last input
        if self._extras & RETURNS:
            rows = np.minimum(np.arange(int(lengths.max()) + 1), lengths[:, None])
            whole = store.gather(trajectories, rows, ["prev_reward", "terminated", "truncated"])
            ended = whole["terminated"][:, -1] | whole["truncated"][:, -1]
            check_whole(store.start_step[trajectories], ended, store.info.source or str(store.path))
            rewards = whole["prev_reward"][:, 1:]
            over = whole["terminated"][:, -1]
            found |= window_returns(self._extras, rewards, lengths, offsets, self._discount, over)
        return {f"extras/{k}": v for k, v in found.items()}

    def _goals(self, ends: Mapping[str, np.ndarray], *lead: int) -> dict[str, np.ndarray]:
        """Return the last observations ``(*lead, ...)`` of trajectories as goals of all inputs of their windows."""
        goals = {f"goal/{k}": ends[f"obs/{k}"] for k in self._goal_keys}
        axis, num = len(lead), self._burn_in + self._window + 1
        return {k: np.repeat(np.expand_dims(v, axis), num, axis) for k, v in goals.items()}

    def _relabelled(
        self, store: Store, number: int, relabeler: Relabeler, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Return one window of a trajectory that was changed as a whole."""
        trajectory = relabelled(relabeler, store.trajectory(number), rng)
        start, real = draw_windows(np.array([len(trajectory)]), self._window, self._padding, rng)
        offsets = start[0] + np.minimum(np.arange(self._window + 1), real[0])
        rows = trajectory_columns(trajectory)
        goals = self._goals({k: v[-1] for k, v in rows.items()}) if self._goal_keys else {}
        return {
            **{k: v[offsets] for k, v in rows.items() if k in self._columns},
            **goals,
            **self._extras_of(trajectory, rows, offsets),
            "step": trajectory.start_step + offsets,
            "mask": np.arange(self._window) < real[0],
        }

    def _extras_of(
        self, trajectory: Trajectory, rows: Mapping[str, np.ndarray], offsets: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the same for a window of one trajectory that was changed as a whole."""
        length, found = np.array([len(trajectory)]), {}
        if "next_action" in self._extras:
            found["next_action"] = rows["prev_action"][np.minimum(offsets + 1, length[0])]
            found["has_next_action"] = offsets < length[0]
        if self._extras & RETURNS:
            ended = np.array([rows["terminated"][-1] | rows["truncated"][-1]])
            check_whole(np.array([trajectory.start_step]), ended, trajectory.env_name or "a relabelled trajectory")
            given = (trajectory.rewards[None], length, offsets[None], self._discount, rows["terminated"][-1:])
            returns = window_returns(self._extras, *given)
            found |= {k: v[0] for k, v in returns.items()}
        return {f"extras/{k}": v for k, v in found.items()}

    def _collated_extras(self, columns: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
        found = {k[7:]: v for k, v in columns.items() if k.startswith("extras/")}
        if "next_action" in found:
            has_next = found["has_next_action"]
            found["next_action"] = np.where(has_next[..., None], self._codec.encode(found["next_action"]), 0.0)
            found = {k: v.astype(np.float32) for k, v in found.items()}
        return {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in found.items()}

    def _collate(self, columns: dict[str, np.ndarray]) -> SeqBatch:
        if self._problem is not None:
            raise self._problem
        raw_action, begins = columns["prev_action"], columns["step"] == 0
        raw_action[begins] = np.broadcast_to(raw_action[:, -1:], raw_action.shape)[begins]  # zeros need not be legal
        prev_action = self._codec.encode(raw_action)
        prev_action[begins] = 0.0
        inputs = SeqInputs(
            obs={k[4:]: _tensor(v) for k, v in columns.items() if k.startswith("obs/")},
            prev_action=torch.from_numpy(prev_action),
            prev_reward=torch.from_numpy(columns["prev_reward"]),
            step=torch.from_numpy(columns["step"]),
            goal={k[5:]: _tensor(v) for k, v in columns.items() if k.startswith("goal/")},
        )
        own = self._burn_in + 1  # the first input after a transition of the window
        action_mask = columns.get("action_mask")
        if action_mask is not None:
            legal = legal_where_unused(action_mask[:, own - 1 :], columns["terminated"][:, own:], columns["mask"])
        before = inputs.first(self._burn_in) if self._burn_in else None
        inputs = inputs.map(lambda x: x[:, own - 1 :]) if self._burn_in else inputs
        return SeqBatch(
            inputs=inputs if action_mask is None else replace(inputs, action_mask=torch.from_numpy(legal)),
            actions=inputs.prev_action[:, 1:].contiguous(),
            rewards=torch.from_numpy(np.ascontiguousarray(columns.get("rewards", columns["prev_reward"][:, own:]))),
            terminated=torch.from_numpy(columns["terminated"][:, own:]),
            truncated=torch.from_numpy(columns["truncated"][:, own:]),
            mask=torch.from_numpy(columns["mask"]),
            extras=self._collated_extras(columns),
            before=before,
        )


def obs_names(store: Store) -> list[str]:
    """Return the names of a store's observation entries."""
    return [name[4:] for name in store.schema if name.startswith("obs/")]


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor; float64 becomes float32, as policies compute in it."""
    return torch.from_numpy(array.astype(np.float32) if array.dtype == np.float64 else array)
