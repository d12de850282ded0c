"""What a reader of a foreign format is, and the table of them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seqrl.core.registry import Registry
from seqrl.core.types import Trajectory
from seqrl.data.disk_space import StoreSize
from seqrl.data.store_info import StoreInfo

NamedTrajectories = Iterator[tuple[str, Trajectory]]
Opened = AbstractContextManager[tuple[StoreInfo, NamedTrajectories]]


class Reader(ABC):
    """Reads one format; its class is registered under the format's name, and made without arguments.

    Attributes:
        takes: Options that it knows, of ``dones_mean``, ``columns``, ``image_size``, ``action_keys`` and
            ``action_rotations``.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"dones_mean"})

    @abstractmethod
    def can_read(self, path: Path) -> bool:
        """Tell whether a file or a folder, which exists, is of this format.

        It is asked about everything that is opened, so it is cheap, and says False to what is damaged or strange to it
        instead of raising.
        """

    @abstractmethod
    def open(self, path: Path, options: dict[str, Any]) -> Opened:
        """Return a context of what the data says of itself, and of its episodes: a name (or "") and a trajectory each.

        Args:
            path: What :meth:`can_read` said yes to, or the user named the format of.
            options: Of the entry of ``train.data``, those in :attr:`takes` that are set.

        Raises:
            DataError: If it cannot be read; the message names the path.
        """

    def predicted_size(self, path: Path) -> StoreSize | None:
        """Return how large the store will be, without reading the data; None if that cannot be told."""
        return None

    def store_size(self, path: Path, options: dict[str, Any]) -> StoreSize | None:
        """Return the same, where it depends on options."""
        return self.predicted_size(path)


class ReaderRegistry(Registry[type[Reader]]):
    """Format -> reader. Until version 0.3 it also takes a function under a suffix, with a warning."""

    def register(self, name: str, *, section: type | None = None) -> Callable[[Any], Any]:
        """Return a decorator that files a :class:`Reader` under the name of its format."""
        if not name.startswith("."):
            return super().register(name, section=section)
        warnings.warn(
            f"READERS.register({name!r}): readers by suffix are removed in seqrl 0.3; register a "
            "seqrl.data.readers.Reader under the name of its format",
            DeprecationWarning,
            stacklevel=2,
        )

        def decorate(function: Callable[[Path, dict[str, str]], Opened]) -> Any:
            self._file(name, _reader_by_suffix(name, function))
            return function

        return decorate


def _reader_by_suffix(suffix: str, function: Callable[[Path, dict[str, str]], Opened]) -> type[Reader]:
    class SuffixReader(Reader):
        def can_read(self, path: Path) -> bool:
            return path.is_file() and path.suffix == suffix

        def open(self, path: Path, options: dict[str, Any]) -> Opened:
            return function(path, options)

    SuffixReader.__module__, SuffixReader.__qualname__ = function.__module__, function.__qualname__
    return SuffixReader


def narrowed(actions: np.ndarray) -> np.ndarray:
    """Return actions as stores hold them: a column of whole numbers without its width, floats in single precision."""
    if actions.dtype.kind in "iu" and actions.shape[1:] == (1,):
        return actions[:, 0]  # numbers of discrete actions
    return actions.astype(np.float32) if actions.dtype.kind == "f" else actions


READERS = ReaderRegistry("data format")
BUILTIN = {
    "minari": "seqrl.data.readers.minari:Minari",
    "d4rl": "seqrl.data.readers.d4rl:D4RL",
    "amago": "seqrl.data.readers.amago:Amago",
    "lerobot": "seqrl.data.readers.lerobot:LeRobot",
    "arrays": "seqrl.data.readers.arrays:Arrays",
    "robomimic": "seqrl.data.readers.robomimic:Robomimic",
}
"""Format -> reader, in the order in which they are asked, after plug-ins; robomimic's tells what is damaged."""

for _name, _target in BUILTIN.items():
    READERS.register_lazy(_name, _target)
