"""Mean, deviation and range of columns of the training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.types import ColumnStats
from seqrl.data.mixture import Source

BLOCK_ROWS = 1 << 16


def column_stats(
    sources: Sequence[Source], column: str, *, convert: Callable[[np.ndarray], np.ndarray] | None = None
) -> ColumnStats:
    """Return the statistics of one column over all transitions of the sources, whatever their weights.

    Of observations these are the inputs that were acted on, without an episode's last one; of ``prev_action`` and
    ``prev_reward`` the actions and rewards themselves. Blocks are combined exactly (Chan et al., 1979), so memory is
    bounded.

    Args:
        sources: Training trajectories.
        column: Of the store, such as ``obs/state`` or ``prev_action``.
        convert: From rows ``(N, ...)`` of the store to features ``(N, ...)``.

    Raises:
        DataError: If there is no transition.
    """
    count, mean, square = 0, np.zeros(()), np.zeros(())
    low, high = np.array(np.inf), np.array(-np.inf)
    for rows in _blocks(sources, column):
        block = (rows if convert is None else convert(rows)).astype(np.float64)
        num, block_mean = len(block), block.mean(0)
        delta = block_mean - mean
        square = square + np.square(block - block_mean).sum(0) + np.square(delta) * count * num / (count + num)
        mean = mean + delta * num / (count + num)
        low, high = np.minimum(low, block.min(0)), np.maximum(high, block.max(0))
        count += num
    if not count:
        raise DataError(f"there is no data to take the statistics of {column} from")
    return ColumnStats(mean, np.sqrt(square / count), low, high)


def _blocks(sources: Sequence[Source], column: str) -> Iterator[np.ndarray]:
    """Yield ``(N, ...)`` rows, one per transition."""
    shift = int(column in ("prev_action", "prev_reward"))  # row t holds those before input t
    for source in sources:
        numbers = source.numbers
        lengths = source.store.length[numbers]
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, BLOCK_ROWS):
            row = np.arange(first, min(first + BLOCK_ROWS, total))
            place = np.searchsorted(ends, row, side="right")
            offset = row - (ends[place] - lengths[place]) + shift
            yield source.store.gather(numbers[place], offset[:, None], [column])[column][:, 0]
