"""Another process sees the old file or the new one, never half of one."""

import errno
import fcntl
import hashlib
import json
import os
import threading

import pytest

from seqrl.core.errors import ConfigError
from seqrl.core.files import FileLock, is_locked, new_folder, sha256_of, write_atomic, write_json


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("data", ["text é\n", b"\x00bytes"])
def test_write_atomic_writes_and_replaces(tmp_path, data):
    path = tmp_path / "file"
    write_atomic(path, b"a much longer old content")
    write_atomic(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_failed_write_leaves_the_old_content_and_no_temporary(tmp_path, monkeypatch, broken):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_the_new_content_is_synced_before_it_gets_the_name(tmp_path, monkeypatch):
    order = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("sync"), sync(handle)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b)))
    write_atomic(tmp_path / "file", "x")
    assert order[:2] == ["sync", "replace"]


def test_a_concurrent_reader_never_sees_a_partial_file(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([65 + i]) * 200_000 for i in range(2)]
    write_atomic(path, contents[0])
    stop = threading.Event()

    def write():
        for i in range(20):
            write_atomic(path, contents[i % 2])
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = set()
    while not stop.is_set():
        seen.add(path.read_bytes())
    thread.join()
    assert seen <= set(contents)
    assert seen


def test_write_json_round_trip(tmp_path):
    value = {"a": [1, 2.5, None, True, "é"], "b": {}}
    write_json(tmp_path / "x.json", value)
    assert json.loads((tmp_path / "x.json").read_text()) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": object()}])
def test_write_json_refuses_what_is_not_json_and_keeps_the_old(tmp_path, value):
    path = tmp_path / "x.json"
    write_json(path, 1)
    with pytest.raises((ValueError, TypeError)):
        write_json(path, value)
    assert json.loads(path.read_text()) == 1
    assert names(tmp_path) == ["x.json"]


def test_new_folder_appears_only_at_the_end(tmp_path):
    path = tmp_path / "a" / "b"
    with new_folder(path) as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "file").write_text("x")
        assert not path.exists()
    assert (path / "sub" / "file").read_text() == "x"
    assert names(path.parent) == ["b"]


def test_new_folder_replaces_the_old_one_whole(tmp_path):
    path = tmp_path / "folder"
    for name in ("old", "new"):
        with new_folder(path) as temporary:
            (temporary / name).write_text(name)
            if name == "new":
                assert names(path) == ["old"]
    assert names(path) == ["new"]
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failed_block_leaves_what_was_there_and_no_temporary(tmp_path, existing, error):
    path = tmp_path / "folder"
    if existing:
        path.mkdir()
        (path / "file").write_text("old")

    def fill():
        with new_folder(path) as temporary:
            (temporary / "file").write_text("new")
            raise error

    with pytest.raises(error):
        fill()
    assert names(tmp_path) == (["folder"] if existing else [])
    assert not existing or (path / "file").read_text() == "old"


def test_failed_last_rename_leaves_the_old_folder(tmp_path, monkeypatch):
    """The disk may refuse the second rename; the old folder must still have its name then."""
    path = tmp_path / "folder"
    with new_folder(path) as temporary:
        (temporary / "file").write_text("old")
    replace = os.replace

    def fail_into_place(source, target):
        if target == path and str(source).endswith(".tmp"):
            raise OSError("no")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_into_place)

    def fill():
        with new_folder(path) as temporary:
            (temporary / "file").write_text("new")

    with pytest.raises(OSError, match="no"):
        fill()
    assert path.exists()
    assert (path / "file").read_text() == "old"


@pytest.mark.parametrize("size", [0, 5, (1 << 20) + 3])
def test_sha256_of_a_file(tmp_path, size):
    data = bytes(i % 251 for i in range(size))
    (tmp_path / "x").write_bytes(data)
    assert sha256_of(tmp_path / "x") == hashlib.sha256(data).hexdigest()


def test_a_lock_has_one_holder(tmp_path):
    lock = FileLock(tmp_path / "lock")
    assert is_locked(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        FileLock(tmp_path / "lock")
    lock.release()
    assert not is_locked(tmp_path / "lock")


def test_a_file_system_without_locks_is_named_and_nobody_holds_its_locks(tmp_path, monkeypatch):
    def has_none(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", has_none)
    with pytest.raises(ConfigError, match=r"lock: files cannot be locked there \(No locks available\)"):
        FileLock(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")
