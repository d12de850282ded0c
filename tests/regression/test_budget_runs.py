"""Runs by a budget in environments whose episodes no seed decides, or that never end: resumed, evaluated, played."""

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import seqrl
from seqrl.scripts import run_trained_agent, train


def run(main, arguments, capsys):
    """Return exit code, stdout and stderr of a script, called in this process."""
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unseeded.py").write_text(UNSEEDED)
    return tmp_path


UNSEEDED = """
import os
import gymnasium as gym
import numpy as np


class Unseeded(gym.Env):
    '''Episodes whose lengths no seed decides, as on a robot; with ``endless``, they never end.'''

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, endless=False):
        self.endless = endless

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 17 + os.urandom(1)[0] % 60
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        info = {"success": self.endless and self.left < 0}
        return np.zeros(2, np.float32), 1.0, self.left <= 0 and not self.endless, False, info


gym.register("tests/Unseeded-v0", Unseeded)
"""


def test_a_run_by_a_budget_goes_on_with_what_it_began_with(folder, capsys):
    quick = [x for key in ("evaluation", "report") for x in ("--set", f"experiment.{key}.enabled=false")]
    plugin = ["--plugin", "unseeded.py", "--env", "tests/Unseeded-v0"]
    common = ["--algo", "actor_critic", "--memory", "gru", *plugin, *quick, "--set", "train.replay_ratio=0.04"]
    code, _, err = run(train.main, [*common, "--env-steps", 100, "--set", "train.num_epochs=2"], capsys)
    assert code == 0, err
    (config,) = folder.glob("runs/*/config.json")
    began = json.loads(config.read_text())
    for _ in range(2):  # episodes are measured anew, and differ
        code, _, err = run(train.main, [*common, "--env-steps", 100, "--resume"], capsys)
        assert code == 0, err
    for more in (["--env-steps", 200], ["--env-steps", 100, "--set", "train.num_epochs=5"]):
        code, _, err = run(train.main, [*common, *more, "--resume"], capsys)
        assert code == 0, err
    now = json.loads(config.read_text())
    assert (began["train"].pop("num_epochs"), now["train"].pop("num_epochs")) == (2, 5)
    assert now == began
    code, _, err = run(train.main, [*common, "--env-steps", 100, "--resume", "--set", "train.window_steps=5"], capsys)
    assert code == 2
    assert "train.window_steps  was" in err


def test_rules_of_evaluation_hold_after_training_and_endless_episodes_are_warned_of(folder, capsys):
    common = ["--algo", "actor_critic", "--memory", "gru", "--plugin", "unseeded.py", "--env", "tests/Unseeded-v0"]
    common += ["--set", 'env.kwargs={"endless": true}', "--env-steps", 100, "--set", "train.batch_size=2"]
    code, printed, err = run(train.main, [*common, "--print-config"], capsys)
    assert json.loads(printed)["train"]["window_steps"] == 32
    assert "an evaluation may never end. Set experiment.evaluation.max_steps" in err
    short = ["--set", "experiment.evaluation.max_steps=7", "--set", "experiment.report.enabled=false", "--name", "r"]
    code, _, err = run(train.main, [*common, *short, "--set", "experiment.evaluation.episodes=2"], capsys)
    assert code == 0, err
    assert "may never end" not in err
    rollouts = ["--agent", "runs/r", "--plugin", "unseeded.py", "--n_rollouts", 2, "--json"]
    limit = ["--env-kwargs", '{"max_episode_steps": 8}']
    for more, length in (([], 7), (["--horizon", 9], 9), (limit, 8), ([*limit, "--horizon", 9], 9)):
        code, printed, err = run(run_trained_agent.main, [*rollouts, *more], capsys)
        assert code == 0, err
        assert json.loads(printed)["eval/length_mean"] == length
    assert seqrl.evaluate("runs/r", 2, plugins=["unseeded.py"])["eval/length_mean"] == 7
    ends = ["--set", "experiment.evaluation.terminate_on_success=true", "--set", "experiment.evaluation.max_steps=200"]
    code, _, err = run(train.main, [*common, *short, *ends, "--resume", "--set", "train.num_epochs=51"], capsys)
    assert code == 0, err
    code, printed, _ = run(run_trained_agent.main, rollouts, capsys)
    assert json.loads(printed)["eval/length_mean"] < 80


class EndsSometimes(gym.Env):
    """Episodes end after 10 steps if they were seeded with 0, and else never, or after a few steps."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

    def __init__(self, is_endless=True):
        self.is_endless = is_endless

    def reset(self, *, seed=None, options=None):
        self.time, self.end = 0, 10 if seed == 0 else 9999 if self.is_endless else 3
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), 0.0, self.time >= self.end, False, {}


gym.register("tests/EndsSometimes-v0", entry_point=EndsSometimes, disable_env_checker=True)


@pytest.mark.parametrize(
    ("is_endless", "told"),
    [
        (True, 'tests/EndsSometimes-v0 {"is_endless": true}: an episode with random actions did not end'),
        (False, "had at most 10 steps, and the run is planned for 500."),
    ],
)
def test_what_is_not_known_of_any_task_is_told(is_endless, told, caplog):
    own = {"id": "tests/EndsSometimes-v0", "kwargs": {"is_endless": is_endless}}
    tasks = json.dumps([own, {"id": "CartPole-v1"}, own])
    words = ["--algo", "actor_critic", "--memory", "gru", "--env-steps", "20k", "--set", f"env.tasks={tasks}"]
    train.resolve_config(train.parser().parse_args(words))
    assert [told in text for text in caplog.messages] == [True]


def test_episodes_that_a_policy_may_prolong_are_not_planned_as_short():
    words = ["--algo", "actor_critic", "--memory", "gru", "--env-steps", "20k", "--set", "env.kwargs.is_endless=false"]
    alone = [*words, "--env", "tests/EndsSometimes-v0"]
    config, _ = train.resolve_config(train.parser().parse_args(alone))
    assert (config.algo.novelty, config.collect.exploration.start) == (0.0, 0.2)
    limited = [*alone, "--set", "env.kwargs.max_episode_steps=50"]
    config, _ = train.resolve_config(train.parser().parse_args(limited))
    assert config.algo.novelty > 0
    assert config.collect.exploration.start == 0.08
