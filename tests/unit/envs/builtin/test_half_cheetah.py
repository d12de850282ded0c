"""HalfCheetahVelocity around a runner of known velocity, and without MuJoCo."""

import importlib.util

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import EnvError
from seqrl.envs.builtin import builtin_env_ids
from seqrl.envs.builtin.half_cheetah import HalfCheetahVelocity, make_half_cheetah_velocity
from seqrl.envs.make import make_env

HAS_MUJOCO = importlib.util.find_spec("mujoco") is not None
ID = "seqrl/HalfCheetahVelocity-v0"


class Runner(gym.Env):
    """Runs at the velocity of its action, at a cost of 0.1."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-9.0, 9.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        info = {"x_velocity": float(action[0]), "reward_ctrl": -0.1}
        return np.zeros(1, np.float32), 123.0, False, False, info


def test_reward_and_metrics_by_hand():
    env = HalfCheetahVelocity(Runner(), 2.0, 2.0)
    env.reset(seed=0)
    rewards = [env.step(np.array([v]))[1] for v in (2.0, 3.0)]
    assert rewards == pytest.approx([-0.1, -1.1])
    info = env.step(np.array([-0.5]))[4]
    assert info["log/target_velocity"] == 2.0
    assert info["log/mean_velocity"] == pytest.approx(4.5 / 3)
    assert info["log/velocity_error"] == pytest.approx(3.5 / 3)
    env.reset()
    assert env.step(np.array([2.0]))[4]["log/velocity_error"] == 0.0


def test_targets_are_drawn_by_episode_and_seed():
    env = HalfCheetahVelocity(Runner(), 1.0, 3.0)
    targets = []
    for seed in (4, None, None, 4):
        env.reset(seed=seed)
        targets.append(env.step(np.zeros(1))[4]["log/target_velocity"])
    assert targets[0] == targets[3]
    assert len(set(targets)) == 3
    assert all(1.0 <= t <= 3.0 for t in targets)
    with pytest.raises(ValueError, match="max_velocity"):
        HalfCheetahVelocity(Runner(), 1.0, 0.5)


def test_the_error_names_the_extra(monkeypatch):
    def fail(*args, **kwargs):
        raise gym.error.DependencyNotInstalled("MuJoCo is not installed")

    monkeypatch.setattr("seqrl.envs.builtin.half_cheetah.gym.make", fail)
    with pytest.raises(EnvError, match=r"pip install 'seqrl\[mujoco\]' \(MuJoCo is not installed\)"):
        make_half_cheetah_velocity()


@pytest.mark.skipif(HAS_MUJOCO, reason="MuJoCo is installed")
def test_without_mujoco_it_is_listed_and_not_made():
    assert ID in builtin_env_ids()
    assert ID not in builtin_env_ids(only_installed=True)
    with pytest.raises(EnvError, match=r"seqrl\[mujoco\]"):
        make_env(ID)


@pytest.mark.skipif(not HAS_MUJOCO, reason="needs MuJoCo")
def test_the_cheetah_runs():
    env = make_env(ID, {"episode_steps": 5})
    obs, _ = env.reset(seed=0)
    assert obs.shape == (17,)
    steps = [env.step(env.action_space.sample()) for _ in range(5)]
    assert [s[3] for s in steps] == [False] * 4 + [True]
    velocity, info = steps[-1][4]["x_velocity"], steps[-1][4]
    assert steps[-1][1] == pytest.approx(info["reward_ctrl"] - abs(velocity - info["log/target_velocity"]))
