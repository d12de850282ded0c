"""Changes to an HDF5 file that is there: made in a copy, which takes its place when it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from seqrl.core.errors import DataError
from seqrl.core.files import new_file
from seqrl.data.disk_space import check_space
from seqrl.data.hdf5_file import own_file
from seqrl.data.ingest import content_of


@contextmanager
def changed_in_place(path: Path, what: str, *, more_bytes: int = 0) -> Iterator[h5py.File]:
    """Yield a copy of a file to change, and put it in the file's place.

    Args:
        path: The file.
        what: Is added, for messages.
        more_bytes: How much larger it gets.

    Raises:
        DataError: If it may not be written, the disk is too small, the change fails, or another process changed the
            file meanwhile. The file is as it was then.
    """
    before = content_of(path)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise DataError(f"{path}, or the folder it is in, is not writable")
    check_space(path.parent, before["size"] + more_bytes, f"{path}: the copy that makes it safe to change")
    with new_file(path) as temporary:
        shutil.copy(path, temporary)
        try:
            with own_file(temporary, "r+") as file:
                yield file
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise DataError(f"{path}: cannot add {what} ({error}); the file is unchanged") from error
        if content_of(path) != before:
            raise DataError(f"{path} was changed in the meantime; nothing was written")
