"""Foreign data becomes a store once; training reads stores only."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.files import code_crc, expanded, is_temporary, new_folder
from seqrl.data.cache_folder import cache_folder
from seqrl.data.disk_space import check_space
from seqrl.data.readers import READERS, Reader, choose_reader
from seqrl.data.readers.base import BUILTIN
from seqrl.data.readers.minari import local_dataset
from seqrl.data.store import Store, StoreWriter
from seqrl.data.store_info import FORMAT_VERSION

logger = logging.getLogger(__name__)

_STALE_S = 24 * 3600
_CACHE_VERSION = 2
"""Raise it where readers write other stores than before."""
_BLOCK_BYTES, _BLOCKS_OF_A_FILE, _MOST_BLOCKS = 2**16, 16, 256


def cached_store(key: dict[str, Any], build: Callable[[Path], None]) -> Store:
    """Return the cached store that ``key`` describes, building it in a new folder if there is none."""
    path = _folder_of(key)
    if not path.exists():
        _remove_stale(path)
        with new_folder(path, keep_existing=True) as temporary:
            build(temporary)
    return Store(path)


def _folder_of(key: dict[str, Any]) -> Path:
    text = json.dumps([FORMAT_VERSION, _CACHE_VERSION, key], sort_keys=True)
    return cache_folder() / hashlib.sha256(text.encode()).hexdigest()[:24]


def _remove_stale(path: Path) -> None:
    """Delete what processes that were killed while they built this store have left, a day later."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        if is_temporary(leftover.name) and time.time() - leftover.stat().st_mtime > _STALE_S:
            shutil.rmtree(leftover, ignore_errors=True)


def path_of_cached(file: Path, content: Mapping[str, Any], options: Mapping[str, Any]) -> Path:
    """Return where the store of a robomimic file of this :func:`content_of` lies, if it was read before."""
    return _folder_of(_key(file, "robomimic", _set(options), content))


def _key(path: Path, name: str, options: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key of what is read as ``name``; that of a plug-in's reader changes with its code."""
    own = {} if name in BUILTIN else {"code": code_crc(READERS.get(name))}
    return {"path": str(path.resolve()), "format": name, "options": dict(options), **content, **own}


def content_of(path: Path) -> dict[str, Any]:
    """Return what tells a changed file, or a folder with a changed file in it.

    Beside sizes and times it is a hash of a sample, as a copy or a change in place can keep both: 16 blocks of 64 KB
    of a file, the first, the last and some between. Of a folder, it is 256 blocks, spread over its files; where they
    are many, it is their ends, where npz and Parquet have their checksums. So at most 16 MB are read.
    """
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    stats = [file.stat() for file in files]
    digest = hashlib.sha256()
    for number in np.unique(np.linspace(0, len(files) - 1, min(len(files), _MOST_BLOCKS), dtype=int)):
        last, num_blocks = max(0, stats[number].st_size - _BLOCK_BYTES), max(1, _MOST_BLOCKS // len(files))
        with suppress(PermissionError), open(files[number], "rb") as opened:
            for position in np.unique(np.linspace(last, 0, min(num_blocks, _BLOCKS_OF_A_FILE), dtype=int)):
                opened.seek(position)
                digest.update(opened.read(_BLOCK_BYTES))
    if not path.is_dir():
        return {"size": stats[0].st_size, "time": stats[0].st_mtime_ns, "sample": digest.hexdigest()}
    names = [file.relative_to(path).as_posix() for file in files]
    listed = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in zip(names, stats, strict=True)]
    return {"files": listed, "sample": digest.hexdigest()}


def located(path: Path) -> Path:
    """Return a path without ``~``; where there is nothing, that of Minari's dataset of this id, if there is one."""
    file = expanded(path)
    return file if os.path.exists(file) else local_dataset(str(path)) or file


def open_store(path: str, options: dict[str, Any] | None = None, *, format: str | None = None) -> Store:
    """Return the store at ``path``, or that of the foreign data at ``path``, ingested on first use.

    The cache knows a file by its path, size, time and a sample of its bytes (:func:`content_of`), and a folder by those
    of the files in it, so what has changed is read again.

    Args:
        path: A store, or a file or folder that a reader reads.
        options: Of the reader.
        format: Name of the reader; None asks the readers.

    Raises:
        DataError: If there is nothing, or nothing that a reader can read, or its store does not fit on the disk.
    """
    file = located(Path(path))
    options = _set(options)
    if format is None and os.path.exists(file / "store.json"):
        if options.get("dones_mean") == "truncated":
            logger.warning("%s is a store, which knows its time limits: dones_mean is not used", file)
        if unused := sorted(options.keys() - {"dones_mean"}):
            raise DataError(f"{file} is a store, which takes no {unused[0]}")
        return Store(file)
    name, reader = choose_reader(file, format)

    def build(folder: Path) -> None:
        _ingest(file, name, reader, options, folder, "; SEQRL_CACHE_DIR moves the cache to another disk")

    store = cached_store(_key(file, name, options, content_of(file)), build)
    store.label = str(file)
    return store


def ingest(path: Path, folder: Path, options: dict[str, Any] | None = None, *, format: str | None = None) -> None:
    """Write the store of foreign data into ``folder``.

    Raises:
        DataError: As :func:`open_store`.
    """
    path = located(path)
    _ingest(path, *choose_reader(path, format), _set(options), folder)


def _set(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options that are set, and the default of ``dones_mean``, which run files name."""
    found = {"dones_mean": "terminated"} | {k: v for k, v in (options or {}).items() if v is not None}
    if (given := found["dones_mean"]) not in ("terminated", "truncated"):
        raise DataError(f"dones_mean must be 'terminated' or 'truncated', got {given!r}")
    return found


def _ingest(path: Path, name: str, reader: Reader, options: dict[str, Any], folder: Path, advice: str = "") -> None:
    if unknown := sorted(options.keys() - reader.takes - {"dones_mean"}):
        raise DataError(f"{path}: data in the format {name} takes no {unknown[0]}")
    if options["dones_mean"] == "truncated" and "dones_mean" not in reader.takes:
        raise DataError(f"{path}: data in the format {name} knows its time limits, and takes no dones_mean")
    size = reader.store_size(path, options)
    if size is None:
        content = content_of(path)
        num_bytes = sum(file[1] for file in content.get("files", ())) + content.get("size", 0)
        logger.info("reading %s as %s (%.1f MB) into %s", path, name, num_bytes / 1e6, folder.parent)
    else:
        free = check_space(folder, size.num_bytes, f"{path}: its store ({size})", advice)
        logger.info("reading %s as %s into %s: %s; %.3g GB are free", path, name, folder.parent, size, free / 1e9)
    with reader.open(path, options) as (info, trajectories), StoreWriter(folder, info) as writer:
        for episode, trajectory in trajectories:
            try:
                writer.append(trajectory, episode)
            except DataError as error:
                raise DataError(f"{path}: {error}") from error
