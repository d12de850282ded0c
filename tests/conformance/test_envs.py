"""What every built-in environment has to do. A new one is covered by being registered."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import seqrl.envs
from seqrl.core.spaces import flatten_obs, space_from_json, space_to_json
from seqrl.envs.builtin import builtin_env_ids
from seqrl.envs.experts import EXPERTS, make_expert
from seqrl.envs.make import env_maker
from seqrl.rollout.rollouts import ScriptedPolicy, collect_episodes

IDS = builtin_env_ids(only_installed=True)
make_expert("seqrl/PointRecall-v0")  # registers the built-in ones
NEEDS_GRAPHICS = {"seqrl/HalfCheetahVelocity-v0"}
EXPERT_IDS = [i for i in EXPERTS.names() if i in IDS]


def trace(env, seed, steps=200):
    """Return what a fixed script of actions sees."""
    env.action_space.seed(0)
    obs, _ = env.reset(seed=seed)
    seen = entries(env, obs)
    for _ in range(steps):
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        seen += [*entries(env, obs), np.array([reward, terminated, truncated], np.float64)]
        if terminated or truncated:
            obs, _ = env.reset()
            seen += entries(env, obs)
    return seen


def entries(env, obs):
    return list(flatten_obs(env.observation_space, obs).values())


@pytest.mark.parametrize("env_id", IDS)
def test_is_a_clean_gymnasium_environment(env_id):
    if env_id in NEEDS_GRAPHICS:
        check_env(gym.make(env_id).unwrapped, skip_render_check=True)
    else:
        check_env(gym.make(env_id, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("env_id", IDS)
def test_one_seed_gives_one_course_of_events(env_id):
    first, second = (trace(gym.make(env_id), 3) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    other = trace(gym.make(env_id), 4)
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=False))


@pytest.mark.parametrize("env_id", IDS)
def test_spaces_survive_json(env_id):
    env = gym.make(env_id)
    for space in (env.observation_space, env.action_space):
        assert space_from_json(space_to_json(space)) == space


@pytest.mark.parametrize("env_id", EXPERT_IDS)
def test_the_expert_succeeds(env_id):
    env = seqrl.envs.make_batched_env(env_maker(env_id), 4)
    episodes = list(collect_episodes(env, ScriptedPolicy(env_id, env), 12, seed=0))
    assert len(episodes) == 12
    assert all(e.check().terminated[-1] and e.total_reward == pytest.approx(1.0) for e in episodes)
