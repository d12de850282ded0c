"""A vector of one row plays as the environment itself, in every autoreset mode; and ids that have a vector alone."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from seqrl.core.errors import EnvError
from seqrl.envs.make import make_batched_env, make_env
from seqrl.envs.single import SingleOfVector
from tests.regression.test_online import run, small


class Told(gym.Wrapper):
    """Tells something at the end of an episode only, and observes a dict."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Dict(x=env.observation_space)

    def reset(self, **options):
        obs, info = self.env.reset(**options)
        return {"x": obs}, info

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {**info, "log/end": 3.0}
        return {"x": obs}, reward, terminated, truncated, info


def make():
    return Told(gym.make("CartPole-v1"))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_it_plays_as_the_environment(mode):
    single, plain = SingleOfVector(SyncVectorEnv([make], autoreset_mode=mode)), make()
    for seed in (3, 4):
        obs, _ = single.reset(seed=seed)
        expected, _ = plain.reset(seed=seed)
        assert np.array_equal(obs["x"], expected["x"])
        is_over = False
        while not is_over:
            (obs, *rest), (expected, *others) = single.step(1), plain.step(1)
            is_over = rest[1] or rest[2]
            assert np.array_equal(obs["x"], expected["x"])
            assert rest[:3] == others[:3]
            assert rest[3] == others[3]
        assert rest[3] == {"log/end": 3.0}
    single.close()


def test_a_vector_of_several_is_refused():
    with pytest.raises(EnvError, match="a vector of one environment is needed"):
        SingleOfVector(SyncVectorEnv([make, make]))


@pytest.fixture
def vector_id():
    gym.register("tests/VectorOnly-v0", vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv")
    yield "tests/VectorOnly-v0"
    del gym.registry["tests/VectorOnly-v0"]


def test_an_id_that_has_a_vector_alone_is_trained_and_evaluated_in(vector_id, tmp_path):
    env = {"id": vector_id, "kwargs": {}, "vectorization": "native"}
    experiment, stats = run(small(tmp_path, env=env, train={"num_epochs": 1}))
    assert stats.env_steps >= 50
    assert experiment.metrics["eval/episodes"] == 4
    one = make_env(vector_id, max_episode_steps=5)
    one.reset(seed=0)
    assert [one.step(i % 2)[3] for i in range(5)] == [False] * 4 + [True]


def test_what_environments_for_amago_log_is_logged():
    class Logs(gym.Wrapper):
        def step(self, action):
            *step, info = self.env.step(action)
            return *step, {**info, "AMAGO_LOG_METRIC Doors Opened": 2.0, "AMAGO_LOG": 1.0}

    env = make_batched_env(lambda: Logs(gym.make("CartPole-v1")), 2)
    env.reset(0)
    step = env.step(np.eye(2)[[0, 1]])
    assert {k: (v.tolist(), p.tolist()) for k, (v, p) in step.log.items()} == {
        "log/Doors_Opened": ([2.0, 2.0], [True, True])
    }
    env.close()
