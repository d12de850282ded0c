"""Which windows of which trajectories make a batch. Pure functions of their arguments and the generator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.registry import SAMPLERS
from seqrl.core.seeding import generator

if TYPE_CHECKING:
    from seqrl.data.store import Store

Padding = Literal["none", "left", "right", "both"]


@SAMPLERS.register("trajectory")
def one_vote_each(store: Store, numbers: np.ndarray) -> np.ndarray:
    """Return ``(N,)`` ones: every trajectory is drawn alike."""
    return np.ones(len(numbers), np.int64)


@SAMPLERS.register("transition")
def votes_by_length(store: Store, numbers: np.ndarray) -> np.ndarray:
    """Return ``(N,)`` lengths: every transition is drawn alike."""
    lengths: np.ndarray = store.length[numbers]
    return lengths


def count_votes(sampler: str, store: Store, numbers: np.ndarray) -> np.ndarray:
    """Return ``(N,)`` votes of the trajectories ``numbers`` of a store; a sampler of a plug-in is held to its contract.

    Raises:
        RegistryError: If no sampler has that name.
        DataError: If it gives votes that nothing can be drawn by.
    """
    votes = np.asarray(SAMPLERS.get(sampler)(store, numbers))
    if votes.shape != (len(numbers),) or not np.isfinite(votes).all() or (votes < 0).any():
        raise DataError(f"sampler {sampler!r} must give {len(numbers)} finite votes of at least 0, one per trajectory")
    if len(votes) and not votes.any():
        raise DataError(f"sampler {sampler!r} gives no trajectory of {store.label} a vote")
    return votes


def draw_trajectories(votes: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """Return ``(num,)`` positions in ``votes``, drawn with replacement and in proportion to them."""
    ends = np.cumsum(votes)
    marks = rng.random(num) * ends[-1] if votes.dtype.kind == "f" else rng.integers(0, ends[-1], num)
    return np.minimum(np.searchsorted(ends, marks, side="right"), len(votes) - 1)  # a product can round up to the end


def draw_windows(
    lengths: np.ndarray, window: int, padding: Padding, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and the number of real transitions of one window per trajectory.

    The start is uniform in ``0 .. N - T`` (``none``), ``-T + 1 .. N - T`` (``left``), ``0 .. N - 2`` (``right``) or
    ``-T + 1 .. N - 2`` (``both``); where T is 1, the last two end at ``N - 1``. The end ``start + T`` is fixed before
    a negative start becomes 0, so padding always trails. Trajectories with ``N <= T`` are taken whole.

    With ``both``, all transitions are drawn alike, but where T > 1 the last one comes (T - 1) / T as often.

    Args:
        lengths: ``(B,)`` N, transitions of each trajectory.
        window: T.
        padding: Which ends a window may overhang.
        rng: Source of randomness.
    """
    low = -window + 1 if padding in ("left", "both") else 0
    least = min(window, 2) if padding in ("right", "both") else window  # transitions of the last window
    whole = lengths <= window
    start = rng.integers(np.where(whole, 0, low), np.where(whole, 1, np.maximum(lengths - least + 1, 1)))
    end = np.minimum(start + window, lengths)
    start = np.maximum(start, 0)
    return start, end - start


def split_numbers(numbers: np.ndarray, valid_fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which numbers are for training and which are held out, at random and sorted.

    At least one is held out, and one kept, where there are two and ``valid_fraction`` is positive.
    """
    num_valid = round(valid_fraction * len(numbers))
    if valid_fraction and len(numbers) > 1:
        num_valid = min(max(num_valid, 1), len(numbers) - 1)
    shuffled = generator(seed, "split").permutation(numbers)
    return np.sort(shuffled[num_valid:]), np.sort(shuffled[:num_valid])
