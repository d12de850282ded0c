"""What a run is evaluated in, later commands play too: all tasks, with the evaluation's arguments, through failures."""

import json
import logging

import gymnasium as gym
import numpy as np
import pytest

import seqrl
from seqrl.core.errors import EnvError
from seqrl.data.ingest import open_store
from seqrl.scripts import probe, run_trained_agent


class Hall(gym.Env):
    """As long as it is told; it may fail."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=3, fails=0.0, render_mode=None):
        self.length, self.fails = length, fails

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {"env_name": f"hall of {self.length}"}

    def step(self, action):
        self.time += 1
        if self.np_random.random() < self.fails:
            raise RuntimeError("the gripper is lost")
        return np.zeros(1, np.float32), 1.0, self.time == self.length, False, {}


@pytest.fixture(autouse=True)
def _registered(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(gym.registry, "Hall-v0", gym.envs.registration.EnvSpec("Hall-v0", entry_point=Hall))


def train(**env):
    return seqrl.train(
        "actor_critic",
        memory="feedforward",
        name="run",
        verbose=False,
        env=env,
        collect={"steps_per_epoch": 10, "num_envs": 2, "replay": {"min_transitions": 1}},
        train={"num_epochs": 1, "steps_per_epoch": 1, "batch_size": 4, "window_steps": 5},
        experiment={"evaluation": {"episodes": 4}, "report": {"enabled": False}, "logging": {"tensorboard": False}},
    )


def told(capsys, *arguments):
    assert run_trained_agent.main(["--agent", "runs/run", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("common_space", ["off", "with_task"])
def test_all_tasks_are_played_and_told_apart(common_space, capsys):
    tasks = [{"kwargs": {"length": 3}}, {"kwargs": {"length": 6}}]
    run = train(id="Hall-v0", tasks=tasks, common_space=common_space)
    for metrics in (run.evaluate(4), told(capsys, "--n-rollouts", "4")):
        assert metrics["eval/length_mean"] == run.last("eval/length_mean") == 4.5
        assert metrics["eval/hall of 3/length_mean"] == run.last("eval/hall of 3/length_mean") == 3.0
        assert metrics["eval/hall of 6/return_mean"] == 6.0
    assert run.evaluate(1)["eval/episodes"] == (2.0 if common_space == "off" else 1.0)
    told(capsys, "--n-rollouts", "1", "--dataset-path", "played")
    store = open_store("played")
    assert len(store) == (2 if common_space == "off" else 1)
    assert "length" not in store.info.env_kwargs
    if common_space == "off":
        assert sorted(store.length.tolist()) == [3, 6]


def test_arguments_of_the_evaluation_hold_unless_others_are_given(capsys):
    run = train(id="Hall-v0", kwargs={"length": 3}, eval_kwargs={"length": 7})
    assert run.evaluate(4)["eval/length_mean"] == run.last("eval/length_mean") == 7.0
    assert told(capsys, "--n-rollouts", "4")["eval/length_mean"] == 7.0
    assert told(capsys, "--n-rollouts", "4", "--env-kwargs", '{"length": 4}')["eval/length_mean"] == 4.0
    assert told(capsys, "--n-rollouts", "4", "--env", "Hall-v0")["eval/length_mean"] == 3.0


def test_environments_that_fail_are_restarted_and_told(capsys, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("seqrl"), "propagate", True)
    run = train(id="Hall-v0", eval_kwargs={"fails": 0.2}, max_restarts=100)
    assert "in evaluation" in caplog.text
    assert "the gripper is lost" in caplog.text
    caplog.clear()
    assert run.evaluate(4)["eval/episodes"] == 4.0
    assert "do not count" in caplog.text
    told(capsys, "--n-rollouts", "6", "--dataset-path", "played")
    assert open_store("played").length.tolist() == [3] * 6
    assert probe.main(["runs/run", "--episodes", "20", "--output", "probed"]) == 0
    assert "the gripper is lost" in capsys.readouterr().err
    with pytest.raises(EnvError, match="the gripper is lost"):
        run.evaluate(4, env=hopeless)


def hopeless():
    """Return an environment that always fails."""
    return Hall(fails=1.0)
