"""Attempts around tasks whose every step is known."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from seqrl.core.errors import EnvError
from seqrl.envs.builtin.attempts import Attempts, make_attempts
from seqrl.envs.make import env_maker, make_batched_env, make_env


class Counting(gym.Env):
    """Three steps; shows the step and a number drawn by the reset; action 1 pays one, and in the last step succeeds."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-1.0, 9.0, (2,), np.float32)

    def __init__(self, truncates=False):
        self.truncates, self.seeds = truncates, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.num, self.task = 0, self.np_random.random()
        return self.obs(), {"action_mask": np.array([1, 1], np.int8)}

    def step(self, action):
        self.num += 1
        info = {"action_mask": np.array([0, 1], np.int8), "log/num": float(self.num)}
        done = self.num == 3
        if done:
            info["success"] = action == 1
        return self.obs(), float(action), done and not self.truncates, done and self.truncates, info

    def obs(self):
        return np.array([self.num, self.task], np.float32)


class Named(Counting):
    observation_space = spaces.Dict({"num": spaces.Box(-1.0, 9.0, (2,), np.float32)})

    def obs(self):
        return {"num": super().obs()}


class Picture(Counting):
    observation_space = spaces.Box(0, 255, (2, 2, 3), np.uint8)

    def obs(self):
        return np.full((2, 2, 3), self.num, np.uint8)


def test_two_attempts_by_hand():
    env = Attempts(Counting(), attempts=2)
    obs, _ = env.reset(seed=0)
    task = obs[1]
    assert obs.tolist() == [0, task, 1, 0]
    steps = [env.step(a) for a in (1, 1, 0, 0, 0, 1)]
    assert [s[0].tolist() for s in steps] == [
        [1, task, 0, 0], [2, task, 0, 0], [0, task, 1, 0.5],
        [1, task, 0, 0.5], [2, task, 0, 0.5], [3, task, 0, 1],
    ]  # fmt: skip
    assert [s[1] for s in steps] == [1, 1, 0, 0, 0, 1]
    assert [s[2] for s in steps] == [False] * 5 + [True]
    assert not any(s[3] for s in steps)
    middle, end = steps[2][4], steps[5][4]
    assert middle.pop("action_mask").tolist() == [1, 1]  # that of the next attempt's first step
    assert middle == {"log/num": 3.0, "log/attempt_1_return": 2.0, "log/attempt_1_success": 0.0}
    assert end.pop("action_mask").tolist() == [0, 1]
    assert end == {"log/num": 3.0, "success": True, "log/attempt_2_return": 1.0, "log/attempt_2_success": 1.0}


class Early(Counting):
    def step(self, action):
        *answer, info = super().step(action)
        return *answer, info | {"success": self.num == 1}


def test_success_in_the_middle_of_an_attempt_counts_for_it_alone():
    env = Attempts(Early(), attempts=2)
    env.reset(seed=0)
    infos = [env.step(0)[4] for _ in range(6)]
    assert [info.get("success") for info in infos] == [None, None, None, True, False, False]
    assert (infos[2]["log/attempt_1_success"], infos[5]["log/attempt_2_success"]) == (1.0, 1.0)


def test_an_attempt_that_the_clock_ends_is_an_attempt():
    env = Attempts(Counting(truncates=True), attempts=1)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (True, False)]


def test_tasks_are_the_same_within_an_episode_and_differ_between():
    env = Attempts(Counting(), attempts=2)
    tasks = []
    for _ in range(3):
        first, _ = env.reset(seed=5 if not tasks else None)
        second = [env.step(0)[0] for _ in range(3)][-1]
        assert first[1] == second[1]
        tasks.append(first[1])
    assert len(set(tasks)) == 3
    again, _ = env.reset(seed=5)
    assert again[1] == tasks[0]
    assert env.reset()[0][1] == tasks[1]


def test_other_tasks_on_request():
    inner = Counting()
    env = Attempts(inner, attempts=2, same_task=False)
    first, _ = env.reset(seed=5)
    second = [env.step(0)[0] for _ in range(3)][-1]
    assert first[1] != second[1]
    assert inner.seeds == [5, None]


@pytest.mark.parametrize(("kind", "key"), [(Named, "num"), (Picture, "obs")])
def test_dicts_and_pictures_get_an_entry(kind, key):
    env = Attempts(kind(), attempts=2)
    obs, _ = env.reset(seed=0)
    assert sorted(obs) == sorted(["attempt", key])
    assert obs["attempt"].tolist() == [1, 0]
    assert obs in env.observation_space
    obs, *_ = env.step(0)
    assert obs["attempt"].tolist() == [0, 0]
    assert obs in env.observation_space


def test_a_vector_keeps_its_bounds_and_dtype():
    inner = Counting()
    inner.observation_space = spaces.Box(-np.inf, 9.0, (2,), np.float64)
    space = Attempts(inner).observation_space
    assert space.low.tolist() == [-np.inf, -np.inf, 0, 0]
    assert space.high.tolist() == [9, 9, 1, 1]
    assert space.dtype == np.float64


def test_misuse_is_refused():
    with pytest.raises(EnvError, match="attempts must be >= 1, got 0"):
        Attempts(Counting(), attempts=0)
    with pytest.raises(EnvError, match="already has an entry 'attempt'"):
        Attempts(Attempts(Named()))


@pytest.mark.parametrize("env_id", ["seqrl/MazeRunner-v0", "seqrl/Bandit-v0", "seqrl/TMazePixels-v0"])
def test_is_a_clean_gymnasium_environment(env_id):
    env = make_attempts(env_id, render_mode="rgb_array")
    check_env(env, skip_render_check=True)
    env.reset(seed=0)
    assert env.render().dtype == np.uint8


def test_by_id_the_time_limit_is_that_of_an_attempt():
    kwargs = {
        "attempts": 2,
        "env_id": "seqrl/Bandit-v0",
        "env_kwargs": {"num_arms": 3, "horizon": 9},
        "attempt_steps": 4,
    }
    env = make_env("seqrl/Attempts-v0", kwargs)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(8)]
    assert ends == [(False, False)] * 7 + [(True, False)]


def test_by_id_environments_of_suites_are_made_as_by_themselves():
    pytest.importorskip("popgym")
    env = make_attempts("popgym-RepeatPreviousEasy-v0", attempts=2)
    assert env.observation_space["obs"] == make_env("popgym-RepeatPreviousEasy-v0").observation_space


def test_metrics_of_each_attempt_reach_the_vector():
    env = make_batched_env(env_maker("seqrl/Attempts-v0", {"attempts": 2, "env_kwargs": {"time_limit": 3}}), 2)
    env.reset(seed=0)
    logs = {}
    for _ in range(6):
        step = env.step(env.codec.random(np.random.default_rng(0), 2))
        logs |= step.log
    assert {"log/attempt_1_return", "log/attempt_2_return", "log/attempt_1_success"} <= set(logs)
    assert step.done.all()
