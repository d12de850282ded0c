"""A policy that learns six numbers of a rotation: the environment gets axis-angle, wherever the policy acts."""

import os

import gymnasium as gym
import h5py
import numpy as np
import pytest
from gymnasium import spaces

from seqrl import policy_from_checkpoint
from seqrl.algo.export import export_onnx
from seqrl.algo.rollout_policy import RolloutPolicy
from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError, DataError, EnvError
from seqrl.core.rotations import RotationBox
from seqrl.data.ingest import open_store
from seqrl.rollout.selection import actions_along
from seqrl.scripts import collect_dataset
from seqrl.training.experiment import Experiment

STEPS = 5
KEYS = ["action_dict/abs_pos", "action_dict/abs_rot_axis_angle", "action_dict/gripper"]
taken = []


class Arm(gym.Env):
    """Observes what the demonstrations observe, and notes what it is told to do."""

    def __init__(self, width=7):
        self.observation_space = spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (2,), np.float32)})
        self.action_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return {"x": seen(STEPS + 1)[0]}, {}

    def step(self, action):
        assert self.action_space.contains(action)
        taken.append(action)
        self.t += 1
        return {"x": seen(STEPS + 1)[self.t]}, 0.0, False, self.t == STEPS, {}


def seen(num):
    t = np.arange(num, dtype=np.float32)
    return np.stack([t / STEPS, np.cos(2 * t)], axis=1)


def asked(x):
    """Where the arm shall be: angles on both sides of pi, where axis-angle jumps."""
    angle = np.pi + 0.5 * x[:, 1]
    rotation = np.where(angle > np.pi, angle - 2 * np.pi, angle)[:, None] * np.array([0.0, 0.6, 0.8])
    return np.concatenate([3 + x, x[:, :1]], axis=1), rotation, x[:, 1:] / 2


@pytest.fixture(autouse=True)
def _world(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setitem(gym.registry, "tests/Arm-v0", gym.envs.registration.EnvSpec("tests/Arm-v0", Arm))
    taken.clear()
    with h5py.File(tmp_path / "arm.hdf5", "w") as file:
        for i in range(8):
            demo, x = file.create_group(f"data/demo_{i}"), seen(STEPS + 1)
            demo["obs/x"], demo["next_obs/x"], demo["actions"] = x[:-1], x[1:], np.zeros((STEPS, 7))
            for key, values in zip(KEYS, asked(x[:-1]), strict=True):
                demo[key] = values


def config_of(folder, **entry):
    data = {"path": str(folder / "arm.hdf5"), "action_keys": KEYS, "action_rotations": {KEYS[1]: "axis_angle"}, **entry}
    values = {
        "experiment": {"name": "run", "output_dir": str(folder), "report": {"enabled": False},
                       "logging": {"tensorboard": False}, "evaluation": {"episodes": 2, "num_envs": 2}},
        "env": {"id": "tests/Arm-v0"},
        "train": {"data": [data], "window_steps": STEPS, "num_epochs": 1, "steps_per_epoch": 300, "batch_size": 16,
                  "normalize_actions": "min_max", "valid_fraction": 0.0},
        "observation": {"timestep_encoder": {"d_hidden": 32, "d_output": 32}},
        "algo": {"sequence_encoder": {"type": "identity"}, "distribution": {"type": "deterministic"},
                 "actor": {"d_hidden": 32},
                 "optimizer": {"learning_rate": 3e-3, "warmup_steps": 10}},
    }  # fmt: skip
    return config_factory("bc", values)


def test_the_environment_is_told_what_the_demonstrations_told_it(tmp_path, capsys):
    experiment = Experiment(config_of(tmp_path))
    experiment.start()
    experiment.learn()
    expected = np.concatenate(asked(seen(STEPS)), axis=1)
    evaluated = np.stack(taken[-2 * STEPS :: 2])  # the two environments take turns
    np.testing.assert_allclose(evaluated, expected, atol=0.1)

    policy, checkpoint = policy_from_checkpoint(tmp_path / "run" / "last")
    policy.start_episode()
    deployed = np.stack([policy({"x": x}) for x in seen(STEPS)])
    np.testing.assert_allclose(deployed, evaluated, atol=1e-5)
    assert isinstance(policy.action_space, RotationBox)

    by_hand = RolloutPolicy(policy.algo, action_space=Arm().action_space)  # as the environment says it
    np.testing.assert_allclose(by_hand({"x": seen(1)[0]}), expected[0], atol=0.1)
    with pytest.raises(DataError, match="10 and 6 numbers"):
        RolloutPolicy(policy.algo, action_space=Arm(6).action_space)
    with pytest.raises(ConfigError, match="rotations"):
        export_onnx(policy.algo, tmp_path / "policy.onnx", policy.observation_space, policy.action_space)

    data = open_store(str(tmp_path / "arm.hdf5"), {"action_keys": KEYS})  # does not say that there are rotations
    proposed = actions_along(policy.algo, data, num_draws=1, deterministic=True, seed=0)
    assert proposed.shape == (8 * (STEPS + 1), 1, 10)

    recorded = tmp_path / "own.hdf5"
    options = ["--agent", str(checkpoint.path), "--episodes", "2", "--output", str(recorded)]
    assert collect_dataset.main(options) == 0
    store = open_store(str(recorded))
    assert store.info.action_space == policy.action_space
    np.testing.assert_allclose(store.trajectory(0).actions, evaluated, atol=1e-5)


def test_an_environment_that_takes_other_actions_is_refused(tmp_path):
    config = config_of(tmp_path, action_keys=KEYS[:2])
    with pytest.raises(EnvError, match=r"takes Box.*\(7,\).*like Box.*\(6,\), float32\) with rotations at \[3\]"):
        Experiment(config).start()
