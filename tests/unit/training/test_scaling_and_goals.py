"""Runs that scale by their data, or read goals: what the networks see in training is what they see in acting."""

import os

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import seqrl.training.setup as setup
from seqrl import policy_from_checkpoint
from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError
from seqrl.core.types import Trajectory
from seqrl.data.store import StoreWriter
from seqrl.data.store_info import StoreInfo
from seqrl.training.experiment import Experiment

LOW, HIGH, STEPS = 100.0, 300.0, 5


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Reach(gym.Env):
    """The action has to be half of what is observed, on a scale of -1 to 1; a goal environment if asked."""

    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, has_goals=False):
        entries = ("observation", "achieved_goal", "desired_goal")[: 3 if has_goals else 1]
        self.observation_space = spaces.Dict({k: spaces.Box(-np.inf, np.inf, (1,), np.float32) for k in entries})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.error = 0, 0.0
        return self._seen(), {}

    def _seen(self):
        self.x = self.np_random.uniform(LOW, HIGH)
        return {k: np.array([self.x], np.float32) for k in self.observation_space}

    def step(self, action):
        self.error = max(self.error, abs(float(action[0]) - (self.x - 200) / 100))
        self.t += 1
        return self._seen(), 0.0, False, self.t == STEPS, {"success": self.error < 0.15}


def write_data(path, entries=("observation",), image=None, **info):
    """Demonstrations as robomimic keeps them: actions in [-1, 1] whatever the environment's bounds."""
    rng = np.random.default_rng(0)
    shapes = dict.fromkeys(entries, (1,)) | ({image: (8, 8, 3)} if image else {})
    boxes = {k: spaces.Box(-np.inf, np.inf, shape, np.float32) for k, shape in shapes.items()}
    info = StoreInfo(spaces.Dict(boxes), spaces.Box(-1.0, 1.0, (1,)), spaces_are_known=False, **info)
    with StoreWriter(path, info) as writer:
        for _ in range(30):
            x = rng.uniform(LOW, HIGH, (STEPS + 1, 1)).astype(np.float32)
            obs = {k: x if shape == (1,) else np.zeros((STEPS + 1, *shape), np.float32) for k, shape in shapes.items()}
            ends = np.arange(STEPS) == STEPS - 1
            rewards, flags = np.zeros(STEPS, np.float32), {"terminated": np.zeros(STEPS, bool), "truncated": ends}
            writer.append(Trajectory(obs=obs, actions=(x[:-1] - 200) / 200, rewards=rewards, **flags))


def config_of(folder, observation=None, evaluate=True, **train):
    values = {
        "experiment": {
            "name": "run",
            "output_dir": str(folder),
            "report": {"enabled": False},
            "logging": {"tensorboard": False},
            "evaluation": {"enabled": evaluate, "episodes": 10, "every_n_epochs": 10},
        },
        "train": {
            "data": [{"path": str(folder / "data")}],
            "window_steps": STEPS,
            "num_epochs": 1,
            "steps_per_epoch": 150,
            "batch_size": 16,
            **train,
        },
        "observation": {
            "timestep_encoder": {"d_hidden": 32, "d_output": 32, "normalize_inputs": False},
            **(observation or {}),
        },
        "algo": {
            "sequence_encoder": {"type": "identity"},
            "actor": {"d_hidden": 32},
            "distribution": {"type": "deterministic"},
            "optimizer": {"learning_rate": 3e-3, "warmup_steps": 10},
        },
    }
    return config_factory("bc", values)


def started(config, env=Reach, **options):
    experiment = Experiment(config, make_val_env=env, **options)
    experiment.start()
    return experiment


# -------------------------------------------------------------------------------------------- scaling
SCALED = {"normalize_obs": "gaussian", "normalize_actions": "min_max"}


def test_scaled_actions_fill_their_range_whatever_the_environments_bounds(tmp_path):
    """The data's actions are read in [-1, 1], although the environment takes [-2, 2]."""
    write_data(tmp_path / "data")
    experiment = started(config_of(tmp_path, **SCALED))
    batch = experiment.algo.process_batch_for_training(experiment.learner.dataset.batch(200, seed=0, path=()))
    seen, actions = batch.inputs.obs["observation"], batch.actions
    assert 0.95 < float(actions.max()) <= 1 + 1e-5
    assert -1 - 1e-5 <= float(actions.min()) < -0.95
    assert abs(float(seen.mean())) < 0.1
    assert abs(float(seen.std()) - 1) < 0.1
    assert experiment.learn().metrics["eval/success_mean"] == 1.0


def test_actions_in_the_environments_units_fill_their_range_too(tmp_path):
    """They are encoded by its bounds, and so are the statistics."""
    write_data(tmp_path / "data", actions_are_scaled=False)
    experiment = started(config_of(tmp_path, **SCALED))
    dataset = experiment.learner.dataset
    assert 0.23 < float(dataset.batch(200, seed=0, path=()).actions.max()) <= 0.25  # half a unit of two
    actions = experiment.algo.process_batch_for_training(dataset.batch(200, seed=0, path=())).actions
    assert 0.95 < float(actions.max()) <= 1 + 1e-5


def test_statistics_survive_resume_a_new_start_and_deployment(tmp_path):
    write_data(tmp_path / "data")
    first = started(config_of(tmp_path, evaluate=False, **SCALED))
    path = first.learn().path
    wanted = {k: v for k, v in first.algo.serialize().items() if k.startswith("normalizer")}
    assert len(wanted) == 4
    resumed = started(config_of(tmp_path, evaluate=False, **{**SCALED, "num_epochs": 2}), resume=True)
    resumed.learn()
    write_data(tmp_path / "other" / "data")
    warm = config_of(tmp_path / "other", evaluate=False, **SCALED, init_from=str(path))
    for algo in (resumed.algo, started(warm).algo):
        assert all(torch.equal(algo.serialize()[k], v) for k, v in wanted.items())
    warm.train.normalize_obs = "min_max"
    with pytest.raises(ConfigError, match=r"train.normalize_obs is 'min_max', and the weights .* with 'gaussian'"):
        started(warm)
    policy, _ = policy_from_checkpoint(path)
    ob = {"observation": np.array([[150.0], [280.0]], np.float32)}
    np.testing.assert_allclose(policy(ob, batched_ob=True)[:, 0], [-0.5, 0.8], atol=0.2)


# ---------------------------------------------------------------------------------------------- goals
GOAL = {"keys": ["observation"], "goal_keys": ["achieved_goal"]}
ENTRIES = ("observation", "achieved_goal", "desired_goal")


@pytest.mark.parametrize(("mode", "entries"), [("last", ENTRIES[:2]), (None, ENTRIES)])
def test_goals_are_read_in_training_and_evaluation(tmp_path, mode, entries):
    """The environment says the desired goal; the data either does so too, or its episodes' ends are the goals."""
    write_data(tmp_path / "data", entries)
    config = config_of(tmp_path, GOAL, goal_mode=mode, normalize_obs="min_max", steps_per_epoch=2)
    experiment = started(config, lambda: Reach(has_goals=True))
    raw = experiment.learner.dataset.batch(8, seed=0, path=())
    seen = experiment.algo.process_batch_for_training(raw).inputs.obs["goal/achieved_goal"]
    assert float(seen.abs().max()) <= 1.1
    if mode is None:
        entry = experiment.algo.process_batch_for_training(raw).inputs.obs["observation"]
        torch.testing.assert_close(seen, entry)
    done = experiment.learn()
    assert "eval/success_mean" in done.metrics
    policy, _ = policy_from_checkpoint(done.path)
    assert policy(Reach(has_goals=True).reset(seed=0)[0]).shape == (1,)


def test_no_statistics_of_pictures_are_taken(tmp_path, monkeypatch):
    asked = []
    original = setup.column_stats
    monkeypatch.setattr(setup, "column_stats", lambda s, c, **o: (asked.append(c), original(s, c, **o))[1])
    write_data(tmp_path / "data", ("observation",), image="picture")
    observation = {**GOAL, "goal_keys": ["picture", "observation"], "timestep_encoder": {"d_hidden": 8}}
    config = config_of(tmp_path, observation, goal_mode="last", normalize_obs="min_max", evaluate=False)
    experiment = Experiment(config)
    experiment.start()
    experiment.close()
    assert asked == ["obs/observation"]


@pytest.mark.parametrize(
    ("observation", "train", "message"),
    [
        (GOAL, {}, "data has no goals of achieved_goal; set train.goal_mode"),
        ({}, {"goal_mode": "last"}, "goal_mode 'last' needs observation.goal_keys"),
    ],
)
def test_goals_that_are_not_there_are_refused_before_anything_is_made(tmp_path, observation, train, message):
    write_data(tmp_path / "data", ENTRIES[:2])
    with pytest.raises(ConfigError, match=message):
        started(config_of(tmp_path, observation, **train), lambda: Reach(has_goals=True))
    assert not (tmp_path / "run").exists()
