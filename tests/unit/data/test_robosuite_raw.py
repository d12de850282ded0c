"""What robosuite's data collection writes becomes a robomimic file, of whose states observations are made."""

import json

import gymnasium as gym
import h5py
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.data.ingest import open_store
from seqrl.scripts import convert_dataset, dataset_states_to_obs, get_dataset_info

STEPS = 4
INFO = {"env_name": "Lift", "robots": ["Panda"], "has_renderer": True, "controller_configs": {"type": "OSC_POSE"}}


class Lift(gym.Env):
    """Stands for robosuite, which takes a simulator of its own."""

    observation_space = spaces.Dict(object=spaces.Box(-9, 9, (2,), np.float64))
    action_space = spaces.Box(-1, 1, (7,), np.float32)

    def reset(self, *, seed=None, options=None):
        return self.reset_to({"states": np.zeros(2)}), {}

    def reset_to(self, state):
        self.x = np.array(state["states"])
        return {"object": self.x}

    def step(self, action):
        return {"object": self.x + 1}, 0.0, False, False, {}


@pytest.fixture
def raw(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "demo.hdf5", "w") as file:
        data = file.create_group("data")
        data.attrs.update({"env": "Lift", "env_info": json.dumps(INFO), "repository_version": "1.5.2", "date": "2026"})
        for k in (1, 2, 10):
            demo = data.create_group(f"demo_{k}")
            demo.attrs["model_file"] = f"<mujoco {k}/>"
            demo["states"], demo["actions"] = rng.random((STEPS, 2)), rng.uniform(-1, 1, (STEPS, 7))
    return tmp_path / "demo.hdf5"


def test_it_becomes_a_robomimic_file_that_observations_are_made_of(raw, monkeypatch, capsys):
    target = raw.with_name("lift.hdf5")
    assert convert_dataset.main([str(raw), str(target)]) == 0
    with h5py.File(raw) as given, h5py.File(target) as made:
        kwargs = {"robots": ["Panda"], "controller_configs": {"type": "OSC_POSE"}}
        expected = {"env_name": "Lift", "type": 1, "env_version": "1.5.2", "env_kwargs": kwargs}
        assert json.loads(made["data"].attrs["env_args"]) == expected
        assert (made["data"].attrs["total"], made["data"].attrs["date"]) == (3 * STEPS, "2026")
        for name, demo in given["data"].items():
            assert made[f"data/{name}"].attrs["model_file"] == demo.attrs["model_file"]
            assert made[f"data/{name}"].attrs["num_samples"] == STEPS
            for key in ("states", "actions"):
                np.testing.assert_array_equal(made[f"data/{name}/{key}"], demo[key])
    monkeypatch.setattr("seqrl.rollout.states_to_obs.make_env", lambda *_, **__: Lift())
    for source, name in ((target, "obs.hdf5"), (raw, "at_once.hdf5")):
        assert dataset_states_to_obs.main(["--dataset", str(source), "--output_name", name]) == 0
        store = open_store(str(raw.with_name(name)))
        assert (store.info.env_id, store.info.env_kwargs) == ("robosuite/Lift", kwargs)
        with h5py.File(raw) as given:
            np.testing.assert_array_equal(store.trajectory(2).obs["object"][:-1], given["data/demo_10/states"])


def test_what_cannot_be_read_is_told(raw, capsys):
    assert convert_dataset.main([str(raw), str(raw.with_name("store"))]) == 2
    assert "holds states of a simulator and no observations: convert it to a file" in capsys.readouterr().err
    assert get_dataset_info.main([str(raw)]) == 2
    assert "demo_1 lacks obs; seqrl dataset-states-to-obs makes them from its states" in capsys.readouterr().err
    with h5py.File(raw, "r+") as file:
        del file["data/demo_2/actions"]
        file["data/demo_2/actions"] = np.zeros((STEPS - 1, 7))
    assert convert_dataset.main([str(raw), str(raw.with_name("lift.hdf5"))]) == 2
    assert "demo.hdf5: demo_2 has 4 states and 3 actions" in capsys.readouterr().err
    with h5py.File(raw, "r+") as file:
        file["data"].attrs["env_info"] = "[1"
    assert convert_dataset.main([str(raw), str(raw.with_name("lift.hdf5"))]) == 2
    assert "demo.hdf5: the attribute 'env_info' of 'data' is not JSON" in capsys.readouterr().err
    assert not raw.with_name("lift.hdf5").exists()
