"""One store among those that a dataset mixes: which trajectories of it, how often, and from when on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqrl.data.relabel import Relabeler
from seqrl.data.shard import ShardGoneError
from seqrl.data.store import Store


@dataclass(eq=False)
class Source:
    """Trajectories of one store, and their share of every batch.

    Attributes:
        store: Where they lie.
        indices: Which trajectories of it; None takes all, also those that come later.
        weight: Share among all sources that are ready, before normalisation.
        initial_weight: The weight at first; None is 0 where ``anneal_epochs`` is positive, else ``weight``.
        anneal_epochs: Epochs, from the one in which the source is first ready, until ``weight`` is reached.
        min_trajectories: Not ready before it has so many.
        min_transitions: Not ready before it has so many.
        relabeler: Changes what is drawn from it.
        name: In metrics.
        ready_since: Epoch in which it was first ready.
    """

    store: Store
    indices: np.ndarray | None = None
    weight: float = 1.0
    initial_weight: float | None = None
    anneal_epochs: int = 0
    min_trajectories: int = 1
    min_transitions: int = 0
    relabeler: Relabeler | None = None
    name: str = "data"
    ready_since: int | None = None

    @property
    def is_live(self) -> bool:
        """Whether the store may change."""
        return self.indices is None

    def refresh(self, epoch: int) -> None:
        """Take in what has come, and note when there was first enough."""
        if self.is_live:
            self.store.refresh()
        enough = self.num_trajectories >= self.min_trajectories and self.num_transitions >= self.min_transitions
        if self.ready_since is None and enough and self.num_trajectories:
            self.ready_since = epoch

    @property
    def numbers(self) -> np.ndarray:
        """Numbers of its trajectories in the store."""
        return np.arange(len(self.store)) if self.indices is None else self.indices

    @property
    def num_trajectories(self) -> int:
        """How many trajectories it has now."""
        return len(self.store) if self.indices is None else len(self.indices)

    @property
    def num_transitions(self) -> int:
        """How many transitions it has now."""
        return self.store.num_transitions if self.indices is None else int(self.store.length[self.indices].sum())

    def weight_at(self, epoch: int) -> float:
        """Return its weight in an epoch: 0 until it is ready (and while it is empty), then annealed."""
        if self.ready_since is None or not self.num_trajectories:
            return 0.0
        if self.anneal_epochs == 0:
            return self.weight
        first = 0.0 if self.initial_weight is None else self.initial_weight
        # The first epoch takes one step already: a lone source needs a positive weight.
        done = min((epoch - self.ready_since + 1) / self.anneal_epochs, 1.0)
        return first + (self.weight - first) * done


def without_shard(source: Source, numbers: np.ndarray, error: ShardGoneError) -> np.ndarray:
    """Return those of the numbers whose shard is not the one that has gone."""
    left: np.ndarray = numbers[source.store.shard[numbers] != source.store.shard_number(error.path)]
    return left
