"""Random windows from one or several stores, as training batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.seeding import generator
from seqrl.core.spaces import ActionCodec
from seqrl.core.tensors import SeqBatch, SeqInputs, legal_where_unused
from seqrl.data.sampling import Padding, draw_trajectories, draw_windows
from seqrl.data.store import Store


@dataclass(frozen=True)
class Source:
    """Trajectories of one store, and their share of every batch.

    Attributes:
        store: Where they lie.
        indices: Which trajectories of it.
        weight: Share among all sources, before normalisation.
    """

    store: Store
    indices: np.ndarray
    weight: float = 1.0


class SequenceDataset:
    """Draws batches of windows. Batch ``k`` of epoch ``e`` depends on (seed, rank, e, k) and the sources alone.

    Args:
        sources: At least one; all need the same columns.
        window: T, transitions per window.
        padding: Which ends of a trajectory a window may overhang.
        sample_by: One vote per trajectory, or per transition.
        keys: Observation entries to read; None reads all.

    Raises:
        DataError: If there is no trajectory, or the sources differ.
    """

    def __init__(
        self,
        sources: list[Source],
        window: int,
        *,
        padding: Padding = "none",
        sample_by: Literal["trajectory", "transition"] = "trajectory",
        keys: list[str] | None = None,
    ) -> None:
        self.sources = [s for s in sources if len(s.indices)]
        if not self.sources:
            raise DataError("there is no trajectory to sample from")
        first = self.sources[0].store
        for source in self.sources[1:]:
            if source.store.schema != first.schema or source.store.info.action_space != first.info.action_space:
                names = [s.info.source or str(s.path) for s in (source.store, first)]
                raise DataError(f"{names[0]} and {names[1]} hold different observations, actions or action masks")
        self._window = window
        self._padding = padding
        self._sample_by = sample_by
        if missing := sorted(set(keys or ()) - set(obs_names(first))):
            raise DataError(
                f"observation.keys: {', '.join(missing)} not in the data, which has {', '.join(obs_names(first))}"
            )
        unused = set() if keys is None else {f"obs/{k}" for k in obs_names(first)} - {f"obs/{k}" for k in keys}
        self._columns = [name for name in first.schema if name not in unused]
        self._codec = ActionCodec(first.info.action_space)
        self._lengths = [s.store.length[s.indices] for s in self.sources]
        weights = np.array([s.weight for s in self.sources])
        self._weights = weights / weights.sum()

    def use_categories(self, action_space: spaces.Space[Any]) -> None:
        """Encode discrete actions by the environment's space, which may have more of them than the data shows."""
        codec = ActionCodec(action_space)
        if codec.kind != "continuous":
            self._codec = codec

    @property
    def num_trajectories(self) -> int:
        """Trajectories of all sources."""
        return sum(len(s.indices) for s in self.sources)

    @property
    def num_transitions(self) -> int:
        """Transitions of all sources."""
        return int(sum(lengths.sum() for lengths in self._lengths))

    def batch(self, batch_size: int, *, seed: int, path: tuple[int | str, ...]) -> SeqBatch:
        """Return the batch that belongs to a seed and a path such as ``("train", rank, epoch, k)``."""
        rng = generator(seed, *path)
        counts = rng.multinomial(batch_size, self._weights)
        parts = [self._windows(i, int(n), rng) for i, n in enumerate(counts) if n]
        columns = {k: np.concatenate([p[k] for p in parts]) if len(parts) > 1 else parts[0][k] for k in parts[0]}
        return self._collate(columns)

    def _windows(self, source: int, num: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        lengths = self._lengths[source]
        chosen = draw_trajectories(lengths, num, self._sample_by, rng)
        start, real = draw_windows(lengths[chosen], self._window, self._padding, rng)
        offsets = start[:, None] + np.minimum(np.arange(self._window + 1), real[:, None])
        store = self.sources[source].store
        trajectories = self.sources[source].indices[chosen]
        columns = store.gather(trajectories, offsets, self._columns)
        columns["step"] = store.start_step[trajectories][:, None] + offsets
        columns["mask"] = np.arange(self._window) < real[:, None]
        return columns

    def _collate(self, columns: dict[str, np.ndarray]) -> SeqBatch:
        step = columns["step"]
        raw_action = columns["prev_action"]
        begins = step[:, 0] == 0
        raw_action[begins, 0] = raw_action[begins, 1]  # zeros, which need not be a legal action
        prev_action = self._codec.encode(raw_action)
        prev_action[begins, 0] = 0.0
        obs = {k[4:]: v for k, v in columns.items() if k.startswith("obs/")}
        action_mask = columns.get("action_mask")
        if action_mask is not None:
            action_mask = legal_where_unused(action_mask, columns["terminated"][:, 1:], columns["mask"])
        inputs = SeqInputs(
            obs={k: _tensor(v) for k, v in obs.items()},
            prev_action=torch.from_numpy(prev_action),
            prev_reward=torch.from_numpy(columns["prev_reward"]),
            step=torch.from_numpy(step),
            action_mask=None if action_mask is None else torch.from_numpy(action_mask),
            goal={k[5:]: _tensor(v) for k, v in columns.items() if k.startswith("goal/")},
        )
        return SeqBatch(
            inputs=inputs,
            actions=inputs.prev_action[:, 1:].contiguous(),
            rewards=inputs.prev_reward[:, 1:].contiguous(),
            terminated=torch.from_numpy(columns["terminated"][:, 1:]),
            truncated=torch.from_numpy(columns["truncated"][:, 1:]),
            mask=torch.from_numpy(columns["mask"]),
        )


def obs_names(store: Store) -> list[str]:
    """Return the names of a store's observation entries."""
    return [name[4:] for name in store.schema if name.startswith("obs/")]


def _tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor; float64 becomes float32, as policies compute in it."""
    return torch.from_numpy(array.astype(np.float32) if array.dtype == np.float64 else array)


def split_by_episode(
    store: Store, valid_fraction: float, seed: int, *, train_key: str | None = None, valid_key: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the training and the validation trajectories of a store.

    With a ``valid_key`` the two are those that the filters name; else ``valid_fraction`` of the training
    trajectories is held out at random (at least one, where there are two).

    Raises:
        DataError: If a filter key does not exist, or selects nothing.
    """
    train = _selected(store, train_key)
    if valid_key is not None:
        valid = _selected(store, valid_key)
        return np.setdiff1d(train, valid), valid
    num_valid = round(valid_fraction * len(train))
    if valid_fraction and len(train) > 1:
        num_valid = min(max(num_valid, 1), len(train) - 1)
    shuffled = generator(seed, "split").permutation(train)
    return np.sort(shuffled[num_valid:]), np.sort(shuffled[:num_valid])


def _selected(store: Store, key: str | None) -> np.ndarray:
    if key is None:
        return np.arange(len(store))
    if key not in store.info.filters:
        legal = ", ".join(sorted(store.info.filters)) or "none"
        raise DataError(f"{store.info.source or store.path}: no filter key {key!r}; it has: {legal}")
    names = set(store.info.filters[key])
    chosen = np.array([i for i, name in enumerate(store.names) if name in names], np.int64)
    if not len(chosen):
        raise DataError(f"{store.info.source or store.path}: filter key {key!r} selects no episode")
    return chosen
