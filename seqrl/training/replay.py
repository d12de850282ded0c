"""The replay of a run: where collected trajectories go, and the source that learning draws them from."""

from __future__ import annotations

import numpy as np

from seqrl.configs.sections.run import ReplaySection, SourceSection
from seqrl.core.registry import RELABELERS
from seqrl.core.spaces import ActionCodec, obs_specs
from seqrl.core.types import Trajectory
from seqrl.data.mixture import Source
from seqrl.data.relabel import Relabeler
from seqrl.data.shard import trajectory_columns
from seqrl.data.store import Budget, Store, StoreInfo


def budget_of(section: ReplaySection) -> Budget:
    """Return the limits of a replay."""
    num_bytes = None if section.max_gb is None else int(section.max_gb * 1e9)
    return Budget(section.max_trajectories, section.max_transitions, num_bytes)


def build_relabeler(section: SourceSection) -> Relabeler | None:
    """Return what changes the trajectories of a source when they are drawn."""
    if section.relabel is None:
        return None
    chosen = section.relabel
    relabeler: Relabeler = RELABELERS.get(chosen.type)(**chosen.options())  # type: ignore[attr-defined]
    return relabeler


def replay_source(store: Store, section: ReplaySection) -> Source:
    """Return the source that follows a replay."""
    return Source(
        store,
        weight=section.weight,
        initial_weight=section.initial_weight,
        anneal_epochs=section.anneal_epochs,
        min_trajectories=section.min_trajectories,
        min_transitions=section.min_transitions,
        relabeler=build_relabeler(section),
        name="replay",
    )


def transition_bytes(info: StoreInfo) -> int:
    """Return the bytes that one transition takes on disk, without the log and without action masks in ``info``."""
    specs, codec = obs_specs(info.observation_space), ActionCodec(info.action_space)
    blank = Trajectory(
        obs={k: np.zeros((2, *s.shape), s.dtype) for k, s in specs.items()},
        actions=np.zeros((1, *codec.shape), codec.dtype),
        rewards=np.zeros(1, np.float32),
        terminated=np.zeros(1, bool),
        truncated=np.zeros(1, bool),
    )
    return sum(column[0].nbytes for column in trajectory_columns(blank).values())


def predicted_replay_bytes(info: StoreInfo, budget: Budget, num_transitions: int) -> int:
    """Return the bytes that the replay will take, of ``num_transitions`` that will be collected."""
    kept = min(num_transitions, budget.transitions or num_transitions)
    size = kept * transition_bytes(info)
    return size if budget.num_bytes is None else min(size, budget.num_bytes)
