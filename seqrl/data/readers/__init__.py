"""Readers of foreign formats. Each turns a file into a :class:`StoreInfo` and a stream of named trajectories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from seqrl.core.registry import Registry
from seqrl.core.types import Trajectory
from seqrl.data.store import StoreInfo

NamedTrajectories = Iterator[tuple[str, Trajectory]]
Reader = Callable[[Path, dict[str, str]], AbstractContextManager[tuple[StoreInfo, NamedTrajectories]]]

READERS: Registry[Reader] = Registry("data reader")
"""File suffix -> reader."""
