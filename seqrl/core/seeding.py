"""One seed feeds every generator of a run, through named children of a ``SeedSequence``."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from seqrl.moved import moved_names

if not TYPE_CHECKING:  # mypy shall not take every name for one of this module
    __getattr__ = moved_names(
        __name__, "seqrl.core.generators", "generator_states", "seed_everything", "set_generator_states"
    )


def seed_sequence(seed: int, *path: int | str) -> np.random.SeedSequence:
    """Return the child of ``seed`` that belongs to ``path``, for instance ``("eval", epoch)``.

    The same seed and path give the same stream on every machine; different paths give independent streams.
    Text enters through CRC-32, so names are stable across processes (``hash`` is not).

    Raises:
        ValueError: If the seed or a number in the path is negative.
    """
    keys = [zlib.crc32(part.encode()) if isinstance(part, str) else int(part) for part in path]
    return np.random.SeedSequence(seed, spawn_key=tuple(keys))


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """Return a NumPy generator for ``path``."""
    return np.random.Generator(np.random.PCG64(seed_sequence(seed, *path)))


def integer_seed(seed: int, *path: int | str) -> int:
    """Return a seed in ``[0, 2**31)`` for ``path``, for libraries that take an integer."""
    return int(seed_sequence(seed, *path).generate_state(1)[0] >> 1)
