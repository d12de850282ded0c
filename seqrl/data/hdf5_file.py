"""The one door to HDF5 files: a file of others is opened after another process has walked over it and come back."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

import h5py

from seqrl.core.errors import DataError
from seqrl.data import hdf5_walk
from seqrl.data.cache_folder import cache_folder

STALL_S = 30.0
"""Seconds that one thing in a file may take."""


def foreign_file(path: Path) -> h5py.File:
    """Open a file for reading that somebody else may have written, or damaged.

    libhdf5 trusts what a file says of itself: one flipped bit can make it loop for ever, or crash. So a helper process
    walks over the file first, once for each path, size and time.

    Raises:
        DataError: If libhdf5 does not come back from the file, or a name in it is no text.
        OSError: If it is no HDF5 file.
    """
    if path.is_file() and (wrong := _wrong_with(path)) is not None:
        raise DataError(f"{path}: {wrong}")
    return h5py.File(path, "r")


def own_file(path: Path, mode: Literal["r", "r+", "w"], libver: tuple[str, str] | None = None) -> h5py.File:
    """Open a file that this process writes, has just written, or has copied from one that it has opened."""
    return h5py.File(path, mode, libver=libver)


_LOCK = threading.Lock()
_KNOWN: dict[str, str | None] = {}
"""What is wrong with the files that this process has asked about."""


def _wrong_with(path: Path) -> str | None:
    stat = path.stat()
    key = json.dumps([str(path.resolve()), stat.st_size, stat.st_mtime_ns, h5py.version.hdf5_version])
    with _LOCK:
        if key not in _KNOWN:
            _KNOWN[key] = None if _is_marked(key) else _asked(path)
            if _KNOWN[key] is None:
                _is_marked(key, mark=True)
        return _KNOWN[key]


def _is_marked(key: str, *, mark: bool = False) -> bool:
    """Tell, or note, in the cache that a file was walked over before; it only saves time, so it may fail."""
    with contextlib.suppress(OSError, DataError):
        file = cache_folder() / ".walked" / hashlib.sha256(key.encode()).hexdigest()[:24]
        if mark:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return file.exists()
    return False


_HELPER: dict[int, subprocess.Popen[str]] = {}
"""Of this process; a forked one has its own."""


def _asked(path: Path) -> str | None:
    """Return what a helper process says of a file."""
    while True:
        is_new = os.getpid() not in _HELPER
        helper = _HELPER[os.getpid()] = _helper() if is_new else _HELPER[os.getpid()]
        has_begun, answer = _exchange(helper, json.dumps([os.fspath(path.resolve()), STALL_S]))
        if answer:
            return json.loads(answer)  # type: ignore[no-any-return]
        if has_begun:
            return f"libhdf5 crashes on it, or makes no progress for {STALL_S:g} s: the file is damaged"
        if is_new:
            raise DataError(f"{path}: the process that checks it first ({sys.executable}) does not start")


def _exchange(helper: subprocess.Popen[str], question: str) -> tuple[str, str]:
    """Return both lines of the answer to a question; those that do not come are empty, and the helper is gone."""
    assert helper.stdin is not None
    assert helper.stdout is not None
    has_begun = answer = ""
    try:
        with contextlib.suppress(OSError):
            helper.stdin.write(f"{question}\n")
            helper.stdin.flush()
        has_begun = next((line for line in helper.stdout if line == "null\n"), "")  # others are not of the helper
        answer = helper.stdout.readline()
    finally:
        if not answer:  # after an interrupt too: nobody would take what it still says
            _stop_helper()
    return has_begun, answer


def _helper() -> subprocess.Popen[str]:
    command = [sys.executable, "-P", hdf5_walk.__file__]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(  # in a session of its own, as a signal of the terminal is no verdict
        command, stdin=pipe, stdout=pipe, stderr=null, text=True, encoding="utf-8", start_new_session=True
    )


@atexit.register
def _stop_helper() -> None:
    helper = _HELPER.pop(os.getpid(), None)
    if helper is not None:
        helper.kill()
        helper.communicate()
