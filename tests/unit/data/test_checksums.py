"""What lies on disk is compared with its checksums when it is first read, and only then."""

import json
import os
import zlib

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.strict_json import MAX_DEPTH, parse_json, sealed, unsealed
from seqrl.core.types import Trajectory
from seqrl.data import SequenceDataset, Source, Store, StoreInfo, StoreWriter, shard

INFO = StoreInfo(
    spaces.Dict({k: spaces.Box(-9, 9, (2,), np.float32) for k in ("x", "y")}), spaces.Box(-1, 1, (1,), np.float32)
)


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def walk(seed, steps=6):
    rng = np.random.default_rng(seed)
    return Trajectory(
        obs={k: rng.normal(size=(steps + 1, 2)).astype(np.float32) for k in ("x", "y")},
        actions=rng.uniform(-1, 1, (steps, 1)).astype(np.float32),
        rewards=rng.normal(size=steps).astype(np.float32),
        terminated=np.zeros(steps, bool),
        truncated=np.arange(steps) == steps - 1,
        env_name="Task",
    )


@pytest.fixture
def path(tmp_path):
    with StoreWriter(tmp_path / "s", INFO) as writer:
        for seed in range(4):
            writer.append(walk(seed), f"demo_{seed}")
    return tmp_path / "s"


def only(path, pattern):
    (file,) = path.glob(f"protected/shard_*/{pattern}")
    return file


def flip(file, position):
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def first_window(store, number, columns=None):
    return store.gather(np.array([number]), np.arange(3)[None], columns)


def test_altered_rows_are_an_error_that_names_column_and_trajectory(path):
    flip(only(path, "obs%2Fx.bin"), -1)  # the last trajectory
    store = Store(path)
    for number in range(3):
        first_window(store, number)
    with pytest.raises(DataError, match=r"obs/x of the trajectory at row 21 \(demo_3\) is not what was written"):
        first_window(store, 3)  # of which the altered row is no part
    with pytest.raises(DataError, match=r"obs/x"):
        store.trajectory(3)
    with pytest.raises(DataError, match=r"obs/x"):
        SequenceDataset([Source(store, np.array([0, 3]))], 3).batch(8, seed=0, path=())


def test_only_columns_that_are_read_are_compared(path):
    flip(only(path, "obs%2Fx.bin"), 0)
    store = Store(path)
    rest = [name for name in store.schema if name != "obs/x"]
    first_window(store, 0, rest)
    dataset = SequenceDataset([Source(store, np.arange(4))], 3, keys=["y"])
    assert dataset.batch(32, seed=0, path=()).mask.any()
    with pytest.raises(DataError, match="obs/x"):
        first_window(store, 0)


def test_each_column_of_a_trajectory_is_compared_once(path, monkeypatch):
    store, compared = Store(path), []
    column_crc = shard.column_crc
    monkeypatch.setattr(shard, "column_crc", lambda name, rows: compared.append(name) or column_crc(name, rows))
    for _ in range(3):
        store.gather(np.array([0, 2, 0]), np.array([[0, 1]] * 3))
    assert sorted(compared) == sorted([*store.schema] * 2)
    with StoreWriter(path, INFO) as writer:
        writer.append(walk(9))
    store.refresh()
    compared.clear()
    store.gather(np.array([0, 2]), np.array([[0, 1]] * 2))
    assert compared == []
    first_window(store, 4)
    assert sorted(compared) == sorted(store.schema)


@pytest.mark.parametrize(("old", "new"), [("float32", "int32"), ("[\n      2\n    ]", "[\n      1,\n      2\n    ]")])
def test_bytes_are_not_read_as_another_dtype_or_shape(path, old, new):
    file = only(path, "schema.json")
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(DataError, match="is not what was written"):
        Store(path).trajectory(0)


def test_addresses_are_no_dtype(path):
    file = only(path, "schema.json")
    file.write_text(file.read_text().replace("float32", "object"))
    with pytest.raises(DataError, match="'object' is not one of numbers"):
        Store(path)


@pytest.mark.parametrize(
    ("old", "new"), [("Task", "Tusk"), ("demo_1", "demo_2"), ('"start_step": 0', '"start_step": 1')]
)
def test_an_altered_line_of_the_log_is_an_error(path, old, new):
    file = only(path, "commits.jsonl")
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=r"commits\.jsonl: damaged line .*its checksum differs"):
        Store(path)


def test_an_altered_head_is_an_error_that_says_what_to_do(path):
    file = path / "store.json"
    value = json.loads(file.read_text())
    value["env_id"] = "Other-v0"
    file.write_text(json.dumps(value))
    with pytest.raises(DataError, match=r"store\.json: it was changed .* remove its entry 'checksum'"):
        Store(path)
    del value["checksum"]
    file.write_text(json.dumps(value))
    assert Store(path).info.env_id == "Other-v0"


def test_rows_without_a_log_are_an_error(path):
    only(path, "commits.jsonl").unlink()
    with pytest.raises(DataError, match=r"its log commits\.jsonl is missing"):
        Store(path)


# -------------------------------------------------------------------------------------- earlier versions
@pytest.fixture
def old_path(path):
    """Return a store as it was written before lines and columns had checksums of their own."""
    log, schema = only(path, "commits.jsonl"), json.loads(only(path, "schema.json").read_text())
    lines = []
    for line in map(json.loads, log.read_text().splitlines()):
        del line["check"], line["crcs"]
        crc = 0
        for name in sorted(schema):
            dtype, shape = schema[name]
            rows = np.fromfile(log.parent / shard.column_file(name), dtype).reshape(-1, *shape)
            crc = zlib.crc32(rows[line["row"] : line["row"] + line["length"] + 1].tobytes(), crc)
        lines.append(json.dumps({**line, "crc": crc}) + "\n")
    log.write_text("".join(lines))
    head = {k: v for k, v in json.loads((path / "store.json").read_text()).items() if k != "checksum"}
    (path / "store.json").write_text(json.dumps(head))
    return path


def test_stores_of_an_earlier_version_are_read(old_path):
    store = Store(old_path)
    assert store.verify() == []
    for seed, got in enumerate(store.trajectories()):
        np.testing.assert_array_equal(got.obs["x"], walk(seed).obs["x"])
    with StoreWriter(old_path, INFO) as writer:
        writer.append(walk(4))
    store.refresh()
    assert len(store) == 5
    np.testing.assert_array_equal(store.trajectory(4).obs["y"], walk(4).obs["y"])


def test_their_one_checksum_covers_every_column(old_path):
    flip(only(old_path, "obs%2Fx.bin"), 0)
    store = Store(old_path)
    with pytest.raises(DataError, match="something of the trajectory at row 0"):
        first_window(store, 0, ["obs/y"])
    first_window(store, 1)


# ------------------------------------------------------------------------------------------------ JSON
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NaN", "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ("[1e999]", "1e999 is beyond the range"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' appears twice"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested more than 64 deep"),
        ('{"a": ' * 5000 + "1" + "}" * 5000, "nested more than 64 deep"),
        ("{", "Expecting property name"),
        ("9" * 5000, "integer string conversion"),
    ],
)
def test_what_is_no_json_is_refused(text, message):
    for form in (text, text.encode()):
        with pytest.raises(ValueError, match=message):
            parse_json(form)


def test_json_is_read():
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    value = {"a": [1, 2.5, None, True, "é"], "wide": [[]] * 100}
    assert parse_json(json.dumps(value)) == parse_json(json.dumps(value).encode()) == value
    assert json.dumps(parse_json(deep)) == deep


def test_a_seal_survives_a_file_and_tells_changes():
    value = {"b": (1, 2), "a": {"x": 0.1, "y": None}, "é": "ü"}
    written = json.loads(json.dumps(sealed(value)))
    assert unsealed(written) == {"b": [1, 2], "a": {"x": 0.1, "y": None}, "é": "ü"}
    assert unsealed({"a": 1}) == {"a": 1}
    with pytest.raises(ValueError, match="changed"):
        unsealed({**written, "é": "u"})
    with pytest.raises(ValueError, match="changed"):
        unsealed({**written, "more": 1})
