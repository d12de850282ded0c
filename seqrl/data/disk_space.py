"""How much a dataset will take on disk, told before it is written."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from seqrl.core.errors import DataError

LOG_LINE_BYTES = 320


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
