"""A store of any number of files is read with few descriptors and a bounded number of maps."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from seqrl.data import Budget, store
from seqrl.data.file_map import map_file, num_maps
from tests.unit.data.test_replay import filled, values_in

NUM = 60
LIMITED = """
    import resource
    from pathlib import Path
    from seqrl.core.errors import DataError
    from seqrl.data import Store
    from tests.unit.data.test_replay import values_in
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    store = Store(Path({path!r}))
    assert len(store.schema) == 5 and len(list(Path({path!r}).glob("fifo/*"))) == {num}
    assert values_in(store) == list(range({num}))
    assert store.verify() == []
    store.reopen()
    taken = []
    try:
        while True:
            taken.append(open("/dev/null"))
    except OSError:
        pass
    for read in (lambda: store.trajectory(0), store.refresh, lambda: Store(store.path)):
        try:
            read()
        except DataError as error:
            taken.append(None)
            print(error)
"""


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def test_a_limit_of_open_files_is_enough_or_is_named(tmp_path):
    """A limit of 64 for 300 columns; then nothing is left of it."""
    filled(tmp_path, range(NUM), Budget(trajectories=16))
    code = textwrap.dedent(LIMITED.format(path=str(tmp_path), num=NUM))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert "this process has reached its limit of 64 open files; raise it (here up to 'ulimit -n 64')" in line
        assert "shorter" not in line


def test_maps_are_bounded_and_what_was_let_go_is_mapped_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "most_maps", lambda: before + 20)
    before = num_maps()
    opened = filled(tmp_path, range(NUM), Budget(trajectories=16))
    for _ in range(2):
        for number in range(NUM):
            assert opened.trajectory(number).obs["obs"][0, 0] == number
            assert num_maps() - before <= 25
    assert opened.verify() == []
    assert num_maps() - before <= 25
    assert values_in(opened) == list(range(NUM))
    del opened
    assert num_maps() == before


def test_a_view_keeps_its_map(tmp_path):
    before, file = num_maps(), tmp_path / "x"
    np.arange(10_000, dtype=np.int32).tofile(file)
    view = map_file(file, "int32", (5_000, 2))[4_000:]
    file.unlink()
    assert num_maps() == before + 1
    assert view.tolist() == np.arange(8_000, 10_000).reshape(-1, 2).tolist()
    assert not view.flags.writeable
    del view
    assert num_maps() == before
    with pytest.raises(FileNotFoundError):
        map_file(file, "int32", (5_000, 2))
