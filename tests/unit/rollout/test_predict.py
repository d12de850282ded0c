"""stable-baselines3's protocol: an evaluation by it scores a policy as ours does, with a memory and rewards too."""

import gymnasium as gym
import numpy as np
import pytest

import seqrl
from seqrl.algo import RolloutPolicy
from seqrl.conformance.cases import ACTION_SPACES, OBS, random_obs, small_algo
from seqrl.core.errors import DataError


def rows(rng, num=3):
    return {k: v.numpy() for k, v in random_obs(rng, OBS, num).items()}


@pytest.fixture
def policy():
    return RolloutPolicy(small_algo("bc", "gru", ACTION_SPACES["box"]))


def test_predict_acts_as_the_policy_does_and_begins_episodes_where_it_is_told(policy):
    other = RolloutPolicy(policy.algo)
    rng, state = np.random.default_rng(0), None
    for step in range(8):
        obs, begins = rows(rng), np.array([step == 0, step in (0, 3), step in (0, 5)])
        actions, state = policy.predict(obs, state, episode_start=begins)
        if step:
            other.reset_rows(begins)
        np.testing.assert_array_equal(actions, other(obs, batched_ob=True))
    one = {k: v[0] for k, v in obs.items()}
    assert policy.predict(one)[0].shape == (2, 2)
    assert policy.predict(obs)[0].shape == (3, 2, 2)


def test_another_batch_in_between_is_refused(policy):
    obs = rows(np.random.default_rng(0))
    _, state = policy.predict(obs)
    policy.predict(obs)
    with pytest.raises(DataError, match="was given an outdated state"):
        policy.predict(obs, state)


def test_sampling_may_begin_in_the_middle_and_changes_nothing_else(policy):
    obs = rows(np.random.default_rng(0))
    _, state = policy.predict(obs)
    sampled, _ = policy.predict(obs, state, deterministic=False)
    assert policy.deterministic
    other = RolloutPolicy(policy.algo)
    other(obs, batched_ob=True)
    greedy = other(obs, batched_ob=True)
    assert not np.array_equal(sampled, greedy)
    sampled, _ = policy.predict(obs, deterministic=False)
    policy.reset_rows(np.ones(3, bool))
    other.start_episode()
    np.testing.assert_array_equal(policy(obs, batched_ob=True), other(obs, batched_ob=True))


def test_an_episode_in_between_is_noticed(policy):
    obs = rows(np.random.default_rng(0))
    _, state = policy.predict(obs)
    policy.start_episode()
    policy(obs, batched_ob=True)
    with pytest.raises(DataError, match="was given an outdated state"):
        policy.predict(obs, state)


def test_entries_that_are_not_read_do_not_matter():
    algo = small_algo("bc", "gru", ACTION_SPACES["box"])
    policy = RolloutPolicy(algo, gym.spaces.Dict({"a_camera": gym.spaces.Box(0, 1, (4, 4)), **spaces_of(algo)}))
    obs = {**rows(np.random.default_rng(0)), "a_camera": np.zeros((3, 4, 4), np.float32)}
    assert policy.predict(obs)[0].shape == (3, 2, 2)


def spaces_of(algo):
    return dict(RolloutPolicy(algo).observation_space.spaces)


def test_rewards_are_asked_for_and_come_from_the_wrapper():
    policy = RolloutPolicy(small_algo("actor_critic", "gru", ACTION_SPACES["discrete"]))
    other, rng = RolloutPolicy(policy.algo), np.random.default_rng(0)
    obs = rows(rng)
    _, state = policy.predict(obs)
    with pytest.raises(DataError, match=r"play in seqrl.with_prev_reward\(env\)"):
        policy.predict(obs, state)
    state = None
    for step in range(4):
        reward = rng.normal(size=(3, 1)).astype(np.float32) * bool(step)
        actions, state = policy.predict({**obs, "prev_reward": reward}, state)
        np.testing.assert_array_equal(actions, other(obs, reward=reward[:, 0], batched_ob=True))


def test_the_wrapper_shows_the_last_reward():
    env = seqrl.with_prev_reward(gym.make("CartPole-v1"))
    obs, _ = env.reset(seed=0)
    assert set(obs) == {"observation", "prev_reward"}
    assert env.observation_space.contains(obs)
    assert obs["prev_reward"] == 0.0
    obs, reward, *_ = env.step(0)
    assert obs["prev_reward"] == reward == 1.0


@pytest.mark.slow
def test_stable_baselines3_scores_a_policy_as_our_evaluator_does(tmp_path):
    """A policy that has to remember, learned in a moment; 200 episodes, in four environments at once."""
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    data = [{"scripted": "seqrl/TMazePassive-v0", "episodes": 200, "env_kwargs": {"corridor_length": 6}}]
    env = {"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 6}}
    run = seqrl.train(
        "bc",
        memory="gru",
        train={"data": data, "num_epochs": 1, "steps_per_epoch": 60, "window_steps": 8},
        experiment={"output_dir": str(tmp_path), "report": {"enabled": False}},
        verbose=False,
        **{"env.id": env["id"], "env.kwargs": env["kwargs"]},
    )
    ours = run.evaluate(200)["eval/return_mean"]

    envs = vec_env.DummyVecEnv([lambda: gym.make(env["id"], **env["kwargs"])] * 4)
    theirs, _ = evaluation.evaluate_policy(run.policy(), envs, n_eval_episodes=200)
    assert theirs == pytest.approx(ours, abs=0.1)
