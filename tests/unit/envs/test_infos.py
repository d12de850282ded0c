"""What environments tell in ``info``, and how a user's own are made and limited."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import ConfigError, EnvError
from seqrl.envs.check.environment import check_environment
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


def test_environments_of_a_users_own_are_limited_too():
    for makers in (limited(lambda: Teller({}), 1), limited([lambda: Teller({})], 1)[0]):
        env = makers()
        env.reset()
        assert env.step(0)[2:4] == (False, True)
    assert limited(Teller, None) is Teller
    with pytest.raises(ConfigError, match="limits single environments"):
        limited(lambda: gym.make_vec("CartPole-v1", 2), 5)()
