"""What environments tell in ``info``, and how long their episodes are."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import ConfigError, EnvError
from seqrl.envs.check.environment import check_environment
from seqrl.envs.horizon import finds_nothing, horizon_and_kind
from seqrl.envs.infos import is_success
from seqrl.envs.make import EndAtSuccess, make_batched_env
from seqrl.rollout.environments import limited


class Teller(gym.Env):
    """Two steps; the last tells something of its own type."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def __init__(self, told):
        self.told = told

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(1, np.float32), 0.0, self.time == 2, False, self.told if self.time == 2 else {}


def last_step(*tellers, vectorization="sync"):
    makers = [lambda told=told: Teller(told) for told in tellers]
    env = make_batched_env(makers, len(tellers), vectorization=vectorization)
    env.reset(seed=0)
    actions = np.eye(2, dtype=np.float32)[[0] * len(tellers)]
    env.step(actions)
    step = env.step(actions)
    env.close()
    return step


def test_a_logged_number_keeps_its_value_whatever_the_type_of_the_first_row():
    values, known = last_step({"log/score": 0}, {"log/score": 0.75}, {"log/score": True}).log["log/score"]
    assert values.tolist() == [0.0, 0.75, 1.0]
    assert known.all()


def test_success_may_be_a_dict_or_an_array_of_one():
    step = last_step({"is_success": {"task": False}}, {"is_success": {"task": True}}, {"success": np.array([False])})
    assert step.success.tolist() == [False, True, False]
    assert step.success_known.all()
    env = EndAtSuccess(Teller({"is_success": {"task": False}}))
    env.reset()
    assert not env.step(0)[2]
    with pytest.raises(EnvError, match=r"shape \(2,\), not one value"):
        is_success(np.zeros(2))


@pytest.mark.parametrize("told", ["no", 0.3, float("nan"), -1])
def test_success_is_true_or_false(told):
    with pytest.raises(EnvError, match=r"success in info is .* has to be True or False, or 1 or 0; log a measure"):
        is_success(told)
    found = check_environment(lambda: Teller({"success": told}), num_steps=4)
    assert any("has to be True or False" in fault.text for fault in found)


def test_a_success_of_none_is_none():
    step = last_step({"success": None}, {"success": 1.0})
    assert step.success.tolist() == [False, True]
    assert step.success_known.tolist() == [False, True]


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_what_is_not_read_of_an_info_may_have_any_form(vectorization):
    told = [{"contacts": np.zeros(2), "end": 0, "success": True}, {"contacts": np.zeros(3), "end": "fell"}]
    step = last_step(*told, vectorization=vectorization)
    assert step.success.tolist() == [True, False]
    assert step.done.all()
    assert step.fault is None


def test_a_logged_array_of_one_is_a_number_and_anything_else_is_told():
    values, known = last_step({"log/distance": np.array([0.5])}, {"log/distance": 2}).log["log/distance"]
    assert (values.tolist(), known.tolist()) == ([0.5, 2.0], [True, True])
    for wrong in ("near", np.zeros(2), None):
        with pytest.raises(EnvError, match=r"info\['log/distance'\] is logged, so it has to be a number, and is "):
            last_step({"log/distance": wrong})
        found = check_environment(lambda wrong=wrong: Teller({"log/distance": wrong}), num_steps=4)
        assert any("info['log/distance'] is logged" in finding.text for finding in found)


def test_a_callable_has_to_make_a_new_environment_each_time():
    one = gym.make("CartPole-v1")
    with pytest.raises(EnvError, match="one environment twice"):
        make_batched_env(lambda: one, 3)
    with pytest.raises(EnvError, match="this one returned None"):
        make_batched_env(lambda: None, 1)
    with pytest.raises(EnvError, match="a callable that makes an environment is needed"):
        make_batched_env(one, 1)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "steps"),
    [
        ("seqrl/Attempts-v0", {"env_id": "CartPole-v1", "attempts": 3}, 1500),
        ("seqrl/Attempts-v0", {"env_id": "CartPole-v1", "attempts": 3, "max_episode_steps": 70}, 70),
        ("CartPole-v1", {}, 500),
    ],
)
def test_the_horizon_is_that_of_all_attempts(env_id, kwargs, steps):
    assert horizon_and_kind(env_id, kwargs)[:2] == (steps, "its time limit")


@pytest.mark.parametrize(
    ("env_id", "kwargs", "steps", "expected"),
    [
        ("MountainCar-v0", {}, 200, True),
        ("Acrobot-v1", {}, 500, True),
        ("CartPole-v1", {}, 500, False),  # ends early
        ("Pendulum-v1", {}, 200, False),  # returns differ
        ("MountainCar-v0", {}, 100, False),  # goes on
        ("MountainCar-v0", {"max_episode_steps": 2_001}, 2_001, False),  # is too long to be played
        ("seqrl/Bandit-v0", {"horizon": 200}, 200, False),
    ],
)
def test_whether_random_play_finds_nothing(env_id, kwargs, steps, expected):
    assert finds_nothing(env_id, kwargs, steps) is expected


def test_random_play_that_fails_is_left_to_the_run():
    assert not finds_nothing("tests/Picky-v0", {"step": (0, 0.0, True, {})}, 12)


class Picky(gym.Env):
    """Has one legal action in each step; another ends the episode, or is refused."""

    action_space = spaces.Discrete(6)

    def __init__(self, refuses=False, in_info=False, **broken):
        self.refuses, self.in_info, self.broken = refuses, in_info, broken
        own = {"time": spaces.Box(0, 12, (1,))}
        self.observation_space = spaces.Dict(own if in_info else {**own, "action_mask": spaces.MultiBinary(6)})

    def seen(self):
        self.legal = int(self.np_random.integers(6))
        mask = np.eye(6, dtype=np.int8)[self.legal]
        time = np.array([self.time], np.float32)
        return ({"time": time}, {"action_mask": mask}) if self.in_info else ({"time": time, "action_mask": mask}, {})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.broken.get("reset") or self.seen()

    def step(self, action):
        is_over = action != self.legal
        assert not (is_over and self.refuses), "illegal"
        self.time += 1
        obs, info = self.seen()
        return self.broken.get("step") or (obs, 0.0, is_over or self.time == 12, False, info)


class Uneven(Picky):
    """Each episode has one step more than the one before it."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        return super().reset(seed=seed)

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, self.time == self.episodes - 1, truncated, info


gym.register("tests/Picky-v0", entry_point=Picky, disable_env_checker=True)


@pytest.mark.parametrize("kwargs", [{}, {"refuses": True}, {"in_info": True}])
def test_the_horizon_is_that_of_legal_actions(kwargs):
    assert horizon_and_kind("tests/Picky-v0", kwargs)[0] == 12


def test_a_reset_without_info_is_told_before_the_plan():
    with pytest.raises(EnvError, match=r"'tests/Picky-v0': reset returned 3 values, but has to return \(obs, info\)"):
        horizon_and_kind("tests/Picky-v0", {"reset": (1, 2, 3)})
    told = r"'tests/Picky-v0' fails in play with random actions: .*`seqrl check-env tests/Picky-v0 --plugin json`"
    with pytest.raises(EnvError, match=told):
        horizon_and_kind("tests/Picky-v0", {"step": (0, 0.0, True, {})}, plugins=["json"])


def test_how_long_episodes_are_is_known_if_all_that_were_played_are_alike():
    assert horizon_and_kind("tests/Picky-v0")[1] == "the length of each of 3 with random actions"
    gym.register("tests/Uneven-v0", entry_point=Uneven, disable_env_checker=True)
    assert horizon_and_kind("tests/Uneven-v0")[:2] == (3, "the longest of 3 with random actions")


def test_environments_of_a_users_own_are_limited_too():
    for makers in (limited(lambda: Teller({}), 1), limited([lambda: Teller({})], 1)[0]):
        env = makers()
        env.reset()
        assert env.step(0)[2:4] == (False, True)
    assert limited(Teller, None) is Teller
    with pytest.raises(ConfigError, match="limits single environments"):
        limited(lambda: gym.make_vec("CartPole-v1", 2), 5)()
