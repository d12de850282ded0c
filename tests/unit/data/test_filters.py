"""Filter keys split and subset episodes, in files and in stores, and nothing that happens loses data."""

import json
import os
import shutil

import h5py
import numpy as np
import pytest

from seqrl.core.errors import DataError
from seqrl.data import Store, StoreWriter, in_place, ingest
from seqrl.data.episodes import split_by_episode
from seqrl.data.filters import random_subset, read_filters, split_train_val, write_filters
from seqrl.data.writers.robomimic import write_robomimic
from tests.unit.data.test_hdf5 import INFO, trajectory

NAMES = [f"demo_{i}" for i in range(12)]


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(params=["file", "store"])
def dataset(request, tmp_path):
    """Twelve episodes, with the filters ``train`` (two of them) and ``valid``."""
    episodes = [trajectory(i, 3) for i in range(12)]
    if request.param == "file":
        path = tmp_path / "d" / "data.hdf5"
        write_robomimic(path, INFO, episodes)
        return path
    with StoreWriter(tmp_path / "d" / "store", INFO) as writer:
        for name, episode in zip(NAMES, episodes, strict=True):
            writer.append(episode, name)
    return tmp_path / "d" / "store"


def content(path):
    """All bytes of a dataset's episodes."""
    if path.is_dir():
        return [{k: v.tobytes() for k, v in t.obs.items()} for t in Store(path).trajectories()]
    with h5py.File(path) as file:
        found = {}
        file["data"].visititems(lambda n, i: found.update({n: i[()].tobytes()} if isinstance(i, h5py.Dataset) else {}))
        return found


def test_a_split_is_written_and_the_data_stays(dataset):
    before = content(dataset)
    new = split_train_val(dataset, 0.25, seed=0, key=None, names=("train", "valid"))
    assert sorted(new["train"] + new["valid"], key=NAMES.index) == NAMES
    assert (len(new["train"]), len(new["valid"])) == (9, 3)
    with pytest.raises(DataError, match=r"already has train and valid among its filters; pass --overwrite"):
        write_filters(dataset, new)
    assert read_filters(dataset) == (NAMES, INFO.filters)
    write_filters(dataset, new, overwrite=True)
    assert read_filters(dataset) == (NAMES, new)
    assert content(dataset) == before
    assert len(os.listdir(dataset.parent)) == 1


def test_the_split_is_that_of_training(dataset):
    new = split_train_val(dataset, 0.25, seed=3, key=None, names=("a", "b"))
    write_filters(dataset, new)
    if dataset.is_dir():
        store = Store(dataset)
        train, valid = split_by_episode(store, 0.25, 3)
        assert [[store.names[i] for i in part] for part in (train, valid)] == [new["a"], new["b"]]
    assert new != split_train_val(dataset, 0.25, seed=4, key=None, names=("a", "b"))
    assert read_filters(dataset)[1].keys() == {"train", "valid", "a", "b"}


def test_a_key_is_split_into_keys_of_its_name(dataset):
    new = split_train_val(dataset, 0.5, seed=0, key="train", names=("train", "valid"))
    assert new.keys() == {"train_train", "train_valid"}
    assert sorted(new["train_train"] + new["train_valid"]) == ["demo_0", "demo_2"]
    with pytest.raises(DataError, match=r"no filter key 'trian'; did you mean 'train'\?; it has: train, valid"):
        split_train_val(dataset, 0.5, seed=0, key="trian", names=("train", "valid"))
    with pytest.raises(DataError, match="a split needs at least two episodes, but there is 1"):
        split_train_val(dataset, 0.5, seed=0, key="valid", names=("train", "valid"))


def test_subsets_of_one_seed_are_nested(dataset):
    subsets = [random_subset(dataset, n, seed=5, key=None)[f"{n}_demos"] for n in (2, 5, 11)]
    assert [len(s) for s in subsets] == [2, 5, 11]
    assert set(subsets[0]) < set(subsets[1]) < set(subsets[2])
    assert subsets[1] != random_subset(dataset, 5, seed=6, key=None)["5_demos"]
    assert random_subset(dataset, 1, seed=0, key="valid") == {"valid_1_demos": ["demo_1"]}
    with pytest.raises(DataError, match="13 episodes were asked for, but there are 12"):
        random_subset(dataset, 13, seed=0, key=None)
    for n, names in zip((2, 5), subsets, strict=False):
        write_filters(dataset, {f"{n}_demos": names})
    assert read_filters(dataset)[1] == {**INFO.filters, "2_demos": subsets[0], "5_demos": subsets[1]}


def test_a_failure_at_any_moment_leaves_the_dataset_as_it_was(dataset, monkeypatch):
    kept = dataset if dataset.is_file() else dataset / "store.json"
    before = kept.read_bytes()

    def fail(*_):
        raise KeyboardInterrupt

    for where, name in ((shutil, "copy"), (os, "replace"), (h5py.Group, "__setitem__")):
        if dataset.is_dir() and name != "replace":
            continue
        with monkeypatch.context() as patched:
            patched.setattr(where, name, fail)
            with pytest.raises(KeyboardInterrupt):
                write_filters(dataset, {"new": ["demo_0"]})
        assert kept.read_bytes() == before
        assert not list(dataset.parent.rglob("*.tmp"))


def test_a_file_that_changes_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a.hdf5"
    write_robomimic(path, INFO, [trajectory(i, 3) for i in range(3)])
    copy = shutil.copy

    def copy_slowly(source, target):
        copy(source, target)
        os.utime(source, ns=(0, 0))

    monkeypatch.setattr(shutil, "copy", copy_slowly)
    with pytest.raises(DataError, match="was changed in the meantime"):
        write_filters(path, {"new": ["demo_0"]})
    assert read_filters(path)[1] == INFO.filters


def test_a_link_stays_a_link(tmp_path):
    path, link = tmp_path / "a.hdf5", tmp_path / "link.hdf5"
    write_robomimic(path, INFO, [trajectory(i, 3) for i in range(3)])
    link.symlink_to(path)
    write_filters(link, {"new": ["demo_0"]})
    assert link.is_symlink()
    assert "new" in read_filters(path)[1]


def test_what_cannot_hold_a_filter_is_refused(tmp_path, dataset, monkeypatch):
    with pytest.raises(DataError, match=r"a filter's name may contain letters.*'a/b'"):
        write_filters(dataset, {"a/b": ["demo_0"]})
    (tmp_path / "bad.hdf5").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"bad\.hdf5: not a readable robomimic HDF5 file"):
        read_filters(tmp_path / "bad.hdf5")
    with pytest.raises(DataError, match="nothing does not exist"):
        read_filters(tmp_path / "nothing")
    (tmp_path / "text.txt").write_text("")
    with pytest.raises(DataError, match="neither a seqrl store nor a robomimic file"):
        read_filters(tmp_path / "text.txt")
    with StoreWriter(tmp_path / "nameless", INFO) as writer:
        writer.append(trajectory(0, 3))
    with pytest.raises(DataError, match=r"some have no name; 'seqrl convert-dataset' writes a copy"):
        random_subset(tmp_path / "nameless", 1, seed=0, key=None)
    if dataset.is_file():
        monkeypatch.setattr(in_place, "check_space", lambda *_: (_ for _ in ()).throw(DataError("too large")))
        with pytest.raises(DataError, match="too large"):
            write_filters(dataset, {"new": ["demo_0"]})


def test_other_entries_of_a_store_stay(tmp_path):
    with StoreWriter(tmp_path, INFO) as writer:
        writer.append(trajectory(0, 3), "demo_0")
    before = json.loads((tmp_path / "store.json").read_text())
    write_filters(tmp_path, {"new": ["demo_0"]})
    after = json.loads((tmp_path / "store.json").read_text())
    assert after.pop("filters") == {**before.pop("filters"), "new": ["demo_0"]}
    assert after.pop("checksum") != before.pop("checksum")
    assert after == before
    np.testing.assert_array_equal(Store(tmp_path).trajectory(0).rewards, trajectory(0, 3).rewards)


@pytest.mark.parametrize("options", [{}, {"dones_mean": "truncated"}])
def test_a_file_that_was_read_is_not_read_again_for_more_filters(tmp_path, monkeypatch, options):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "data.hdf5"
    write_robomimic(path, INFO, [trajectory(i, 4) for i in range(3)])
    before = ingest.open_store(str(path), options)
    write_filters(path, {"some": ["demo_0", "demo_2"]})
    monkeypatch.setattr(ingest, "_ingest", None)
    after = ingest.open_store(str(path), options)
    assert after.info.filters == {**before.info.filters, "some": ["demo_0", "demo_2"]}
    assert "some" not in before.info.filters
    assert after.verify() == []
    assert np.array_equal(before.trajectory(1).actions, after.trajectory(1).actions)
    blobs = [sorted(p.stat().st_ino for p in s.path.rglob("*.bin")) for s in (before, after)]
    assert blobs[0] == blobs[1]


def test_what_a_killed_ingestion_left_is_deleted_a_day_later(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "data.hdf5"
    write_robomimic(path, INFO, [trajectory(0, 4)])
    name = ingest.path_of_cached(path, ingest.content_of(path), {}).name
    old, young = (tmp_path / "cache" / f".{name}.{c * 8}.tmp" for c in "ab")
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    ingest.open_store(str(path))
    assert not old.exists()
    assert young.exists()
