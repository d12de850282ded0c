"""Files that another process may read at any moment: whole, or not there."""

from __future__ import annotations

import errno
import hashlib
import inspect
import json
import os
import re
import shutil
import sys
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqrl.core.errors import ConfigError


def expanded(path: str | Path) -> Path:
    """Return a path without ``~``.

    Raises:
        ConfigError: If it begins with ``~``, and the user has no home, as in some containers.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{str(path)!r}: {error}; give a path without ~, or set HOME") from error


def hidden_path(path: Path, ending: str = "old") -> Path:
    """Return a new name beside a path, for what is not yet (``tmp``) or no longer under its own.

    :func:`is_temporary` knows such names.
    """
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.{ending}")


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write beside ``path``, flush, sync, and rename over it."""
    payload = data.encode() if isinstance(data, str) else data
    temporary = hidden_path(path, "tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` atomically as indented, strictly legal JSON."""
    write_atomic(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the name of a temporary file that becomes ``path`` when the block ends well, and vanishes when it does not.

    The block makes the file. An existing ``path`` is replaced only at the very end.
    """
    temporary = hidden_path(path, "tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, *, keep_existing: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` when the block ends well, and vanishes when it does not.

    An existing ``path`` is replaced only at the very end; readers never see a half-written folder. With
    ``keep_existing``, a ``path`` that another process has made in the meantime stays, and the new folder vanishes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = hidden_path(path, "tmp")
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        _rename_folder(temporary, path, keep_existing=keep_existing)
        _sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _rename_folder(temporary: Path, path: Path, *, keep_existing: bool) -> None:
    if not path.exists() or keep_existing:
        try:
            os.replace(temporary, path)
            return
        except OSError:
            if not path.exists():
                raise
            if keep_existing:
                return
    old = hidden_path(path)
    os.replace(path, old)
    try:
        os.replace(temporary, path)
    except BaseException:  # an interrupt too: the old folder must keep its name
        if not path.exists():
            os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Delete a folder; no reader ever sees a part of it under its name."""
    hidden = hidden_path(path)
    try:
        os.replace(path, hidden)
    except FileNotFoundError:
        return
    shutil.rmtree(hidden, ignore_errors=True)


def is_temporary(name: str) -> bool:
    """Tell whether this module gave the name to what was never finished, or is being deleted."""
    return re.fullmatch(r"\..+\.[0-9a-f]{8}\.(tmp|old)(\.mp4)?", name) is not None


def remove_temporaries(folder: Path) -> None:
    """Delete what writers that were killed have left in a folder; nobody may be writing to it."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_temporary(path.name):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


_HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)
"""What systems say of a lock that another holder has."""


class FileLock:
    """Held by one process; the system releases it when the process ends, however it ends.

    Args:
        path: File to lock; made if absent.

    Raises:
        BlockingIOError: If another holder has it.
        ConfigError: If the file system has no locks.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "ab")  # noqa: SIM115
        try:
            _lock(self._file.fileno(), is_locked=True)
        except OSError as error:
            self._file.close()
            if error.errno in _HELD:
                raise BlockingIOError(f"{path} is locked") from error
            raise ConfigError(f"{path}: files cannot be locked there ({error.strerror}); use another folder") from error

    def release(self) -> None:
        """Let others have it; safe to call twice."""
        if not self._file.closed:
            _lock(self._file.fileno(), is_locked=False)
            self._file.close()


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds the lock of a file that exists."""
    try:
        file = open(path, "rb+")  # noqa: SIM115  (never makes it: its folder may vanish at any moment)
    except (FileNotFoundError, NotADirectoryError):
        return False
    with file:
        try:
            _lock(file.fileno(), is_locked=True)
        except OSError as error:
            return error.errno in _HELD
        _lock(file.fileno(), is_locked=False)
    return False


def _lock(handle: int, *, is_locked: bool) -> None:
    if os.name == "nt":
        import msvcrt

        mode = msvcrt.LK_NBLCK if is_locked else msvcrt.LK_UNLCK  # type: ignore[attr-defined]
        msvcrt.locking(handle, mode, 1)  # type: ignore[attr-defined]
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if is_locked else fcntl.LOCK_UN)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def system_says(error: Exception) -> str:
    """Return an error's text; where a limit of the system is in the way, which one, and how to raise it."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE and sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"this process has reached its limit of {soft} open files; raise it (here up to 'ulimit -n {hard}')"
    if number == errno.ENOMEM:
        return f"{error}; memory is full, or more files are mapped than vm.max_map_count allows"
    return str(error)


def require_space(folder: Path, num_bytes: int) -> None:
    """Fail before a write as the write would.

    Raises:
        OSError: If fewer bytes are free where ``folder`` lies.
    """
    if num_bytes > shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def space_left(path: Path, error: Exception) -> str:
    """Return what a failed write says, and how much room there is."""
    if getattr(error, "errno", None) == errno.EMFILE:
        return system_says(error)
    try:
        free = shutil.disk_usage(path).free / 1e6
    except OSError:
        return str(error)
    return f"{getattr(error, 'strerror', None) or error} ({free:,.1f} MB are free there)"


def _sync(file: Path) -> None:
    with open(file, "rb+") as handle:
        os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; a no-op on systems that cannot open folders."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def code_crc(made_by: Any) -> int:
    """Return a checksum of the files that define a class and what it inherits, or a function; 0 if there are none."""
    made_by = getattr(made_by, "func", made_by)  # of a partial
    crc = 0
    for kind in made_by.__mro__ if isinstance(made_by, type) else (made_by,):
        try:
            crc = zlib.crc32(Path(inspect.getfile(kind)).read_bytes(), crc)
        except (OSError, TypeError):  # built in, or typed in
            continue
    return crc
