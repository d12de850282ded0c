"""Foreign data becomes a store once; training reads stores only."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seqrl.core.errors import DataError
from seqrl.core.files import expanded, is_temporary, new_folder
from seqrl.data.cache_folder import cache_folder
from seqrl.data.disk_space import check_space
from seqrl.data.readers import Reader, choose_reader
from seqrl.data.readers.minari import local_dataset
from seqrl.data.store import FORMAT_VERSION, Store, StoreWriter

logger = logging.getLogger(__name__)

_STALE_S = 24 * 3600


def cached_store(key: dict[str, Any], build: Callable[[Path], None]) -> Store:
    """Return the cached store that ``key`` describes, building it in a new folder if there is none."""
    path = _cached_path(key)
    if not path.exists():
        _remove_stale(path)
        with new_folder(path, keep_existing=True) as temporary:
            build(temporary)
    return Store(path)


def _cached_path(key: dict[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps([FORMAT_VERSION, key], sort_keys=True).encode()).hexdigest()[:24]
    return cache_folder() / digest


def _remove_stale(path: Path) -> None:
    """Delete what processes that were killed while they built this store have left, a day later."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        if is_temporary(leftover.name) and time.time() - leftover.stat().st_mtime > _STALE_S:
            shutil.rmtree(leftover, ignore_errors=True)


def path_of_cached(file: Path, stat: os.stat_result, options: Mapping[str, Any]) -> Path:
    """Return where the store of a robomimic file of this size and time lies, if it was read before."""
    return _cached_path(_key(file, "robomimic", options, {"size": stat.st_size, "time": stat.st_mtime_ns}))


def _key(path: Path, name: str, options: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key of what is read as ``name``; that of robomimic files names none, as there was no other."""
    key = {"path": str(path.resolve()), "options": dict(options), **content}
    return key if name == "robomimic" else {**key, "format": name}


def _content(path: Path) -> dict[str, Any]:
    """Return what tells a changed file, or a folder with a changed file in it."""
    if not path.is_dir():
        stat = path.stat()
        return {"size": stat.st_size, "time": stat.st_mtime_ns}
    files = [(file.relative_to(path).as_posix(), file.stat()) for file in sorted(path.rglob("*")) if file.is_file()]
    return {"files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files]}


def located(path: Path) -> Path:
    """Return a path without ``~``; where there is nothing, that of Minari's dataset of this id, if there is one."""
    file = expanded(path)
    return file if os.path.exists(file) else local_dataset(str(path)) or file


def open_store(path: str, options: dict[str, Any] | None = None, *, format: str | None = None) -> Store:
    """Return the store at ``path``, or that of the foreign data at ``path``, ingested on first use.

    The cache knows a file by its path, size and time, and a folder by those of the files in it, so what has changed is
    read again.

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
        if unused := sorted(options.keys() & {"columns", "image_size"}):
            raise DataError(f"{file} is a store, which takes no {unused[0]}")
        return Store(file)
    name, reader = choose_reader(file, format)

    def build(folder: Path) -> None:
        _ingest(file, name, reader, options, folder, "; SEQRL_CACHE_DIR moves the cache to another disk")

    return cached_store(_key(file, name, options, _content(file)), build)


def ingest(path: Path, folder: Path, options: dict[str, Any] | None = None, *, format: str | None = None) -> None:
    """Write the store of foreign data into ``folder``.

    Raises:
        DataError: As :func:`open_store`.
    """
    path = located(path)
    _ingest(path, *choose_reader(path, format), _set(options), folder)


def _set(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options that are set."""
    return {k: v for k, v in (options or {}).items() if v is not None}


def _ingest(path: Path, name: str, reader: Reader, options: dict[str, Any], folder: Path, advice: str = "") -> None:
    if unknown := sorted(options.keys() - reader.takes - {"dones_mean"}):
        raise DataError(f"{path}: data in the format {name} takes no {unknown[0]}")
    size = reader.store_size(path, options)
    if size is None:
        content = _content(path)
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
