"""``seqrl check-env``: what it prints, and its exit codes."""

import json
import re

import gymnasium as gym
import numpy as np
import pytest

from seqrl.envs.builtin import builtin_env_ids
from seqrl.scripts import check_env

GYMNASIUM = [
    "CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "FrozenLake-v1",
    "Taxi-v3", "Taxi-v4", "Blackjack-v1", "CliffWalking-v0", "CliffWalking-v1",
]  # fmt: skip


@pytest.mark.parametrize("env_id", [i for i in GYMNASIUM if i in gym.registry] + builtin_env_ids(only_installed=True))
def test_known_environments_have_no_problem(env_id, capsys):
    assert check_env.main([env_id, "--steps", "400"]) == 0
    captured = capsys.readouterr()
    assert "no problem found" in captured.out
    assert captured.err == ""


@pytest.fixture
def plugin(tmp_path):
    """Return a file that registers a sound environment that talks, a bad one, and one that cannot start."""
    path = tmp_path / "odd_envs.py"
    path.write_text(
        "import gymnasium as gym, numpy as np\n"
        "class Odd(gym.Env):\n"
        "    action_space = gym.spaces.Box(-1, 1, (2,))\n"
        "    observation_space = gym.spaces.Box(-1, 1, (1,))\n"
        "    def __init__(self, wrong=False, broken=False):\n"
        "        print('hello'); self.wrong = wrong\n"
        "        if broken: raise RuntimeError('no licence')\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed); return np.zeros(1, np.float32), {}\n"
        "    def step(self, action):\n"
        "        return np.full(1, 9 * self.wrong, np.float32), 1.0, False, None if self.wrong else False, {}\n"
        "for name, limit in (('Odd', None), ('OddLimited', 5)):\n"
        "    gym.register(f'check/{name}-v0', Odd, max_episode_steps=limit)\n"
    )
    yield str(path)
    for name in ("check/Odd-v0", "check/OddLimited-v0"):
        gym.registry.pop(name, None)


def test_command_on_a_sound_environment(plugin, capsys):
    assert check_env.main(["check/OddLimited-v0", "--plugin", plugin, "--steps", "11"]) == 0
    out = capsys.readouterr().out
    assert "observations  obs  float32 [1]\n" in out
    assert "for the policy continuous, width 2" in out
    assert "11 steps, 2 whole episodes, mean length 5, mean return 5\n" in out
    assert "hello" not in out


def test_command_on_a_bad_environment(plugin, capsys):
    options = ["--plugin", plugin, "--kwargs", '{"wrong": true}', "--json"]
    assert check_env.main(["check/Odd-v0", *options]) == 1
    value = json.loads(capsys.readouterr().out)
    assert value["observations"] == {"obs": {"shape": [1], "dtype": "float32", "categories": None}}
    assert value["actions"]["kind"] == "continuous"
    assert (value["steps"], value["episodes"], value["mean return"]) == (1000, 0, None)
    assert [f["level"] for f in value["findings"]] == ["problem", "problem", "note", "note"]
    assert check_env.main(["check/Odd-v0", *options[:-1]]) == 1
    out = capsys.readouterr().out
    assert "\n2 problems\n  - At step 1, truncated is None" in out
    assert "\n2 notes\n" in out


def test_environment_that_fails_to_start_is_an_error_that_says_where(plugin, capsys):
    assert check_env.main(["check/Odd-v0", "--plugin", plugin, "--kwargs", '{"broken": true}']) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "RuntimeError: no licence (raised in " in err
    assert "odd_envs.py, line " in err


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["CartPoel-v1"], "did you mean 'CartPole-v1'"),
        (["CartPole-v1", "--kwargs", '{"speed": 1}'], "speed"),
        (["CartPole-v1", "--steps", "0"], "--steps must be at least 1"),
        (["CartPole-v1", "--seed", "-1"], "--seed must be at least 0"),
        (["CartPole-v1", "--plugin", "nowhere.py"], "does not exist"),
    ],
)
def test_user_errors_exit_with_2(arguments, phrase, capsys):
    assert check_env.main(arguments) == 2
    assert phrase in capsys.readouterr().err


def test_gymnasiums_own_warnings_come_back(capsys):
    before = gym.logger.min_level
    check_env.main(["CartPole-v1", "--steps", "1"])
    assert gym.logger.min_level == before


@pytest.mark.parametrize(
    ("sizes", "told"),
    [([3, 5], "categories 3, 5"), ([3, 5] * 20, "3 to 5 categories each"), ([4] * 9, "4 categories each")],
)
def test_many_categories_are_told_by_their_range(sizes, told, capsys):
    class Grid(gym.Env):
        observation_space = gym.spaces.MultiDiscrete(sizes)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(len(sizes), np.int64), {}

        def step(self, action):
            return np.zeros(len(sizes), np.int64), 0.0, True, False, {}

    gym.register("check/Grid-v0", Grid)
    try:
        check_env.main(["check/Grid-v0", "--steps", "5"])
    finally:
        del gym.registry["check/Grid-v0"]
    assert re.search(rf"int64 \[{len(sizes)}\]  {told}\n", capsys.readouterr().out)
