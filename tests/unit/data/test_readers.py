"""Who reads a file or a folder, what the cache knows it by, and what is said when nobody can."""

import importlib.util
import json
import logging
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError, RegistryError
from seqrl.core.spaces import space_to_json
from seqrl.core.types import Trajectory
from seqrl.data import StoreInfo, StoreWriter
from seqrl.data.convert import convert
from seqrl.data.disk_space import StoreSize
from seqrl.data.ingest import cache_folder, open_store
from seqrl.data.readers import READERS, Reader, choose_reader
from seqrl.data.readers.base import BUILTIN
from seqrl.data.writers.robomimic import write_robomimic

INFO = StoreInfo(spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3))


def trajectory(steps):
    flags = np.zeros(steps, bool)
    return Trajectory({"obs": np.zeros((steps + 1, 2), np.float32)}, flags.astype(int), np.ones(steps), flags, flags)


@pytest.fixture(autouse=True)
def _separate(tmp_path, monkeypatch):
    """Keep the readers and the cache of a test to itself."""
    monkeypatch.setattr(READERS, "_entries", {name: READERS._entries[name] for name in BUILTIN})
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def messages(monkeypatch):
    """What is logged about the choice, and about reading."""
    said = []
    for name in ("readers.choice", "ingest"):
        log = logging.getLogger(f"seqrl.data.{name}")
        for level in ("info", "warning"):
            monkeypatch.setattr(log, level, lambda text, *args: said.append(text % args))
    return said


def add_reader(name, can_read, size=None):
    """Register a reader whose data is one trajectory, as long as the first number in the file says."""

    @READERS.register(name)
    class Lines(Reader):
        def can_read(self, path):
            return can_read(path)

        @contextmanager
        def open(self, path, options):
            file = path / "length.txt" if path.is_dir() else path
            yield INFO, iter([("", trajectory(int(file.read_text())))])

        def predicted_size(self, path):
            return size


def is_text(path):
    return path.is_file() and path.suffix == ".txt"


def lengths(path, **options):
    return open_store(str(path), **options).length.tolist()


def test_a_reader_that_can_read_it_reads_it(tmp_path, messages):
    add_reader("lines", is_text)
    (tmp_path / "a.txt").write_text("5")
    assert lengths(tmp_path / "a.txt") == [5]
    assert len(messages) == 1
    assert "a.txt as lines" in messages[0]


def test_plugins_come_before_builtin_readers_and_all_in_the_order_of_names(tmp_path, messages):
    path = tmp_path / "a.hdf5"
    write_robomimic(path, INFO, [trajectory(3)])
    assert choose_reader(path)[0] == "robomimic"
    assert messages == []
    add_reader("zebra", Path.is_file)
    assert choose_reader(path)[0] == "zebra"
    add_reader("ant", Path.is_file)
    assert choose_reader(path)[0] == "ant"
    assert messages[-1] == f"{path} is read as ant; --format (format) can choose zebra, robomimic instead"


def test_a_format_that_is_named_is_taken(tmp_path, messages):
    add_reader("lines", is_text)
    path = tmp_path / "a.txt"
    write_robomimic(path, INFO, [trajectory(3)])
    assert lengths(path, format="robomimic") == [3]
    (tmp_path / "b").write_text("7")
    messages.clear()
    assert lengths(tmp_path / "b", format="lines") == [7]
    assert messages[0] == f"{tmp_path / 'b'} does not look like lines, but is read as such"
    path = tmp_path / "c.hdf5"
    path.write_text("4")
    assert convert(path, tmp_path / "store", format="lines") == 1
    with pytest.raises(DataError, match=r"c\.hdf5: not a readable robomimic"):
        convert(path, tmp_path / "other")


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("a.txt", {"format": "robomimc"}, r"a\.txt.*unknown data format 'robomimc'; did you mean 'robomimic'\?"),
        (
            "a.csv",
            {},
            r"a\.csv' is neither .* tried: lines, minari, .*arrays, robomimic; --plugin .* --format",
        ),
        ("folder", {}, r"folder' is neither .* tried: lines, minari, d4rl, amago, lerobot, arrays, robomimic"),
        ("none", {"format": "lines"}, r"none' does not exist \(looked in "),
        ("store", {"format": "lines"}, r"store is a seqrl store.*leave out format 'lines'"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_lists_what_was_tried(tmp_path, path, options, message):
    add_reader("lines", is_text)
    (tmp_path / "folder").mkdir()
    for name in ("a.txt", "a.csv"):
        (tmp_path / name).write_text("3")
    with StoreWriter(tmp_path / "store", INFO) as writer:
        writer.append(trajectory(3))
    with pytest.raises(DataError, match=message):
        open_store(str(tmp_path / path), **options)
    assert not any(cache_folder().glob("[0-9a-f]*"))


def test_the_size_that_a_reader_predicts_is_compared_with_the_disk(tmp_path):
    add_reader("lines", is_text, StoreSize(1, 3, 10**18))
    (tmp_path / "a.txt").write_text("3")
    with pytest.raises(DataError, match=r"a\.txt: its store \(1 episodes, 3 transitions, 1e\+09 GB\) takes"):
        open_store(str(tmp_path / "a.txt"))


@pytest.mark.parametrize(
    ("attributes", "options", "is_scaled"),
    [
        ({}, {}, True),
        ({"action_space": spaces.Box(-3.0, 3.0, (2,))}, {}, False),
        ({}, {"action_keys": ["actions"]}, True),
        ({}, {"action_keys": ["absolute"]}, False),
    ],
)
def test_actions_of_a_stated_space_or_of_named_columns_are_not_scaled_to_the_environment(
    attributes, options, is_scaled, tmp_path
):
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        demo = file.create_group("data/demo_0")
        for name in ("actions", "absolute", "obs/position"):
            demo[name] = np.full((3, 2), 0.5, np.float32)
        for name, space in attributes.items():
            file["data"].attrs[name] = json.dumps(space_to_json(space))
    assert open_store(str(path), options).info.actions_are_scaled == is_scaled


def test_a_reader_whose_code_has_changed_reads_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "a.txt").write_text("3")
    code = """
from contextlib import contextmanager
from seqrl.data.readers import Reader
from tests.unit.data.test_readers import INFO, trajectory

class Lines(Reader):
    def can_read(self, path):
        return path.suffix == ".txt"

    @contextmanager
    def open(self, path, options):
        yield INFO, iter([("", trajectory(int(path.read_text()) * {factor}))])
"""
    found = []
    for factor in (1, 2, 2):
        (tmp_path / "lines_reader.py").write_text(code.format(factor=factor))
        spec = importlib.util.spec_from_file_location("lines_reader", tmp_path / "lines_reader.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "lines_reader", module)
        spec.loader.exec_module(module)
        READERS._entries["lines"] = module.Lines
        found.append(lengths(tmp_path / "a.txt"))
    assert found == [[3], [6], [6]]


def test_the_same_file_in_two_formats_is_two_stores(tmp_path):
    add_reader("lines", is_text)
    add_reader("other", is_text)
    (tmp_path / "a.txt").write_text("3")
    stores = [open_store(str(tmp_path / "a.txt"), format=name) for name in ("lines", "other", "lines")]
    assert stores[0].path == stores[2].path != stores[1].path


@pytest.mark.parametrize(
    "change", ["nothing", "content", "content alone", "time", "a new file", "another name", "below"]
)
def test_a_folder_is_read_again_if_a_file_in_it_has_changed(tmp_path, change):
    add_reader("folder", lambda path: (path / "length.txt").exists())
    folder = tmp_path / "data"
    (folder / "below").mkdir(parents=True)
    for name in ("length.txt", "b", "below/c"):
        (folder / name).write_text("3")
        os.utime(folder / name, ns=(10**18, 10**18))
    first = open_store(str(folder))
    if change == "content":
        (folder / "length.txt").write_text("12")
    if change == "content alone":
        (folder / "length.txt").write_text("4")
        os.utime(folder / "length.txt", ns=(10**18, 10**18))
    if change == "time":
        os.utime(folder / "b", ns=(10**18, 10**18 + 1))
    if change == "a new file":
        (folder / "d").write_text("")
    if change == "another name":
        (folder / "b").rename(folder / "e")
    if change == "below":
        os.utime(folder / "below/c", ns=(10**18, 10**18 + 1))
    second = open_store(str(folder))
    assert (first.path == second.path) == (change == "nothing")
    assert second.length.tolist() == [{"content": 12, "content alone": 4}.get(change, 3)]


# -------------------------------------------------------------------------------------------- robomimic
def test_a_robomimic_file_may_have_any_name(tmp_path):
    write_robomimic(tmp_path / "a.dat", INFO, [trajectory(3)])
    assert lengths(tmp_path / "a.dat") == [3]


@pytest.mark.parametrize("name", READERS.names())
def test_asking_a_reader_never_raises(tmp_path, name):
    write_robomimic(tmp_path / "whole", INFO, [trajectory(3)])
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    rng = np.random.default_rng(0)
    for number in range(40):
        damaged = bytearray(whole)
        for place in rng.integers(0, min(len(whole), 2000), 20):
            damaged[place] = rng.integers(256)
        (tmp_path / f"damaged{number}").write_bytes(damaged)
    with h5py.File(tmp_path / "flat", "w") as file:
        file["actions"] = np.zeros(3)
    can_read = {path.name: READERS.get(name)().can_read(path) for path in tmp_path.iterdir()}
    assert can_read["whole"] is (name == "robomimic")
    assert not any(can_read[other] for other in ("folder", "empty", "half", "flat"))


# ----------------------------------------------------------------------------------- readers by suffix
def register_by_suffix():
    @READERS.register(".csv")
    @contextmanager
    def read_csv(path, options):
        yield INFO, iter([("one", trajectory(int(path.read_text())))])

    return read_csv


def test_a_reader_by_suffix_works_with_a_warning(tmp_path):
    with pytest.warns(DeprecationWarning, match=r"READERS.register\('\.csv'\).* are removed in seqrl 0\.3") as caught:
        function = register_by_suffix()
    assert caught[0].filename == __file__
    (tmp_path / "a.csv").write_text("6")
    store = open_store(str(tmp_path / "a.csv"))
    assert store.length.tolist() == [6]
    assert store.names == ["one"]
    with function(tmp_path / "a.csv", {}) as (info, _):
        assert isinstance(info, StoreInfo)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_suffix_is_taken_once():
    register_by_suffix()
    register_by_suffix()  # the same, imported twice
    with pytest.raises(RegistryError, match=r"data format '\.csv' is already registered, by .*read_csv"):
        READERS.register(".csv")(lambda path, options: None)


def test_what_is_neither_a_file_nor_a_folder_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(DataError, match="is neither a file nor a folder"):
            choose_reader(path)
