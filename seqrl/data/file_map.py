"""Files read through memory without holding a descriptor for each: a process may often have no more than 1,024."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

_LIMIT = Path("/proc/sys/vm/max_map_count")
_FAILED = ctypes.c_void_p(-1).value

_mapped: set[int] = set()
"""Addresses of the maps of this process."""


def map_file(file: Path, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first rows of a file, read-only; they stay readable as long as the array or a view of it lives.

    Args:
        file: Raw numbers.
        dtype: Of them.
        shape: Of the rows together; no entry is zero.

    Raises:
        OSError: If it cannot be opened, or the system maps no more files into this process.
        ValueError: If it has fewer bytes.
    """
    if sys.platform == "win32":
        return np.asarray(np.memmap(file, dtype, mode="r", shape=shape))
    return np.asarray(_FileMap(file, np.dtype(dtype), shape))


def most_maps() -> int:
    """Return how many maps data may take: half of what Linux allows a process (65,530, if nobody has changed it)."""
    try:
        return int(_LIMIT.read_text()) // 2
    except (OSError, ValueError):
        return 2**15


def num_maps() -> int:
    """Return how many files are mapped now."""
    return len(_mapped)


if sys.platform != "win32":
    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    _libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    class _FileMap:
        """A map of a file that is closed again, as Python's ``mmap`` has from 3.13 on; the last reference unmaps it."""

        def __init__(self, file: Path, dtype: np.dtype, shape: tuple[int, ...]) -> None:
            self._size = dtype.itemsize * math.prod(shape)
            self._address: int | None = None
            handle = os.open(file, os.O_RDONLY)
            try:
                if (there := os.fstat(handle).st_size) < self._size:
                    raise ValueError(f"{there} bytes of {self._size}")
                address = _libc.mmap(None, self._size, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
            finally:
                os.close(handle)
            if address in (None, _FAILED):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(file))
            self._address = address
            _mapped.add(address)
            interface = {"data": (address, True), "shape": shape, "typestr": dtype.str, "version": 3}
            self.__array_interface__ = interface

        def __del__(self, unmap: Any = _libc.munmap, mapped: set[int] = _mapped) -> None:
            if self._address is not None:  # arguments, because names of the module may be gone at exit
                mapped.discard(self._address)
                unmap(self._address, self._size)
