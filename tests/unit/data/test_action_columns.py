"""The action is made of the columns of a robomimic file that the run file names."""

import h5py
import numpy as np
import pytest

from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError, DataError
from seqrl.core.rotations import RotationBox, six_numbers
from seqrl.data import SequenceDataset
from seqrl.data.convert import convert
from seqrl.data.ingest import open_store
from seqrl.data.mixture import Source
from seqrl.scripts import convert_dataset, get_dataset_info, train

STEPS = 4


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "can.hdf5", "w") as out:
        for i in range(3):
            demo = out.create_group(f"data/demo_{i}")
            for key in ("obs/x", "next_obs/x"):
                demo[key] = rng.random((STEPS, 2))
            demo["actions"] = rng.uniform(-1, 1, (STEPS, 7))
            demo["action_dict/abs_pos"] = rng.uniform(-3, 3, (STEPS, 3))
            demo["action_dict/abs_rot_axis_angle"] = rotation = rng.uniform(-1.5, 1.5, (STEPS, 3))
            demo["action_dict/abs_rot_6d"] = six_numbers(rotation)
            demo["action_dict/gripper"] = rng.uniform(-1, 1, STEPS)
            demo["action_dict/count"] = np.arange(STEPS)
    return tmp_path / "can.hdf5"


def column(file, name, demo=0):
    with h5py.File(file) as opened:
        return opened[f"data/demo_{demo}/{name}"][()]


def read(file, *keys, **rotations):
    return open_store(str(file), {"action_keys": list(keys), "action_rotations": rotations or None})


def test_columns_lie_side_by_side_in_the_order_of_their_names(file):
    store = read(file, "gripper", "action_dict/abs_pos", "actions")
    given = [column(file, f"action_dict/{k}") for k in ("gripper", "abs_pos")]
    expected = np.concatenate([given[0][:, None], given[1], column(file, "actions")], axis=1)
    np.testing.assert_array_equal(store.trajectory(0).actions, expected)
    assert not store.info.action_space.is_bounded()
    assert open_store(str(file)).trajectory(0).actions.shape == (STEPS, 7)


@pytest.mark.parametrize("form", ["axis_angle", "6d"])
def test_the_environment_takes_axis_angle_and_the_policy_learns_six_numbers(file, form):
    store = read(file, "abs_pos", f"abs_rot_{form}", "gripper", **{f"abs_rot_{form}": form})
    assert isinstance(store.info.action_space, RotationBox)
    assert store.info.action_space.rotations == (3,)
    np.testing.assert_allclose(store.trajectory(1).actions[:, 3:6], column(file, "action_dict/abs_rot_axis_angle", 1))
    batch = SequenceDataset([Source(store)], STEPS).batch(3, seed=0, path=("x",))
    first = next(i for i in range(3) if np.allclose(batch.actions[i, :, :3], column(file, "action_dict/abs_pos")))
    np.testing.assert_allclose(batch.actions[first, :, 3:9], column(file, "action_dict/abs_rot_6d"), atol=1e-6)


def test_what_does_not_fit_is_told(file, tmp_path):
    with pytest.raises(
        DataError, match=r"demo_0 has no column 'abs_po'; did you mean 'abs_pos'\?; it has actions, abs"
    ):
        read(file, "abs_po")
    with pytest.raises(DataError, match=r"abs_pos float64 \(4, 3\), count int64 \(4,\)"):
        read(file, "abs_pos", "count")
    with pytest.raises(DataError, match=r"abs_rot_axis_angle has rows of shape \(3,\), but 6d has 6 numbers"):
        read(file, "abs_rot_axis_angle", abs_rot_axis_angle="6d")
    convert(file, tmp_path / "store")
    with pytest.raises(DataError, match="is a store, which takes no action_keys"):
        read(tmp_path / "store", "abs_pos")


def test_a_run_file_names_rotations_among_its_columns():
    entry = {"path": "can.hdf5", "action_keys": ["abs_pos"], "action_rotations": {"abs_rot": "6d"}}
    with pytest.raises(ConfigError, match="action_rotations names abs_rot, which action_keys does not"):
        config_factory("bc", {"train": {"data": [entry]}})


def test_commands_take_the_columns_too(file, tmp_path, capsys):
    words = ["--action-keys", "abs_pos", "abs_rot_6d", "--action-rotations", '{"abs_rot_6d": "6d"}']
    store = str(tmp_path / "store")
    assert convert_dataset.main([str(file), store, *words]) == 0
    assert open_store(store).info.action_space == read(file, "abs_pos", "abs_rot_6d", abs_rot_6d="6d").info.action_space
    assert get_dataset_info.main([str(file), *words]) == 0
    assert "Box(-inf, inf, (6,), float32) with rotations at [3]" in capsys.readouterr().out
    config, _ = train.resolve_config(train.parser().parse_args(["--algo", "bc", "--dataset", str(file), *words]))
    assert config.train.data[0].action_keys == ["abs_pos", "abs_rot_6d"]
