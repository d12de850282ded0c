"""Which reader reads a file or a folder."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from seqrl.core.errors import DataError
from seqrl.data.readers.base import BUILTIN, READERS, Reader

logger = logging.getLogger(__name__)


def choose_reader(path: Path, name: str | None = None) -> tuple[str, Reader]:
    """Return the name of a format and its reader: the one that is named, or the first that can read ``path``.

    Readers of plug-ins are asked first, by name, then those of seqrl.

    Raises:
        DataError: If ``path`` does not exist, the format is unknown, or no reader can read it.
    """
    if not os.path.exists(path):  # also if it cannot be the name of anything
        raise DataError(f"dataset {str(path)!r} does not exist (looked in {Path.cwd()}, and in Minari's local store)")
    if not (path.is_file() or path.is_dir()):
        raise DataError(f"dataset {str(path)!r} is neither a file nor a folder")
    if name is not None:
        return name, _named(path, name)
    plugins = sorted(set(READERS.names()) - BUILTIN.keys())
    able = [(name, reader) for name in plugins if (reader := READERS.get(name)()).can_read(path)]
    for name in BUILTIN:
        if (reader := READERS.get(name)()).can_read(path):
            able.append((name, reader))
            break
    if not able:
        raise DataError(
            f"dataset {str(path)!r} is neither a seqrl store nor in a format that can be read; tried: "
            f"{', '.join([*plugins, *BUILTIN])}; --plugin (plugins) adds a reader, --format (format) names one"
        )
    if len(able) > 1:
        others = ", ".join(name for name, _ in able[1:])
        logger.info("%s is read as %s; --format (format) can choose %s instead", path, able[0][0], others)
    return able[0]


def _named(path: Path, name: str) -> Reader:
    if name not in READERS:
        raise DataError(f"dataset {str(path)!r}: {READERS.unknown(name)}")
    if (path / "store.json").exists():
        raise DataError(f"{path} is a seqrl store, which needs no reader; leave out format {name!r}")
    reader = READERS.get(name)()
    if not reader.can_read(path):
        logger.warning("%s does not look like %s, but is read as such", path, name)
    return reader
