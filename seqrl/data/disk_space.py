"""How much a dataset will take on disk, told before it is written."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.spaces import MASK_KEY
from seqrl.data.readers.robomimic import datasets

LOG_LINE_BYTES = 320
_REWARD_AND_ENDS_BYTES = 4 + 1 + 1


@dataclass(frozen=True)
class StoreSize:
    """What the store of a file will hold.

    Attributes:
        episodes: Their number.
        transitions: Of all episodes.
        num_bytes: On disk; true to a few bytes per episode.
    """

    episodes: int
    transitions: int
    num_bytes: int

    def __str__(self) -> str:
        """Return it in words."""
        size = f"{self.num_bytes / 1e9:.3g} GB" if self.num_bytes >= 1e9 else f"{self.num_bytes / 1e6:.3g} MB"
        return f"{self.episodes} episodes, {self.transitions} transitions, {size}"


def predicted_size(path: Path) -> StoreSize | None:
    """Return the size of the store of a robomimic file, from its shapes and dtypes: no data is read.

    None where the file is damaged, which its reader explains better.
    """
    try:
        with h5py.File(path, "r") as file:
            demos = list(file["data"].values())
            lengths = [demo["actions"].shape[0] for demo in demos]
            rows = sum((steps + 1) * _row_bytes(demo) for steps, demo in zip(lengths, demos, strict=True))
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, IndexError, DataError):
        return None
    return StoreSize(len(demos), sum(lengths), rows + LOG_LINE_BYTES * len(demos))


def _row_bytes(demo: h5py.Group) -> int:
    """Return the bytes of one row of all columns of the store."""
    columns = [*datasets(demo["obs"]).values(), demo["actions"]]
    if "goal" in demo:
        columns += datasets(demo["goal"]).values()
    total: int = _REWARD_AND_ENDS_BYTES + sum(column.dtype.itemsize * _width(column) for column in columns)
    mask = demo.get("action_mask", demo["obs"].get(MASK_KEY))
    return total + (0 if mask is None else _width(mask))


def _width(column: Any) -> int:
    return int(np.prod(column.shape[1:], dtype=np.int64))


def check_space(folder: Path, num_bytes: int, what: str, advice: str = "") -> int:
    """Return the bytes that are free where ``folder`` lies or will lie.

    Raises:
        DataError: If ``num_bytes`` are more than that.
    """
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if num_bytes > free:
        raise DataError(
            f"{what} takes {num_bytes / 1e9:.3g} GB, but only {free / 1e9:.3g} GB are free at {there}{advice}"
        )
    return free
