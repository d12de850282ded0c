"""Data of Minari, D4RL and AMAGO: the episodes that were written, or a clear error."""

import io
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from seqrl.core.errors import DataError
from seqrl.core.types import Trajectory
from seqrl.data import SequenceDataset, Source, StoreInfo, StoreWriter, convert
from seqrl.data.ingest import open_store
from seqrl.data.readers import READERS
from seqrl.data.readers.arrow import images_of, numbers_of
from seqrl.rollout.agreement import agreed_spaces
from seqrl.scripts import convert_dataset

WRITTEN = Path(__file__).parents[2] / "data" / "minari"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("given", ["folder", "data", "file", "id"])
def test_a_dataset_that_minari_wrote(given, monkeypatch):
    folder = WRITTEN / "cart-v0"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(WRITTEN.parent))
    path = {"folder": folder, "data": folder / "data", "file": folder / "data/main_data.hdf5", "id": "minari/cart-v0"}
    store = open_store(str(path[given]))
    assert store.info.env_id == "CartPole-v1"
    assert store.info.action_space == spaces.Discrete(2)
    assert store.info.observation_space.low[1] == -np.inf
    with h5py.File(folder / "data/main_data.hdf5") as file:
        for number, found in enumerate(store.trajectories()):
            episode = file[f"episode_{number}"]
            np.testing.assert_array_equal(found.obs["obs"], episode["observations"])
            np.testing.assert_array_equal(found.actions, episode["actions"])
            np.testing.assert_array_equal(found.rewards, episode["rewards"])
            np.testing.assert_array_equal(found.terminated, episode["terminations"])
            np.testing.assert_array_equal(found.truncated, episode["truncations"])
        assert number == 2


def test_nested_spaces_and_text_of_minari():
    store = open_store(str(WRITTEN / "nested-v0"))
    (found,) = store.trajectories()
    with h5py.File(WRITTEN / "nested-v0/data/main_data.hdf5") as file:
        seen = file["episode_0/observations"]
        assert set(found.obs) == {"a", "b/0", "b/1", "mission"}
        np.testing.assert_array_equal(found.obs["b/1"], seen["b/_index_1"])
        texts = [bytes(row[row > 0]).decode() for row in found.obs["mission"]]
        assert texts == [text.decode() for text in seen["mission"]]
    assert store.info.observation_space["b"][0] == spaces.Discrete(3)
    assert found.terminated.tolist() == [False, False, False, True]


def test_jpeg_images_of_minari(tmp_path):
    shutil.copytree(WRITTEN / "cart-v0", tmp_path / "pictures-v0")
    data = tmp_path / "pictures-v0/data"
    space = '{\\"type\\": \\"Box\\", \\"dtype\\": \\"uint8\\", \\"shape\\": [16, 24, 3], \\"low\\": 0, \\"high\\": 255}'
    text = (data / "metadata.json").read_text()
    begin, end = text.index('"observation_space"'), text.index('"action_space"')
    (data / "metadata.json").write_text(f'{text[:begin]}"observation_space": "{space}", {text[end:]}')
    image = np.full((16, 24, 3), (200, 100, 50), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="JPEG", quality=95)
    with h5py.File(data / "main_data.hdf5", "a") as file:
        for episode in file.values():
            rows = len(episode["observations"])
            del episode["observations"]
            made = episode.create_dataset("observations", (rows,), h5py.vlen_dtype(np.uint8))
            for i in range(rows):
                made[i] = np.frombuffer(buffer.getvalue(), np.uint8)
    first = next(iter(open_store(str(tmp_path / "pictures-v0")).trajectories()))
    assert first.obs["obs"].shape == (8, 16, 24, 3)
    assert np.abs(first.obs["obs"].astype(int) - image).max() <= 3


def steps(num=30):
    rng = np.random.default_rng(0)
    data = {
        "observations": rng.normal(size=(num, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (num, 2)).astype(np.float32),
        "rewards": rng.normal(size=num).astype(np.float32),
        "terminals": np.zeros(num, bool),
        "timeouts": np.zeros(num, bool),
    }
    data["terminals"][9] = data["timeouts"][19] = True
    return data


def written(path, data):
    with h5py.File(path, "w") as file:
        for name, values in data.items():
            file[name] = values
    return str(path)


def test_d4rl_with_next_observations(tmp_path):
    data = steps()
    after = np.concatenate([data["observations"][1:], np.full((1, 3), 7.0)]).astype(np.float32)
    after[9], after[19] = 8.0, 9.0
    store = open_store(written(tmp_path / "d.hdf5", data | {"next_observations": after}))
    one, two, three = store.trajectories()
    assert (len(one), len(two), len(three)) == (10, 10, 10)
    np.testing.assert_array_equal(two.obs["obs"], [*data["observations"][10:20], [9.0] * 3])
    np.testing.assert_array_equal(two.rewards, data["rewards"][10:20])
    assert (one.terminated[-1], one.truncated[-1]) == (True, False)
    assert (two.terminated[-1], two.truncated[-1]) == (False, True)
    assert (three.terminated[-1], three.truncated[-1]) == (False, True)  # the file ends within it


def test_d4rl_becomes_a_robomimic_file(tmp_path):
    source, target = written(tmp_path / "d.hdf5", steps()), tmp_path / "robomimic.hdf5"
    assert convert_dataset.main([source, str(target), "--to", "robomimic"]) == 0
    given, made = open_store(source), open_store(str(target))
    assert made.names == ["demo_0", "demo_1", "demo_2"]
    for one, other in zip(given.trajectories(), made.trajectories(), strict=True):
        np.testing.assert_array_equal(one.obs["obs"], other.obs["obs"])
        np.testing.assert_array_equal(one.actions, other.actions)
        np.testing.assert_array_equal([one.terminated, one.truncated], [other.terminated, other.truncated])


def test_d4rl_without_next_observations_invents_none(tmp_path):
    data = steps()
    one, two, three = open_store(written(tmp_path / "d.hdf5", data)).trajectories()
    assert (len(one), len(two), len(three)) == (10, 9, 9)
    np.testing.assert_array_equal(two.obs["obs"], data["observations"][10:20])
    np.testing.assert_array_equal(two.actions, data["actions"][10:19])
    assert two.truncated[-1]  # its last step is not there, so it is cut short before
    assert one.terminated[-1]


def test_d4rl_without_timeouts_is_cut_where_observations_do_not_go_on(tmp_path):
    data = steps()
    after = np.concatenate([data["observations"][1:], np.zeros((1, 3), np.float32)])
    after[9], after[19] = 8.0, 9.0
    del data["timeouts"]
    found = list(open_store(written(tmp_path / "d.hdf5", data | {"next_observations": after})).trajectories())
    assert [len(each) for each in found] == [10, 10, 10]
    assert found[1].truncated[-1]


def test_d4rl_is_not_cut_by_rounding_and_not_read_shuffled(tmp_path):
    data = steps()
    exact = data["observations"].astype(np.float64) + 1e-12
    after = np.concatenate([exact[1:], np.zeros((1, 3))])
    after[9], after[19] = 8.0, 9.0
    found = open_store(written(tmp_path / "d.hdf5", data | {"next_observations": after})).trajectories()
    assert [len(each) for each in found] == [10, 10, 10]
    shuffled = np.random.default_rng(0).permutation(after)
    with pytest.raises(DataError, match=r"next_observations is not the next row of observations: shuffled"):
        open_store(written(tmp_path / "e.hdf5", data | {"next_observations": shuffled}))


def test_d4rl_that_cannot_tell_where_time_ran_out_is_refused(tmp_path):
    data = steps()
    del data["timeouts"]
    with pytest.raises(DataError, match=r"neither timeouts nor next_observations.*add an array timeouts"):
        open_store(written(tmp_path / "d.hdf5", data))


def test_terminals_of_d4rl_may_be_time_limits(tmp_path):
    given = written(tmp_path / "d.hdf5", steps())
    one, two, _ = open_store(given, {"dones_mean": "truncated"}).trajectories()
    assert (len(one), one.terminated.any(), one.truncated[-1], two.truncated[-1]) == (9, False, True, True)
    np.testing.assert_array_equal(one.obs["obs"], steps()["observations"][:10])  # what follows a limit is not known
    with pytest.raises(DataError, match="must be 'terminated' or 'truncated', got 'truncate'"):
        open_store(given, {"dones_mean": "truncate"})
    with pytest.raises(DataError, match="minari knows its time limits"):
        open_store(str(WRITTEN / "cart-v0"), {"dones_mean": "truncated"})


def test_a_piece_of_amago_knows_what_was_before_it(tmp_path):
    before = np.zeros((6, 4))
    before[0] = [7.0, 0.0, 0.0, 1.0]
    save_amago(tmp_path / "a", rl2s=before)
    (piece,) = open_store(str(tmp_path / "a")).trajectories()
    assert (piece.start_step, int(piece.prev_action), piece.prev_reward) == (2, 2, 7.0)
    before[0] = [7.0, 0.5, -0.5, 0.25]
    save_amago(tmp_path / "b", discrete=False, rl2s=before)
    (piece,) = open_store(str(tmp_path / "b")).trajectories()
    np.testing.assert_array_equal(piece.prev_action, np.array([0.5, -0.5, 0.25], np.float32))


def test_actions_of_d4rl_are_in_the_units_of_the_environment(tmp_path):
    """A file whose actions happen to lie in [-1, 1] is no robomimic file, and one that leaves it is fine."""
    wide, narrow = spaces.Box(-2.0, 2.0, (2,)), spaces.Box(-0.4, 0.4, (2,))
    for env_space, scale in ((narrow, 0.4), (wide, 2.0)):
        data = steps() | {"actions": (scale * steps()["actions"]).astype(np.float32)}
        name = tmp_path / f"{scale}.hdf5"
        store = open_store(written(name, data))
        info = agreed_spaces(store.info, store.info.observation_space, env_space, "Env-v0")
        dataset = SequenceDataset([Source(store, np.arange(3))], 4)
        dataset.use_categories(info.action_space)
        encoded = dataset.get_trajectory_at_index(0)["actions"]
        np.testing.assert_allclose(encoded, data["actions"][:10] / scale, atol=1e-6)
        converted = str(tmp_path / f"robomimic_{scale}.hdf5")
        assert convert_dataset.main([str(name), converted, "--to", "robomimic"]) == 0
        again = open_store(converted).info
        assert agreed_spaces(again, again.observation_space, env_space, "Env-v0").action_space == env_space
        assert not again.actions_are_scaled


def save_amago(folder, num=5, seed=0, *, discrete=True, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    actions = np.eye(3)[rng.integers(3, size=num)] if discrete else rng.uniform(-1, 1, (num, 3))
    arrays = {
        "_OBS_KEY_observation": rng.normal(size=(num + 1, 4)).astype(np.float32),
        "rl2s": np.zeros((num + 1, 4)),
        "time_idxs": np.arange(num + 1)[:, None] + 2,
        "rews": rng.normal(size=(num, 1)).astype(np.float32),
        "dones": np.eye(num)[:, -1:].astype(bool),
        "actions": actions,
    } | changes
    np.savez(folder / f"env_{seed}.npz", **arrays)
    return arrays


@pytest.mark.parametrize("discrete", [True, False])
def test_trajectories_of_amago(tmp_path, discrete):
    first = save_amago(tmp_path / "buffer/protected", 6, 1, discrete=discrete)
    save_amago(tmp_path / "buffer/fifo", 4, 2, discrete=discrete)
    store = open_store(str(tmp_path / "buffer"))
    assert [len(each) for each in open_store(str(tmp_path)).trajectories()] == [6, 4], "the folder that holds it"
    one, two = store.trajectories()
    np.testing.assert_array_equal(one.obs["observation"], first["_OBS_KEY_observation"])
    np.testing.assert_array_equal(one.rewards, first["rews"][:, 0])
    expected = first["actions"].argmax(-1) if discrete else first["actions"].astype(np.float32)
    np.testing.assert_array_equal(one.actions, expected)
    assert (one.start_step, one.terminated[-1], one.truncated[-1], len(two)) == (2, True, False, 4)
    cut = open_store(str(tmp_path / "buffer/fifo"), {"dones_mean": "truncated"})
    assert next(iter(cut.trajectories())).truncated[-1]


def test_a_trajectory_of_amago_that_ends_twice_is_refused(tmp_path):
    save_amago(tmp_path, dones=np.eye(5)[:, 2:3] + np.eye(5)[:, -1:])
    with pytest.raises(DataError, match=r"env_0\.npz: .*it continues after its end at step 2"):
        open_store(str(tmp_path))


def test_pickles_of_amago_are_refused(tmp_path, caplog):
    (tmp_path / "fifo").mkdir()
    (tmp_path / "fifo/a.traj").write_bytes(b"cposix\nsystem\n(S'touch /tmp/executed'\ntR.")
    with pytest.raises(DataError, match=r"\.traj are pickles, which can execute code"):
        open_store(str(tmp_path))
    save_amago(tmp_path / "fifo")
    assert len(open_store(str(tmp_path))) == 1
    assert "1 trajectories in .traj are left out" in caplog.text
    save_amago(tmp_path / "objects", actions=np.array([[{}]] * 5, dtype=object))
    with pytest.raises(DataError, match="not a readable AMAGO trajectory"):
        open_store(str(tmp_path / "objects"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rewards": np.zeros(29)}, r"d\.hdf5: arrays of different or no length"),
        ({"next_observations": np.zeros((30, 4))}, "next_observations and observations differ in shape"),
        ({"actions": np.full((30, 2), np.nan)}, r"actions has a non-finite value"),
        ({"terminals": np.array([b"no"] * 30)}, "terminals is not an array of numbers"),
    ],
)
def test_what_is_wrong_with_d4rl_is_told(tmp_path, data, message):
    with pytest.raises(DataError, match=message):
        open_store(written(tmp_path / "d.hdf5", steps() | data))


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_arrow_and_parquet_of_minari_are_as_hdf5(format):
    store, twin = (open_store(str(WRITTEN / f"mixed-{name}-v0")) for name in (format, "hdf5"))
    assert store.schema == twin.schema
    assert set(store.schema) >= {"obs/camera", "obs/pair/0", "obs/pair/1", "obs/mission", "obs/bits", "obs/matrix"}
    assert store.names == ["episode_0", "episode_1"]
    for a, b in zip(store.trajectories(), twin.trajectories(), strict=True):
        assert all(np.array_equal(a.obs[k], b.obs[k]) for k in a.obs)
        for key in ("actions", "rewards", "terminated", "truncated"):
            assert np.array_equal(getattr(a, key), getattr(b, key))
    assert [len(t) for t in store.trajectories()] == [3, 4]
    assert [bool(t.terminated[-1]) for t in store.trajectories()] == [True, False]


def test_an_unknown_format_of_minari_and_a_missing_package(tmp_path, monkeypatch):
    shutil.copytree(WRITTEN / "cart-v0", tmp_path / "a-v0")
    file = tmp_path / "a-v0/data/metadata.json"
    file.write_text(file.read_text().replace('"hdf5"', '"zarr"'))
    with pytest.raises(DataError, match="Minari's format 'zarr' is not known; only hdf5, arrow and parquet"):
        open_store(str(tmp_path / "a-v0"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'seqrl\[minari\]'"):
        open_store(str(WRITTEN / "mixed-arrow-v0"))


@pytest.mark.parametrize("kind", ["minari", "arrow", "parquet", "d4rl", "amago"])
def test_a_file_that_is_cut_is_an_error(tmp_path, kind):
    """At 40 places each: the reader says no, or reading is a DataError; never another exception, never fewer steps."""
    if kind == "minari":
        shutil.copytree(WRITTEN / "cart-v0", tmp_path / "x")
        file, path = tmp_path / "x/data/main_data.hdf5", tmp_path / "x"
    elif kind in ("arrow", "parquet"):
        shutil.copytree(WRITTEN / f"mixed-{kind}-v0", tmp_path / "x")
        file, path = tmp_path / f"x/data/1/part-0.{kind}", tmp_path / "x"
    elif kind == "d4rl":
        file = path = Path(written(tmp_path / "x.hdf5", steps()))
    else:
        save_amago(tmp_path / "x")
        file, path = tmp_path / "x/env_0.npz", tmp_path / "x"
    whole = file.read_bytes()
    for size in np.linspace(0, len(whole) - 1, 40).astype(int):
        file.write_bytes(whole[:size])
        with pytest.raises(DataError, match=str(tmp_path)):
            open_store(str(path))


def test_zip_checksums_tell_altered_trajectories_of_amago(tmp_path):
    save_amago(tmp_path / "x")
    file = tmp_path / "x/env_0.npz"
    whole, rng, told = file.read_bytes(), np.random.default_rng(0), 0
    good = next(iter(open_store(str(tmp_path / "x")).trajectories()))
    for _ in range(60):
        broken = bytearray(whole)
        broken[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        file.write_bytes(broken)
        try:
            found = next(iter(open_store(str(tmp_path / "x")).trajectories()))
        except DataError:
            told += 1
        else:  # the bit was of what nobody reads, such as a date
            assert np.array_equal(found.obs["observation"], good.obs["observation"])
            assert np.array_equal(found.actions, good.actions)
            assert np.array_equal(found.rewards, good.rewards)
    assert told > 40


def test_formats_are_known_by_their_content(tmp_path):
    written(tmp_path / "d.h5", steps())
    save_amago(tmp_path / "x")
    found = {"d4rl": tmp_path / "d.h5", "amago": tmp_path / "x", "minari": WRITTEN / "cart-v0"}
    for name in found:
        assert [other for other, path in found.items() if READERS.get(name)().can_read(path)] == [name]


def test_there_and_back_as_robomimic(tmp_path):
    store = open_store(str(WRITTEN / "cart-v0"))
    convert.convert(WRITTEN / "cart-v0", tmp_path / "cart.hdf5")
    back = open_store(str(tmp_path / "cart.hdf5"))
    for a, b in zip(store.trajectories(), back.trajectories(), strict=True):
        for key in ("actions", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(a, key), getattr(b, key))
        np.testing.assert_array_equal(a.obs["obs"], b.obs["obs"])
    assert back.info.env_id == "CartPole-v1"


# ---------------------------------------------------------------------------------------------- writing Minari
@pytest.mark.parametrize("name", ["cart-v0", "nested-v0", "mixed-hdf5-v0"])
def test_a_dataset_of_minari_written_again_is_the_same(tmp_path, monkeypatch, name):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MINARI_DATASETS_PATH", "~/local")
    assert convert_dataset.main([str(WRITTEN / name), "mine/again-v3", "--to", "minari"]) == 0
    assert convert_dataset.main([str(WRITTEN / name), "mine/again-v3", "--to", "minari"]) == 2, "it is there"
    assert convert_dataset.main([str(WRITTEN / name), "mine/again-v3", "--to", "minari", "--overwrite"]) == 0
    metadata = json.loads((tmp_path / "local/mine/again-v3/data/metadata.json").read_text())
    before = json.loads((WRITTEN / name / "data/metadata.json").read_text())
    for key in ("total_episodes", "total_steps", "action_space", "env_spec"):
        assert json.loads(str(metadata.get(key, 0))) == json.loads(str(before.get(key, 0)))
    assert metadata["dataset_id"] == "mine/again-v3"
    a, b = open_store(str(WRITTEN / name)), open_store("mine/again-v3")
    assert replace(a.info, source="") == replace(b.info, source="")
    assert a.schema == b.schema
    for one, other in zip(a.trajectories(), b.trajectories(), strict=True):
        assert all(np.array_equal(one.obs[k], other.obs[k]) for k in one.obs)
        for key in ("actions", "rewards", "terminated", "truncated"):
            assert np.array_equal(getattr(one, key), getattr(other, key))


def test_without_a_home_there_is_no_local_store_of_minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", "~nobody-of-that-name/local")
    with pytest.raises(DataError, match=r"missing\.hdf5.* does not exist"):
        open_store(str(tmp_path / "missing.hdf5"))


def test_an_environment_that_is_not_registered_here_is_named_to_minari(tmp_path):
    shutil.copytree(WRITTEN / "cart-v0", tmp_path / "given-v0")
    file = tmp_path / "given-v0/data/metadata.json"
    spec = {"id": "lab/Nowhere-v3", "kwargs": {"gain": 2}}
    file.write_text(json.dumps({**json.loads(file.read_text()), "env_spec": json.dumps(spec)}))
    assert convert_dataset.main([str(tmp_path / "given-v0"), str(tmp_path / "mine/again-v0"), "--to", "minari"]) == 0
    info = open_store(str(tmp_path / "mine/again-v0")).info
    assert (info.env_id, info.env_kwargs) == ("lab/Nowhere-v3", {"gain": 2})


@pytest.mark.parametrize("target", ["lab/arm-v0", "arm.hdf5"])
def test_actions_of_a_dict_come_back_from_other_formats(tmp_path, target):
    parts = spaces.Tuple((spaces.Box(0, 1, (2,)), spaces.MultiBinary(2)))
    actions = spaces.Dict({"arm": parts, "tool": spaces.Discrete(3, start=1)})
    flat = np.array([[0.5, 0.25, 1, 0, 3], [1, 0, 0, 1, 1]])
    trajectory = Trajectory(
        obs={"obs": np.zeros((3, 1), np.float32)},
        actions=flat,
        rewards=np.zeros(2, np.float32),
        terminated=np.array([False, True]),
        truncated=np.zeros(2, bool),
    )
    with StoreWriter(tmp_path / "store", StoreInfo(spaces.Box(-1, 1, (1,)), actions)) as writer:
        writer.append(trajectory, "one")
    to = ["--to", "minari"] if "/" in target else []
    assert convert_dataset.main([str(tmp_path / "store"), str(tmp_path / target), *to]) == 0
    if to:
        with h5py.File(tmp_path / target / "data/main_data.hdf5") as file:
            assert file["episode_0/actions/arm/_index_1"][()].tolist() == [[1, 0], [0, 1]]
            assert file["episode_0/actions/tool"][()].tolist() == [3, 1]
    back = open_store(str(tmp_path / target))
    assert back.info.action_space == actions
    np.testing.assert_array_equal(next(iter(back.trajectories())).actions, flat)


def test_discrete_entries_goals_and_masks_reach_minari(tmp_path):
    space, actions = spaces.Dict(a=spaces.Discrete(3, start=5)), spaces.MultiDiscrete([2, 3], start=[1, 4])
    trajectory = Trajectory(
        obs={"a": np.array([0, 1, 2, 0])},
        actions=np.array([[1, 4], [2, 5], [2, 6]]),
        rewards=np.zeros(3, np.float32),
        terminated=np.zeros(3, bool),
        truncated=np.zeros(3, bool),
        goal={"g": np.ones((4, 2), np.float32)},
        action_mask=np.ones((4, 5), bool),
    )
    with StoreWriter(tmp_path / "store", StoreInfo(space, actions)) as writer:
        writer.append(trajectory, "one")
    target = tmp_path / "lab/x-v0"
    assert convert_dataset.main([str(tmp_path / "store"), str(target), "--to", "minari"]) == 0
    with h5py.File(target / "data/main_data.hdf5") as file:
        episode = file["episode_0"]
        assert episode["observations/a"][()].tolist() == [5, 6, 7, 5]
        assert episode["infos/goal/g"].shape == (4, 2)
        assert episode["infos/action_mask"].shape == (4, 5)
        assert episode["truncations"][()].tolist() == [False, False, True]
    back = open_store(str(target))
    assert back.info.action_space == actions
    assert np.array_equal(next(iter(back.trajectories())).obs["a"], trajectory.obs["a"])
    with StoreWriter(tmp_path / "later", StoreInfo(space, actions)) as writer:
        writer.append(replace(trajectory, start_step=3), "piece")
    assert convert_dataset.main([str(tmp_path / "later"), str(tmp_path / "lab/y-v0"), "--to", "minari"]) == 2
    assert sorted(p.name for p in (tmp_path / "lab").iterdir()) == ["x-v0"]


@pytest.mark.parametrize("target", ["lift", "lift-v0", "/tmp/x/lift", "a b/lift-v0"])
def test_ids_that_minari_does_not_take(target, tmp_path, capsys):
    assert convert_dataset.main([str(WRITTEN / "cart-v0"), target, "--to", "minari"]) == 2
    assert "is not a Minari id" in capsys.readouterr().err


def test_a_dataset_of_minari_is_not_written_over_its_source(tmp_path):
    folder = tmp_path / "mine/cart-v0"
    shutil.copytree(WRITTEN / "cart-v0", folder)
    assert convert_dataset.main([str(folder), str(folder), "--to", "minari", "--overwrite"]) == 2
    assert convert_dataset.main([str(folder), str(folder / "store")]) == 0
    assert convert_dataset.main([str(folder / "store"), str(folder), "--to", "minari", "--overwrite"]) == 2
    assert len(open_store(str(folder / "store"))) == 3


def test_images_that_would_start_a_program_are_refused():
    with pytest.raises(Image.UnidentifiedImageError):
        images_of([b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"], (9, 9, 3))
    data = io.BytesIO()
    Image.fromarray(np.zeros((4, 8, 3), np.uint8)).save(data, "PNG")
    with pytest.raises(DataError, match=r"shape \(4, 8, 3\), but its space \(3, 4, 8\)"):
        images_of([data.getvalue()], (3, 4, 8))


def test_rows_of_different_lengths_are_not_shifted():
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match="different lengths, from 1 to 3"):
        numbers_of(pyarrow.array([[1.0, 2.0, 3.0], [4.0]]), (2,))
