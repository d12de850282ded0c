"""Windows one by one, in robomimic's form: what a torch DataLoader makes batches of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqrl.core.tensors import SeqBatch


def as_item(batch: SeqBatch) -> dict[str, Any]:
    """Return the first window of a batch as the dict of which a DataLoader makes batches.

    Returns:
        ``obs`` and ``next_obs`` (name -> ``(T, ...)``), ``actions`` ``(T, A)`` as the policy knows them, ``rewards``,
        ``dones`` (terminations), ``truncated`` and ``pad_mask`` (True where real) ``(T,)``, and of the first input
        ``step``, ``prev_action`` ``(A,)`` and ``prev_reward``; ``action_mask`` ``(T + 1, A)``, ``goal`` and ``extras``
        where the data has them. :meth:`SeqBatch.from_mapping` reads batches of it.
    """
    whole = batch.to_mapping() | {"pad_mask": batch.mask}
    return {k: {n: x[0] for n, x in v.items()} if isinstance(v, dict) else v[0] for k, v in whole.items()}


def locate(index: int, counts: Sequence[np.ndarray]) -> tuple[int, int, int]:
    """Return the source, the trajectory and the place within it of entry ``index``.

    Args:
        index: From 0, or from -1 backwards.
        counts: For each source, how many entries each of its trajectories has.

    Raises:
        IndexError: If there are not so many.
    """
    total = int(sum(c.sum() for c in counts))
    place = index + total if index < 0 else index
    if not 0 <= place < total:
        raise IndexError(f"index {index} is out of range: there are {total} items")
    for source, count in enumerate(counts):
        if place < count.sum():
            ends = np.cumsum(count)
            trajectory = int(np.searchsorted(ends, place, side="right"))
            return source, trajectory, place - int(ends[trajectory] - count[trajectory])
        place -= int(count.sum())
    raise AssertionError("the counts add up to the total")
