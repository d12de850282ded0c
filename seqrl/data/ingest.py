"""Foreign files become stores once; training reads stores only."""

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
from seqrl.core.files import is_temporary, new_folder
from seqrl.data.disk_space import check_space, predicted_size
from seqrl.data.readers import READERS, robomimic  # noqa: F401  (registers its reader)
from seqrl.data.store import FORMAT_VERSION, Store, StoreWriter

logger = logging.getLogger(__name__)

_STALE_S = 24 * 3600
_SUFFIX_ALIASES = {".h5": ".hdf5"}


def cache_folder() -> Path:
    """Return the folder of cached stores: ``SEQRL_CACHE_DIR``, else ``seqrl`` in the user's cache folder."""
    if "SEQRL_CACHE_DIR" in os.environ:
        return Path(os.environ["SEQRL_CACHE_DIR"])
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "seqrl"


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


def path_of_cached(file: Path, stat: os.stat_result, options: Mapping[str, str]) -> Path:
    """Return where the store of a foreign file of this size and time lies, if it was read before."""
    key = {"path": str(file.resolve()), "size": stat.st_size, "time": stat.st_mtime_ns, "options": dict(options)}
    return _cached_path(key)


def open_store(path: str, options: dict[str, str] | None = None) -> Store:
    """Return the store at ``path``, or that of the foreign file at ``path``, ingested on first use.

    The cache knows a file by its path, size and time, so a changed file is read again.

    Raises:
        DataError: If there is nothing, or nothing that a reader can read, or its store does not fit on the disk.
    """
    file = Path(path).expanduser()
    options = options or {}
    if (file / "store.json").exists():
        if options.get("dones_mean") == "truncated":
            logger.warning("%s is a store, which knows its time limits: dones_mean is not used", file)
        return Store(file)
    suffix = _suffix_of(file)
    stat = file.stat()
    key = {"path": str(file.resolve()), "size": stat.st_size, "time": stat.st_mtime_ns, "options": options}

    def build(folder: Path) -> None:
        _ingest(file, suffix, options, folder, "; SEQRL_CACHE_DIR moves the cache to another disk")

    return cached_store(key, build)


def ingest(path: Path, folder: Path, options: dict[str, str] | None = None) -> None:
    """Write the store of a foreign file into ``folder``.

    Raises:
        DataError: As :func:`open_store`.
    """
    _ingest(path, _suffix_of(path), options or {}, folder)


def _suffix_of(file: Path) -> str:
    """Return by what name the reader of a file is registered."""
    if not file.exists():
        raise DataError(f"dataset {str(file)!r} does not exist (looked in {Path.cwd()})")
    suffix = _SUFFIX_ALIASES.get(file.suffix, file.suffix)
    if file.is_dir() or suffix not in READERS:
        raise DataError(
            f"dataset {str(file)!r} is neither a seqrl store nor a file that can be read; "
            f"readable suffixes: {', '.join(READERS.names())}"
        )
    return suffix


def _ingest(file: Path, suffix: str, options: dict[str, str], folder: Path, advice: str = "") -> None:
    size = predicted_size(file) if suffix == ".hdf5" else None
    if size is None:
        logger.info("reading %s (%.1f MB) into %s", file, file.stat().st_size / 1e6, folder.parent)
    else:
        free = check_space(folder, size.num_bytes, f"{file}: its store ({size})", advice)
        logger.info("reading %s into %s: %s; %.3g GB are free", file, folder.parent, size, free / 1e9)
    with READERS.get(suffix)(file, options) as (info, trajectories), StoreWriter(folder, info) as writer:
        for name, trajectory in trajectories:
            try:
                writer.append(trajectory, name)
            except DataError as error:
                raise DataError(f"{file}: {error}") from error
