"""The memory of this machine, and freed memory that stays with the process: large steps take half the time by it."""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_BLOCK, _LARGEST_BLOCK_BEFORE = 2**30, 2**25  # before glibc 2.35, which refuses more


def total_memory() -> int | None:
    """Return the bytes of memory that this machine has; None where the system does not tell."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def keep_freed_memory() -> bool:
    """Tell the C library not to give freed memory back to the system; return whether it could be told.

    glibc maps every block above 32 MB (at most) anew and unmaps it when it is freed, so each large temporary tensor is
    paid for page by page, in every step: more than the arithmetic on it. Kept memory is reused instead. The peak is
    the same; memory just does not shrink after it. Whoever has set ``MALLOC_MMAP_THRESHOLD_``,
    ``MALLOC_TRIM_THRESHOLD_`` or ``GLIBC_TUNABLES`` has decided otherwise, and nothing is changed.
    """
    if not sys.platform.startswith("linux"):
        return False
    if {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"} & os.environ.keys():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    is_mapped_late = any(mallopt(_M_MMAP_THRESHOLD, size) for size in (_LARGEST_BLOCK, _LARGEST_BLOCK_BEFORE))
    return bool(mallopt(_M_TRIM_THRESHOLD, -1)) and is_mapped_late
