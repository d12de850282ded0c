"""A dataset that is converted there and back is the same, and its size is known before it is read."""

import json
import logging
import os
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.strict_json import sealed, unsealed
from seqrl.core.types import Trajectory
from seqrl.data import Store, StoreInfo, StoreWriter
from seqrl.data.convert import convert
from seqrl.data.disk_space import LOG_LINE_BYTES
from seqrl.data.ingest import cache_folder, open_store
from seqrl.data.readers.robomimic import predicted_size
from tests.unit.data.test_hdf5 import STEPS, fill_demo

FIELDS = ("actions", "rewards", "terminated", "truncated", "prev_action", "action_mask")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


def same_array(a, b):
    return (a is None) == (b is None) and (a is None or (a.dtype == b.dtype and np.array_equal(a, b)))


def assert_same(a, b):
    """Compare two stores, entry by entry and bit by bit."""
    assert a.names == b.names
    assert replace(a.info, source="") == replace(b.info, source="")
    assert a.schema == b.schema
    for one, other in zip(a.trajectories(), b.trajectories(), strict=True):
        for group in ("obs", "goal"):
            assert getattr(one, group).keys() == getattr(other, group).keys()
            assert all(same_array(v, getattr(other, group)[k]) for k, v in getattr(one, group).items())
        assert all(same_array(getattr(one, f), getattr(other, f)) for f in FIELDS)
        assert (one.env_name, one.start_step, one.prev_reward) == (other.env_name, other.start_step, other.prev_reward)


def rich_episode(seed, steps, kind):
    """An episode with everything: doubles, pixels, bools, goals, masks, and a piece of a longer one."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 5, steps) if kind == "discrete" else rng.uniform(-2, 3, (steps, 2))
    mask = None
    if kind == "discrete":
        mask = rng.random((steps + 1, 5)) < 0.5
        mask[:, 0] = mask[np.arange(steps), actions] = True
    return Trajectory(
        obs={
            "b": rng.random((steps + 1, 3)) < 0.5,
            "double": rng.random((steps + 1, 1)),
            "half": rng.random((steps + 1, 2)).astype(np.float16),
            "image": rng.integers(0, 256, (steps + 1, 2, 3, 3), dtype=np.uint8),
            "sub/int": rng.integers(-9, 9, steps + 1),
        },
        actions=actions,
        rewards=rng.random(steps).astype(np.float32),
        terminated=np.arange(steps) == steps - 1 if seed % 3 == 0 else np.zeros(steps, bool),
        truncated=np.arange(steps) == steps - 1 if seed % 3 == 1 else np.zeros(steps, bool),
        env_name=f"Task{seed % 2}",
        start_step=7 * (seed % 2),
        prev_action=actions[0] if seed % 2 else None,
        prev_reward=float(np.float32(0.3)) * (seed % 2),
        goal={"g": rng.random((steps + 1, 2)).astype(np.float32)},
        action_mask=mask,
    )


OBSERVATIONS = spaces.Dict(
    {
        "b": spaces.MultiBinary(3),
        "double": spaces.Box(0, 1, (1,), np.float64),
        "half": spaces.Box(0, 1, (2,), np.float16),
        "image": spaces.Box(0, 255, (2, 3, 3), np.uint8),
        "sub": spaces.Dict({"int": spaces.Box(-9, 9, (), np.int64)}),
    }
)
ACTIONS = {"discrete": spaces.Discrete(5), "box": spaces.Box(-2.0, 3.0, (2,), np.float64)}


def rich_store(path, names, kind="discrete", **info):
    values = {"env_id": "Maze-v0", "env_kwargs": {"size": 3}, "filters": {"train": names[:2], "valid": names[2:]}}
    with StoreWriter(path, StoreInfo(OBSERVATIONS, ACTIONS[kind], **{**values, **info})) as writer:
        for i, name in enumerate(names):
            writer.append(rich_episode(i, 3 + i, kind), name)
    return Store(path)


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("spaces_are_known", [True, False])
def test_store_to_file_and_back_is_exact(tmp_path, kind, spaces_are_known):
    store = rich_store(tmp_path / "a", ["demo_2", "demo_3", "demo_10"], kind, spaces_are_known=spaces_are_known)
    assert convert(tmp_path / "a", tmp_path / "b.hdf5") == 3
    with h5py.File(tmp_path / "b.hdf5") as file:
        assert sorted(file["data"]) == ["demo_10", "demo_2", "demo_3"]
    assert convert(tmp_path / "b.hdf5", tmp_path / "c") == 3
    assert_same(store, Store(tmp_path / "c"))
    assert Store(tmp_path / "c").verify() == []


def test_names_that_robomimic_cannot_read_change_in_the_filters_too(tmp_path):
    store = rich_store(tmp_path / "a", ["good", "", "good", "demo_0"], filters={"some": ["good"], "last": ["demo_0"]})
    convert(tmp_path / "a", tmp_path / "b.hdf5")
    back = open_store(str(tmp_path / "b.hdf5"))
    assert back.names == ["demo_0", "demo_1", "demo_2", "demo_3"]
    assert back.info.filters == {"some": ["demo_0", "demo_2"], "last": ["demo_3"]}
    for i in range(4):
        assert same_array(store.trajectory(i).actions, back.trajectory(i).actions)


def test_without_next_obs_none_are_made_up(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for i in range(2):
            fill_demo(file.create_group(f"data/demo_{i}"), i, next_obs=False)
    convert(tmp_path / "a.hdf5", tmp_path / "b")
    convert(tmp_path / "b", tmp_path / "c.hdf5")
    with h5py.File(tmp_path / "c.hdf5") as file:
        assert "next_obs" not in file["data/demo_0"]
    assert not Store(tmp_path / "b").info.has_next_obs
    assert_same(Store(tmp_path / "b"), open_store(str(tmp_path / "c.hdf5")))
    assert not open_store(str(tmp_path / "c.hdf5")).info.spaces_are_known


def test_a_store_can_be_copied_into_one_with_names(tmp_path):
    rich_store(tmp_path / "a", ["", "", ""], filters={})
    assert convert(tmp_path / "a", tmp_path / "b") == 3
    assert Store(tmp_path / "b").names == ["demo_0", "demo_1", "demo_2"]


def test_what_is_there_is_replaced_only_on_request(tmp_path):
    rich_store(tmp_path / "a", ["demo_0", "demo_1", "demo_2"])
    (tmp_path / "b.hdf5").write_bytes(b"precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("precious")
    with pytest.raises(DataError, match=r"b\.hdf5 exists; pass --overwrite"):
        convert(tmp_path / "a", tmp_path / "b.hdf5")
    assert (tmp_path / "b.hdf5").read_bytes() == b"precious"
    for overwrite in (True, False):
        with pytest.raises(DataError, match="is not a store, so it is not replaced"):
            convert(tmp_path / "a", tmp_path / "folder", overwrite=overwrite)
    for target in (tmp_path / "a", tmp_path):
        with pytest.raises(DataError, match="is, or contains, the data to convert"):
            convert(tmp_path / "a", target, overwrite=True)
    convert(tmp_path / "a", tmp_path / "b.hdf5", overwrite=True)
    convert(tmp_path / "b.hdf5", tmp_path / "c")
    convert(tmp_path / "b.hdf5", tmp_path / "c", overwrite=True)
    assert_same(Store(tmp_path / "a"), Store(tmp_path / "c"))
    with pytest.raises(DataError, match="a is a store, which knows its time limits"):
        convert(tmp_path / "a", tmp_path / "d.hdf5", options={"dones_mean": "truncated"})
    with pytest.raises(DataError, match="is already a robomimic file"):
        convert(tmp_path / "b.hdf5", tmp_path / "d.hdf5")
    assert (tmp_path / "folder" / "x").read_text() == "precious"


@pytest.mark.parametrize("target", ["b.hdf5", "b"])
def test_a_failed_conversion_leaves_nothing(tmp_path, monkeypatch, target):
    rich_store(tmp_path / "a", ["demo_0", "demo_1", "demo_2"])

    def fail(self, number):
        raise DataError("stop") if number == 2 else KeyError

    monkeypatch.setattr(Store, "trajectory", lambda self, n: rich_episode(n, 4, "discrete") if n < 2 else fail(self, n))
    with pytest.raises(DataError, match="stop"):
        convert(tmp_path / "a", tmp_path / target)
    assert os.listdir(tmp_path) == ["a"]


# ----------------------------------------------------------------------------------------------- size
@pytest.mark.parametrize("kind", ["plain", "masked", "compressed"])
def test_the_predicted_size_is_the_size(tmp_path, kind):
    path = tmp_path / "a.hdf5"
    if kind == "masked":
        rich_store(tmp_path / "s", [f"demo_{i}" for i in range(5)])
        convert(tmp_path / "s", path)
    else:
        with h5py.File(path, "w") as file:
            for i in range(5):
                demo = file.create_group(f"data/demo_{i}")
                fill_demo(demo, i)
                if kind == "compressed":
                    for group in ("obs", "next_obs"):
                        demo.create_dataset(
                            f"{group}/zeros", data=np.zeros((4, 100, 100), np.uint8), compression="gzip"
                        )
    size, store = predicted_size(path), open_store(str(path))
    assert (size.episodes, size.transitions) == (len(store), store.num_transitions)
    rows = (store.num_transitions + len(store)) * store._shards[0].row_bytes
    assert size.num_bytes - LOG_LINE_BYTES * len(store) == rows
    assert rows < store.num_bytes <= size.num_bytes


def test_a_file_whose_store_does_not_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch, caplog):
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        for group in ("obs", "next_obs"):
            file.create_dataset(f"data/demo_0/{group}/x", (10**4, 1000), np.float32)  # never written: no bytes on disk
        file["data/demo_0/actions"] = np.zeros((10**4, 2), np.float32)
    monkeypatch.setattr(shutil, "disk_usage", lambda p: shutil._ntuple_diskusage(10**10, 10**10, 10**7))
    match = r"1 episodes, 10000 transitions, 40\.1 MB\) takes 0\.0401 GB, but only 0\.01 GB are free .*SEQRL_CACHE_DIR"
    with pytest.raises(DataError, match=match):
        open_store(str(path))
    with pytest.raises(DataError, match=r"only 0\.01 GB are free"):
        convert(path, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert not any(cache_folder().glob("[0-9a-f]*"))


def test_the_size_is_told_before_the_file_is_read(tmp_path, monkeypatch):
    rich_store(tmp_path / "s", ["demo_0", "demo_1", "demo_2"])
    convert(tmp_path / "s", tmp_path / "a.hdf5")
    messages = []
    monkeypatch.setattr(
        logging.getLogger("seqrl.data.ingest"), "info", lambda text, *args: messages.append(text % args)
    )
    open_store(str(tmp_path / "a.hdf5"))
    assert len(messages) == 1
    assert "3 episodes, 12 transitions" in messages[0]
    assert "GB are free" in messages[0]


def test_the_size_of_a_damaged_file_is_left_to_its_reader(tmp_path):
    (tmp_path / "a.hdf5").write_bytes(b"hello")
    assert predicted_size(tmp_path / "a.hdf5") is None


# ------------------------------------------------------------------------------ what only robomimic has
def everything(path):
    """Return path -> content of every dataset, and (path, name) -> value of every attribute."""
    found = {}
    with h5py.File(path) as file:

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                found[name] = item[()]
            for key, value in item.attrs.items():
                found[name, key] = value

        visit("", file)
        file.visititems(visit)
    return found


def robosuite_file(path):
    """Write a file as robomimic's own tools leave it after demonstrations in robosuite."""
    args = {"env_name": "Lift", "type": 1, "env_version": "1.4.1", "env_kwargs": {"robots": ["Panda"], "horizon": 400}}
    with h5py.File(path, "w") as file:
        file.attrs["made_on"] = "a day"
        file.create_group("meta")["calibration"] = np.eye(3)
        data = file.create_group("data")
        data.attrs.update(
            {"env_args": json.dumps(args, indent=4), "total": 3 * STEPS, "date": "2026", "scale": np.float32(2)}
        )
        for k in range(3):
            demo = data.create_group(f"demo_{k}")
            steps = len(fill_demo(demo, k)) - 1
            demo.attrs.update({"num_samples": steps, "model_file": f"<mujoco {k}/>", "marks": np.arange(k + 1)})
            demo["states"] = np.random.default_rng(k).random((steps, 7))
            demo["action_dict/abs_pos"] = np.random.default_rng(k).random((steps, 3)).astype(np.float32)
            demo.create_dataset("action_dict/gripper", data=np.ones((steps, 1)), compression="gzip")
        file["mask/train"] = np.array([b"demo_0", b"demo_2"])
        file["mask/valid"] = np.array([b"demo_1"])


@pytest.mark.parametrize("copies", [0, 1])
def test_a_robomimic_file_is_whole_after_there_and_back(tmp_path, copies):
    source, store, back = tmp_path / "lift.hdf5", tmp_path / "store", tmp_path / "back.hdf5"
    robosuite_file(source)
    with h5py.File(source, "r+") as file:
        file["data/demo_0/obs"].attrs["camera"] = "front"
        file["data/demo_1/actions"].attrs["unit"] = "m"
        file["mask/train"].attrs["seed"] = 7
        file["data/demo_2/dones"][-3:] = 1
    convert(source, store)
    for k in range(copies):
        convert(store, tmp_path / f"copy{k}")
        store = tmp_path / f"copy{k}"
    convert(store, back)
    before, after = everything(source), everything(back)
    assert len([k for k in before if "states" in k or "action_dict" in k or "model_file" in k]) == 12
    for key, value in before.items():
        wanted = value.astype(np.float32) if "rewards" in key else value
        assert np.array_equal(np.asarray(after[key]), np.asarray(wanted)), key


def test_the_environment_of_a_store_that_was_changed_is_written(tmp_path):
    source, store, back = tmp_path / "lift.hdf5", tmp_path / "store", tmp_path / "back.hdf5"
    robosuite_file(source)
    convert(source, store)
    values = unsealed(json.loads((store / "store.json").read_text()))
    (store / "store.json").write_text(json.dumps(sealed({**values, "env_id": "Stack-v0"})))
    convert(store, back)
    assert json.loads(everything(back)["data", "env_args"])["env_name"] == "Stack-v0"
    assert "data/demo_0/states" in everything(back)


@pytest.mark.parametrize("how", ["link", "storage", "virtual"])
@pytest.mark.parametrize("where", ["obs/x", "states", "actions"])
def test_what_lies_in_other_files_is_not_read(tmp_path, how, where):
    source, secret = tmp_path / "lift.hdf5", tmp_path / "secret"
    robosuite_file(source)
    with h5py.File(f"{secret}.hdf5", "w") as file:
        file["x"] = np.zeros((STEPS, 3))
    secret.write_bytes(b"secret" * 40)
    with h5py.File(source, "r+") as file:
        demo = file["data/demo_1"]
        del demo[where]
        if how == "link":
            demo[where] = h5py.ExternalLink(f"{secret}.hdf5", "x")
        elif how == "storage":
            demo.create_dataset(where, (STEPS, 3), "f8", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
        else:
            layout = h5py.VirtualLayout((STEPS, 3), "f8")
            layout[:] = h5py.VirtualSource(f"{secret}.hdf5", "x", (STEPS, 3))
            demo.create_virtual_dataset(where, layout)
    with pytest.raises(DataError, match="other file"):
        convert(source, tmp_path / "store")
    assert not (tmp_path / "store").exists()
