"""Parts of the actions that join to what they were split from, in the file itself."""

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from seqrl.data.ingest import open_store
from seqrl.scripts import extract_action_dict

STEPS = 4


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))

    def write(width, *more):
        rng = np.random.default_rng(0)
        with h5py.File(tmp_path / "can.hdf5", "w") as file:
            for i in range(2):
                for name in ("actions", *more):
                    file[f"data/demo_{i}/{name}"] = rng.uniform(-1, 1, (STEPS, width))
                file[f"data/demo_{i}/obs/x"] = rng.random((STEPS, 2))
            file["data"].attrs["env_args"] = "{}"
        return tmp_path / "can.hdf5"

    return write


def parts_of(file, demo=1):
    with h5py.File(file) as opened:
        return {k: v[()] for k, v in opened[f"data/demo_{demo}/action_dict"].items()}, dict(opened["data"].attrs)


def test_parts_join_to_the_actions(write, capsys):
    file = write(7, "actions_abs")
    assert extract_action_dict.main(["--dataset", str(file)]) == 0
    told = capsys.readouterr().out
    assert "rel_pos, rel_rot_axis_angle, rel_rot_6d, gripper, abs_pos" in told
    parts, attributes = parts_of(file)
    assert attributes == {"env_args": "{}"}
    rows = Rotation.from_rotvec(parts["rel_rot_axis_angle"]).as_matrix()[:, :2].reshape(STEPS, 6)
    np.testing.assert_allclose(parts["rel_rot_6d"], rows, atol=1e-12)
    for name, keys in (("actions", ["rel_pos", "rel_rot_axis_angle", "gripper"]), ("actions_abs", ["abs_pos"])):
        joined = open_store(str(file), {"action_keys": keys}).trajectory(1).actions
        np.testing.assert_array_equal(
            joined, open_store(str(file), {"action_keys": [name]}).trajectory(1).actions[:, : joined.shape[1]]
        )


def test_two_arms_are_kept_apart(write):
    file = write(14)
    assert extract_action_dict.main([str(file)]) == 0
    keys = [f"robot{arm}_{part}" for arm in (0, 1) for part in ("rel_pos", "rel_rot_axis_angle", "gripper")]
    keys = [k.replace("rel_gripper", "gripper") for k in keys]
    joined = open_store(str(file), {"action_keys": keys}).trajectory(0).actions
    np.testing.assert_array_equal(joined, open_store(str(file)).trajectory(0).actions)


def test_what_is_there_is_replaced_only_if_asked(write, capsys):
    file = write(7)
    assert extract_action_dict.main([str(file)]) == 0
    before = file.read_bytes()
    assert extract_action_dict.main([str(file)]) == 2
    assert "demo_0: action_dict has gripper already; pass --overwrite" in capsys.readouterr().err
    assert file.read_bytes() == before
    assert extract_action_dict.main([str(file), "--overwrite"]) == 0


@pytest.mark.parametrize("width", [6, 8])
def test_other_actions_are_refused(write, capsys, width):
    file = write(width)
    before = file.read_bytes()
    assert extract_action_dict.main([str(file)]) == 2
    assert f"demo_0/actions is float64 (4, {width}); floats of 7 numbers" in capsys.readouterr().err
    assert extract_action_dict.main(["nothing.hdf5"]) == 2
    assert file.read_bytes() == before
