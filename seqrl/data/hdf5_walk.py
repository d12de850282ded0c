"""Walks over HDF5 files in a process of its own, as libhdf5 trusts what a file says of itself, and may loop or crash.

It is run as a script. Each line that it reads is JSON, a path and the seconds that one thing in the file may take; it
answers with two lines of JSON: null at once, and then what is wrong, or null. If it ends in between, libhdf5 does not
come back from the file. What libhdf5 sees to be damaged is left to the readers, which say it better.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import h5py

_IDLE_S = 10.0
_ROWS = 1000
_MOST_PER_BYTE = 2048
_SEEN = (
    OSError,
    LookupError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    MemoryError,
)


class _WrongNameError(Exception):
    """A name is no text."""


class _Clock:
    """Ends the process if nothing goes on for so many seconds, also where a C library loops."""

    def __init__(self) -> None:
        self._seconds, self._armed = 0.0, 0.0
        self._quiet = os.open(os.devnull, os.O_WRONLY)

    def begin(self, seconds: float) -> None:
        """Set how many they are, and start."""
        self._seconds, self._armed = seconds, time.monotonic()
        faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._quiet)

    def go_on(self) -> None:
        """Say that something was done."""
        if time.monotonic() - self._armed > self._seconds / 10:  # beginning takes a thread
            self.begin(self._seconds)


def main() -> None:
    """Answer until nothing more is asked, or nothing for a while."""
    clock = _Clock()
    clock.begin(_IDLE_S)
    while line := sys.stdin.readline():
        path, seconds = json.loads(line)
        clock.begin(seconds)
        _answer(None)
        try:
            _walk(path, clock)
            wrong = None
        except _WrongNameError as error:
            wrong = str(error)
        clock.begin(_IDLE_S)
        _answer(wrong)


def _answer(text: str | None) -> None:
    sys.stdout.write(json.dumps(text) + "\n")
    sys.stdout.flush()


def _walk(path: str, clock: _Clock) -> None:
    try:
        file = h5py.File(path, "r")
        root = h5py.h5o.open(file.id, b"/")
    except _SEEN:
        return
    with file:
        todo, seen = [("", root)], set[int]()
        while todo:
            where, item = todo.pop()
            for name in _attributes(item):
                _require_text(name, where)
            for name, child in _children(item, seen):
                clock.go_on()
                todo.append((f"{where}/{_require_text(name, where)}", child))
            for _ in _parts(item):
                clock.go_on()


def _require_text(name: bytes | str, where: str) -> str:
    try:
        return name if isinstance(name, str) else name.decode()
    except UnicodeDecodeError:
        raise _WrongNameError(f"the name {name!r} in {where or '/'} is not text (UTF-8)") from None


def _attributes(item: Any) -> list[bytes | str]:
    """Return the names of the attributes, after all were read."""
    try:
        if not h5py.h5a.get_num_attrs(item):
            return []
        kind = h5py.Dataset if isinstance(item, h5py.h5d.DatasetID) else h5py.Group
        attributes = kind(item).attrs
        names = list(attributes)
    except _SEEN:
        return []
    for name in names:
        try:
            attributes[name]
        except _SEEN:
            continue
    return names


def _children(item: Any, seen: set[int]) -> Iterator[tuple[bytes, Any]]:
    """Yield what a group holds, each thing once in a file; None for what is elsewhere, or cannot be opened."""
    if not isinstance(item, h5py.h5g.GroupID):
        return
    try:
        names, links = list(item), item.links
    except _SEEN:
        return
    for name in names:
        child = None
        try:
            info = links.get_info(name)
            if info.type == h5py.h5l.TYPE_HARD and info.u not in seen:
                seen.add(info.u)
                child = h5py.h5o.open(item, name)
        except _SEEN:
            pass
        yield name, child


def _parts(item: Any) -> Iterator[None]:
    """Follow all pointers of a dataset: the index of its chunks, and values of any length."""
    if not isinstance(item, h5py.h5d.DatasetID):
        return
    try:
        plain = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.ENUM)
        if item.get_create_plist().get_layout() == h5py.h5d.CHUNKED:
            item.get_num_chunks()
        data = h5py.Dataset(item)
        is_large = data.nbytes > _MOST_PER_BYTE * data.file.id.get_filesize()
        if item.get_type().get_class() in plain or data.external or data.is_virtual or is_large:
            return
        for start in range(0, len(data), _ROWS) if data.shape else ():
            data[start : start + _ROWS]
            yield
        if data.shape == ():
            data[()]
    except _SEEN:
        return


if __name__ == "__main__":
    main()
