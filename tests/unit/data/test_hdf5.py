"""robomimic files are read as they are meant, refused by name where they are broken, and read once."""

import json
import logging
import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from gymnasium import spaces

import seqrl
from seqrl.configs.sections.run import DataSection
from seqrl.core.errors import ConfigError, DataError
from seqrl.core.types import Trajectory
from seqrl.data import Store, StoreInfo, StoreWriter
from seqrl.data.ingest import cache_folder, cached_store, open_store
from seqrl.data.readers import robomimic
from seqrl.data.writers.robomimic import write_robomimic

STEPS = 4


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    """Durability is not tested here, and syncing hundreds of files is slow."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def cached(folder):
    """Names in the cache, temporary ones included."""
    return sorted(p.name for p in folder.iterdir() if p.name != ".walked") if folder.exists() else []


def fill_demo(demo, seed, *, next_obs=True):
    rng = np.random.default_rng(seed)
    obs = rng.random((STEPS + 1, 3)).astype(np.float32)
    demo["obs/x"] = obs[:-1]
    if next_obs:
        demo["next_obs/x"] = obs[1:]
    demo["actions"] = rng.uniform(-1, 1, (STEPS, 2))
    demo["rewards"] = rng.random(STEPS)
    demo["dones"] = (np.arange(STEPS) == STEPS - 1).astype(np.int64)
    return obs


@pytest.fixture
def make(tmp_path):
    """Write a robomimic file with plain h5py, as other tools do, and return its path."""

    def build(change=None, *, name="data.hdf5", num=3, next_obs=True):
        path = tmp_path / name
        with h5py.File(path, "w") as file:
            for i in range(num):
                fill_demo(file.create_group(f"data/demo_{i}"), i, next_obs=next_obs)
            if change is not None:
                change(file)
        return str(path)

    return build


def replace(file, name, value):
    del file[name]
    if value is not None:
        file[name] = value


# --------------------------------------------------------------------------------------- own round trip
def trajectory(seed, steps, **changes):
    rng = np.random.default_rng(seed)
    last = np.arange(steps) == steps - 1
    fields = {
        "obs": {
            "image": rng.integers(0, 256, (steps + 1, 2, 2, 1), dtype=np.uint8),
            "sub/x": rng.random((steps + 1, 2)).astype(np.float32),
        },
        "actions": rng.integers(0, 5, steps),
        "rewards": rng.random(steps).astype(np.float32),
        "terminated": last & (seed % 3 == 0),
        "truncated": last & (seed % 3 == 1),
        "env_name": f"Task{seed}",
    }
    return Trajectory(**{**fields, **changes})


INFO = StoreInfo(
    spaces.Dict({"image": spaces.Box(0, 255, (2, 2, 1), np.uint8), "sub": spaces.Dict({"x": spaces.Box(0, 1, (2,))})}),
    spaces.Discrete(5),
    env_id="Maze-v0",
    env_kwargs={"size": 3},
    filters={"train": ["demo_0", "demo_2"], "valid": ["demo_1"]},
)


def test_written_trajectories_are_read_back(tmp_path):
    written = [trajectory(i, 3 + i) for i in range(3)]
    assert write_robomimic(tmp_path / "out" / "a.hdf5", INFO, iter(written)) == 3
    store = open_store(str(tmp_path / "out" / "a.hdf5"))
    assert store.names == ["demo_0", "demo_1", "demo_2"]
    for got, wanted in zip(store.trajectories(), written, strict=True):
        assert got.obs.keys() == wanted.obs.keys()
        for key in wanted.obs:
            assert got.obs[key].dtype == wanted.obs[key].dtype
            np.testing.assert_array_equal(got.obs[key], wanted.obs[key])
        for key in ("actions", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(got, key), getattr(wanted, key))
    info = store.info
    assert (info.observation_space, info.action_space) == (INFO.observation_space, INFO.action_space)
    assert (info.env_id, info.env_kwargs, info.filters) == (INFO.env_id, INFO.env_kwargs, INFO.filters)
    assert info.has_next_obs


def test_names_of_tasks_are_read_back(tmp_path):
    write_robomimic(tmp_path / "a.hdf5", INFO, [trajectory(i, 3) for i in range(2)])
    assert open_store(str(tmp_path / "a.hdf5")).env_names == ["Task0", "Task1"]


def test_pieces_goals_and_action_masks_are_read_back(tmp_path):
    mask = np.random.default_rng(0).random((4, 5)) < 0.7
    mask[:, 0] = True
    mask[np.arange(3), trajectory(2, 3).actions] = True
    goal = {"g": np.arange(8, dtype=np.float32).reshape(4, 2)}
    piece = trajectory(2, 3, start_step=7, prev_action=np.int64(4), prev_reward=0.5, action_mask=mask, goal=goal)
    write_robomimic(tmp_path / "a.hdf5", INFO, [piece])
    got = open_store(str(tmp_path / "a.hdf5")).trajectory(0)
    assert (got.start_step, int(got.prev_action), got.prev_reward) == (7, 4, 0.5)
    np.testing.assert_array_equal(got.action_mask, mask)
    np.testing.assert_array_equal(got.goal["g"], goal["g"])


def test_written_file_is_what_robomimic_expects(tmp_path):
    wanted = trajectory(0, 3)
    write_robomimic(tmp_path / "a.hdf5", INFO, [wanted])
    with h5py.File(tmp_path / "a.hdf5", "r") as file:
        demo = file["data/demo_0"]
        assert file["data"].attrs["total"] == demo.attrs["num_samples"] == 3
        assert json.loads(file["data"].attrs["env_args"])["env_name"] == "Maze-v0"
        np.testing.assert_array_equal(demo["obs/sub/x"], wanted.obs["sub/x"][:-1])
        np.testing.assert_array_equal(demo["next_obs/sub/x"], wanted.obs["sub/x"][1:])
        assert demo["dones"][()].tolist() == [0, 0, 1]
        assert [n.decode() for n in file["mask/train"]] == ["demo_0", "demo_2"]


def test_a_failed_write_leaves_the_old_file_and_no_temporary(tmp_path):
    path = tmp_path / "out" / "a.hdf5"
    write_robomimic(path, INFO, [trajectory(0, 3)])
    before = path.read_bytes()

    def failing():
        yield trajectory(1, 3)
        raise KeyError("stop")

    with pytest.raises(KeyError):
        write_robomimic(path, INFO, failing())
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["a.hdf5"]


# ----------------------------------------------------------------------------------------- foreign files
@pytest.mark.parametrize("name", ["data.hdf5", "data.h5"])
def test_plain_file_with_next_obs(make, name):
    store = open_store(make(name=name))
    assert len(store) == 3
    for i, got in enumerate(store.trajectories()):
        rng = np.random.default_rng(i)
        np.testing.assert_array_equal(got.obs["x"], rng.random((STEPS + 1, 3)).astype(np.float32))
        np.testing.assert_array_equal(got.actions, rng.uniform(-1, 1, (STEPS, 2)))
        np.testing.assert_array_equal(got.rewards, rng.random(STEPS).astype(np.float32))
        assert got.terminated.tolist() == [False, False, False, True]
        assert not got.truncated.any()
        assert got.start_step == 0
    info = store.info
    assert info.has_next_obs
    assert info.action_space == spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert info.observation_space == spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (3,), np.float32)})
    assert (info.env_id, info.env_kwargs, info.filters) == (None, {}, {})


def test_without_next_obs_the_last_one_is_repeated_and_said(make):
    store = open_store(make(next_obs=False))
    obs = store.trajectory(0).obs["x"]
    assert obs.shape == (STEPS + 1, 3)
    np.testing.assert_array_equal(obs[:-1], np.random.default_rng(0).random((STEPS + 1, 3)).astype(np.float32)[:-1])
    np.testing.assert_array_equal(obs[-1], obs[-2])
    assert not store.info.has_next_obs


def test_next_obs_missing_in_one_episode_counts_as_missing(make, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("seqrl"), "propagate", True)
    assert not open_store(make(lambda f: replace(f, "data/demo_1/next_obs", None))).info.has_next_obs
    assert "data/demo_1 has no next_obs, so those of the other episodes are not used" in caplog.text


@pytest.mark.parametrize(
    ("dones", "dones_mean", "terminated", "truncated"),
    [
        ([0, 0, 0, 1], "terminated", True, False),
        ([0, 0, 0, 1], "truncated", False, True),
        ([0, 0, 0, 0], "terminated", False, True),
        ([0, 0, 0, 0], "truncated", False, True),
        ([0, 1, 1, 1], "terminated", True, False),
        ([0, 1, 0, 0], "terminated", False, True),
        (None, "terminated", False, True),
    ],
)
def test_dones_say_how_an_episode_ended(make, dones, dones_mean, terminated, truncated):
    """robomimic marks success in dones and goes on; only the last step can end a trajectory."""
    path = make(lambda f: replace(f, "data/demo_1/dones", dones))
    got = open_store(path, {"dones_mean": dones_mean}).trajectory(1)
    assert got.terminated.tolist() == [False, False, False, terminated]
    assert got.truncated.tolist() == [False, False, False, truncated]


def test_dones_mean_is_part_of_the_cache_key(make):
    path = make()
    assert open_store(path, {"dones_mean": "terminated"}).trajectory(0).terminated[-1]
    assert open_store(path, {"dones_mean": "truncated"}).trajectory(0).truncated[-1]


def test_columns_of_one_number_are_numbers(make):
    def change(file):
        for demo in file["data"].values():
            for key in ("rewards", "dones"):
                replace(demo, key, np.asarray(demo[key])[:, None])

    plain, columns = open_store(make()), open_store(make(change, name="columns.hdf5"))
    for got, expected in zip(columns.trajectories(), plain.trajectories(), strict=True):
        np.testing.assert_array_equal(got.rewards, expected.rewards)
        np.testing.assert_array_equal(got.terminated, expected.terminated)


def test_rewards_are_optional_and_zero(make):
    got = open_store(make(lambda f: replace(f, "data/demo_1/rewards", None))).trajectory(1)
    assert got.rewards.tolist() == [0.0] * STEPS


def test_mask_groups_become_filters(make):
    def add(file):
        file["mask/train"] = [b"demo_0", b"demo_2"]
        file["mask/valid"] = ["demo_1"]

    assert open_store(make(add)).info.filters == {"train": ["demo_0", "demo_2"], "valid": ["demo_1"]}


def test_nested_groups_and_dtypes_of_observations(make):
    def add(file):
        for i in range(3):
            for group, first in (("obs", 0), ("next_obs", 1)):
                rows = np.arange(first, first + STEPS)
                file[f"data/demo_{i}/{group}/robot/arm/angle"] = rows.astype(np.float64)
                file[f"data/demo_{i}/{group}/robot/camera"] = np.tile(rows.astype(np.uint8)[:, None, None], (1, 2, 2))

    store = open_store(make(add))
    got = store.trajectory(0).obs
    assert list(got) == ["robot/arm/angle", "robot/camera", "x"]
    assert got["robot/arm/angle"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert got["robot/camera"].dtype == np.uint8
    assert got["robot/camera"][:, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert store.info.observation_space["robot/camera"] == spaces.Box(0, 255, (2, 2), np.uint8)


def test_episodes_are_in_the_order_of_their_numbers(make):
    assert open_store(make(num=12)).names == [f"demo_{i}" for i in range(12)]


def test_env_args_name_the_environment(make):
    def add(file):
        file["data"].attrs["env_args"] = json.dumps({"env_name": "Lift", "env_kwargs": {"horizon": 9}, "type": 1})

    store = open_store(make(add))
    assert (store.info.env_id, store.info.env_kwargs) == ("robosuite/Lift", {"horizon": 9})
    assert store.env_names == ["robosuite/Lift"] * 3


def test_vectors_of_integers_are_discrete_actions(make):
    def change(file):
        for i in range(3):
            replace(file, f"data/demo_{i}/actions", np.array([0, 1, 2, 1 + i]))

    assert open_store(make(change)).info.action_space == spaces.Discrete(4)


# -------------------------------------------------------------------------------------------- broken files
BROKEN = {
    "no data": lambda f: replace(f, "data", None),
    "no episode": lambda f: (replace(f, "data", None), f.create_group("data")),
    "no actions": lambda f: replace(f, "data/demo_1/actions", None),
    "no obs": lambda f: replace(f, "data/demo_1/obs", None),
    "data is a dataset": lambda f: replace(f, "data", np.zeros(3)),
    "obs is a dataset": lambda f: replace(f, "data/demo_1/obs", np.zeros((STEPS, 3))),
    "episode is a dataset": lambda f: replace(f, "data/demo_1", np.zeros(3)),
    "rewards too short": lambda f: replace(f, "data/demo_1/rewards", np.zeros(2)),
    "dones too long": lambda f: replace(f, "data/demo_1/dones", np.zeros(9)),
    "obs too short": lambda f: replace(f, "data/demo_1/obs/x", np.zeros((2, 3), np.float32)),
    "actions too short": lambda f: replace(f, "data/demo_1/actions", np.zeros((2, 2))),
    "actions scalar": lambda f: replace(f, "data/demo_1/actions", 3.0),
    "actions of another width": lambda f: replace(f, "data/demo_1/actions", np.zeros((STEPS, 5))),
    "truncated too short": lambda f: f.create_dataset("data/demo_1/truncated", data=np.zeros(2)),
    "next_obs too short": lambda f: replace(f, "data/demo_1/next_obs/x", np.zeros((2, 3), np.float32)),
    "next_obs empty": lambda f: replace(f, "data/demo_1/next_obs/x", np.zeros((0, 3), np.float32)),
    "next_obs of another width": lambda f: replace(f, "data/demo_1/next_obs/x", np.zeros((STEPS, 5), np.float32)),
    "next_obs with other keys": lambda f: f.create_dataset("data/demo_1/next_obs/y", data=np.zeros(STEPS)),
    "obs with other keys": lambda f: [
        f.create_dataset(f"data/demo_1/{g}/y", data=np.zeros(STEPS)) for g in ("obs", "next_obs")
    ],
    "nan": lambda f: replace(f, "data/demo_1/obs/x", np.full((STEPS, 3), np.nan, np.float32)),
    "env_args not JSON": lambda f: f["data"].attrs.__setitem__("env_args", "{bad"),
    "env_args a list": lambda f: f["data"].attrs.__setitem__("env_args", "[1]"),
    "bad action_space": lambda f: f["data"].attrs.__setitem__("action_space", "{}"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_a_data_error_that_names_it_and_leaves_no_cache(make, cache, fault):
    path = make(BROKEN[fault])
    with pytest.raises(DataError) as caught:
        open_store(path)
    assert cached(cache) == []
    assert path in str(caught.value)
    is_of_an_episode = not fault.startswith(("no data", "no episode", "data is", "env_args", "bad action"))
    assert ("demo_1" in str(caught.value)) == is_of_an_episode


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89HDF\r\n\x1a\n" + b"\x00" * 100, "half"], ids=str)
def test_what_is_not_hdf5_is_a_data_error_that_names_it(make, tmp_path, cache, content):
    whole = Path(make()).read_bytes()
    path = tmp_path / "bad.hdf5"
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(DataError, match=r"bad\.hdf5"):
        open_store(str(path))
    assert cached(cache) == []


def test_what_does_not_exist_or_has_no_reader_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match=r"no\.hdf5.* does not exist"):
        open_store(str(tmp_path / "no.hdf5"))
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(DataError, match=r"a\.csv.* tried: .*robomimic"):
        open_store(str(tmp_path / "a.csv"))
    (tmp_path / "dir.hdf5").mkdir()
    with pytest.raises(DataError, match=r"dir\.hdf5"):
        open_store(str(tmp_path / "dir.hdf5"))


def test_unknown_meaning_of_dones_is_refused(make):
    with pytest.raises(DataError, match="dones_mean"):
        open_store(make(), {"dones_mean": "finished"})
    with pytest.raises(DataError, match="dones_mean"):
        open_store(open_store(make()).path, {"dones_mean": "finished"})


# ---------------------------------------------------------------------------------------------- cache
def no_reading(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the file was read again")

    monkeypatch.setattr(robomimic, "read_robomimic", refuse)


def test_the_cache_is_where_the_variable_says(cache, monkeypatch, tmp_path):
    assert cache_folder() == cache
    monkeypatch.delenv("SEQRL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "seqrl"


def test_the_second_opening_does_not_read_the_file(make, cache, monkeypatch):
    path = make()
    first = open_store(path).trajectory(1)
    assert len(cached(cache)) == 1
    no_reading(monkeypatch)
    np.testing.assert_array_equal(open_store(path).trajectory(1).obs["x"], first.obs["x"])
    monkeypatch.chdir(Path(path).parent)
    assert len(open_store(Path(path).name)) == 3
    assert len(cached(cache)) == 1


@pytest.mark.parametrize("same_size", [True, False])
def test_a_changed_file_is_read_again(make, same_size):
    path = make(num=3)
    assert len(open_store(path)) == 3
    before = os.stat(path)
    make(lambda f: replace(f, "data/demo_1/rewards", np.full(STEPS, 8.0)), num=3 if same_size else 2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))
    store = open_store(path)
    assert len(store) == (3 if same_size else 2)
    assert store.trajectory(1).rewards.tolist() == [8.0] * STEPS


def test_a_file_that_changed_in_place_with_the_same_size_and_time_is_read_again(make, cache):
    path = make()
    before = os.stat(path)
    first = open_store(path)

    def rewards(values):
        with h5py.File(path, "r+") as file:
            file["data/demo_1/rewards"][:] = values
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert os.stat(path).st_size == before.st_size
        return open_store(path).trajectory(1).rewards.tolist()

    was = first.trajectory(1).rewards
    assert rewards(8.0) == [8.0] * STEPS
    assert rewards(9.0) == [9.0] * STEPS
    assert len(cached(cache)) == 3
    assert first.verify() == []
    assert first.trajectory(1).rewards.tolist() == was.tolist()


def test_training_and_load_dataset_share_a_cache(make, cache):
    path = make()
    trained = open_store(path, DataSection(path=str(path)).reader_options())
    assert seqrl.load_dataset(path).path == open_store(path).path == trained.path
    assert seqrl.load_dataset(path, dones_mean="truncated").path != trained.path
    assert len(cached(cache)) == 2
    for wrong in ({"action_keys": "actions"}, {"action_keys": []}, {"action_rotations": {"x": "6d"}}):
        with pytest.raises(ConfigError, match="action_"):
            seqrl.load_dataset(path, **wrong)


def test_an_interrupted_ingestion_leaves_nothing_and_is_begun_again(make, cache, monkeypatch):
    path = make()
    append, calls = StoreWriter.append, []

    def interrupted(self, *args):
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt
        append(self, *args)

    monkeypatch.setattr(StoreWriter, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_store(path)
    assert cached(cache) == []
    assert len(open_store(path)) == 3


def test_a_store_is_opened_in_place(tmp_path, cache):
    with StoreWriter(tmp_path / "store", INFO) as writer:
        writer.append(trajectory(0, 3))
    store = open_store(str(tmp_path / "store"))
    assert isinstance(store, Store)
    assert store.path == tmp_path / "store"
    assert cached(cache) == []


def test_two_processes_that_build_the_same_cache_do_not_take_it_from_each_other(cache):
    """The other one finishes while we build; its open store must stay readable, and ours must open."""
    key = {"made": "here"}
    opened = []

    def build(folder):
        with StoreWriter(folder, INFO) as writer:
            writer.append(trajectory(0, 3))

    def build_slowly(folder):
        build(folder)
        opened.append(cached_store(key, build))

    ours = cached_store(key, build_slowly)
    wanted = trajectory(0, 3).rewards
    np.testing.assert_array_equal(ours.trajectory(0).rewards, wanted)
    np.testing.assert_array_equal(opened[0].trajectory(0).rewards, wanted)
    assert len(cached(cache)) == 1


def test_flags_are_observations(make):
    """Without an observation space in the file, booleans are read as what they are."""
    flags = np.array([True, False, True, True])

    def add(file):
        for i in range(3):
            file[f"data/demo_{i}/obs/flag"], file[f"data/demo_{i}/next_obs/flag"] = flags, flags

    store = open_store(make(add))
    seen = store.trajectory(0).obs["flag"]
    assert seen.dtype == np.bool_
    assert seen.tolist() == [*flags, True]


def test_what_does_not_fit_on_the_disk_is_told_before_hdf5_meets_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    with pytest.raises(DataError, match=r"a\.hdf5: the next episode takes .* GB, but only 0\.001 GB are free"):
        write_robomimic(tmp_path / "a.hdf5", INFO, [trajectory(0, 3)])
    assert list(tmp_path.iterdir()) == []
