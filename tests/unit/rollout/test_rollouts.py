"""Each row gives its first episodes: what is short is not favoured, and nothing is counted twice."""

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from seqrl.envs import BatchedEnv, make_batched_env
from seqrl.envs.make import env_maker
from seqrl.rollout import rollouts
from seqrl.rollout.rollouts import ScriptedPolicy, collect_episodes, evaluate_episodes, play, row_quota


class Lengthy(gym.Env):
    """Episode ``e`` of row ``r`` takes ``lengths[r][e]`` steps; every step is worth 1."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, row, lengths):
        self.row, self.lengths, self.episode = row, lengths, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.time = 0
        return self._obs(), {}

    def step(self, action):
        self.time += 1
        over = self.time >= self.lengths[self.episode % len(self.lengths)]
        info = {"success": self.episode == 0, "log/episode": float(self.episode)} if over else {}
        return self._obs(), 1.0, over, False, info

    def _obs(self):
        return np.array([self.row, self.episode, self.time], np.float32)


def _env(lengths, mode=AutoresetMode.SAME_STEP):
    makers = [functools.partial(Lengthy, r, per_row) for r, per_row in enumerate(lengths)]
    return BatchedEnv(SyncVectorEnv(makers, autoreset_mode=mode))


def _still(step):
    return np.tile(np.array([1.0, 0.0], np.float32), (len(step.reward), 1))


@pytest.mark.parametrize("num_rows", [1, 2, 3, 7])
@pytest.mark.parametrize("num_episodes", [0, 1, 2, 5, 14, 200])
def test_quota_is_whole_and_even(num_episodes, num_rows):
    quota = row_quota(num_episodes, num_rows)
    assert quota.sum() == num_episodes
    assert len(quota) == num_rows
    assert quota.max() - quota.min() <= 1
    assert (np.diff(quota) <= 0).all()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_first_episodes_of_each_row_are_taken(mode):
    lengths = [[2, 9, 1], [50, 1, 1], [1, 1, 1]]
    episodes = evaluate_episodes(_env(lengths, mode), _still, 7, seed=0)
    assert [(e.row, e.length, e.total_reward, e.log["log/episode"]) for e in episodes] == [
        (0, 2, 2.0, 0.0), (0, 9, 9.0, 1.0), (0, 1, 1.0, 2.0),
        (1, 50, 50.0, 0.0), (1, 1, 1.0, 1.0),
        (2, 1, 1.0, 0.0), (2, 1, 1.0, 1.0),
    ]  # fmt: skip
    assert [e.success for e in episodes] == [True, False, False, True, False, True, False]


def test_short_episodes_are_not_favoured():
    """One row has long episodes, three have short ones: with whatever ends first, the long ones would never count."""
    lengths = [[100], [1], [1], [1]]
    episodes = evaluate_episodes(_env(lengths), _still, 8, seed=0)
    assert np.mean([e.length for e in episodes]) == (100 + 1 + 1 + 1) / 4


def test_fewer_episodes_than_rows():
    episodes = evaluate_episodes(_env([[5], [1], [1]]), _still, 2, seed=0)
    assert [(e.row, e.length) for e in episodes] == [(0, 5), (1, 1)]


def test_on_step_sees_the_reset_and_every_step_once():
    seen = []
    evaluate_episodes(_env([[3], [2]]), _still, 2, seed=0, on_step=lambda a, s: seen.append((a, s.obs["obs"].copy())))
    actions = [a for a, _ in seen]
    assert actions[0] is None
    assert all(np.array_equal(a, [[1, 0], [1, 0]]) for a in actions[1:])
    assert [o[0, 2] for _, o in seen] == [0, 1, 2, 0]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_collected_are_the_first_episodes_of_each_row(mode):
    lengths = [[2, 9], [5, 1], [1, 1]]
    found = {}
    for trajectory in collect_episodes(_env(lengths, mode), _still, 5, seed=0):
        trajectory.check()
        row, episode, time = (int(x) for x in trajectory.obs["obs"][0])
        assert trajectory.start_step == time == 0
        assert (row, episode) not in found
        found[row, episode] = len(trajectory)
    assert found == {(0, 0): 2, (0, 1): 9, (1, 0): 5, (1, 1): 1, (2, 0): 1}


def test_collecting_stops_as_soon_as_it_can():
    env = _env([[3], [3]])
    steps = []
    real_step = env.step
    env.step = lambda actions: steps.append(1) or real_step(actions)
    assert len(list(collect_episodes(env, _still, 4, seed=0))) == 4
    assert len(steps) == 6


def test_nothing_is_collected_if_nothing_is_asked_for():
    assert list(collect_episodes(_env([[3]]), _still, 0, seed=0)) == []


def test_play_gives_the_actions_with_the_step_they_led_to():
    stream = play(_env([[10]]), lambda s: np.eye(2, dtype=np.float32)[[int(s.obs["obs"][0, 2]) % 2]], seed=0)
    first, *rest = [next(stream) for _ in range(4)]
    assert first[0] is None
    assert [(int(a.argmax()), s.obs["obs"][0, 2]) for a, s in rest] == [(0, 1.0), (1, 2.0), (0, 3.0)]


@pytest.mark.parametrize("env_id", ["seqrl/TMazePassive-v0", "seqrl/TMazeActive-v0"])
def test_expert_solves_every_row_in_every_episode(env_id):
    env = make_batched_env(env_maker(env_id, {"corridor_length": 4, "balanced_goals": True}), 3)
    episodes = evaluate_episodes(env, ScriptedPolicy(env_id, env), 12, seed=0)
    assert [e.success for e in episodes] == [True] * 12
    assert [e.total_reward for e in episodes] == [1.0] * 12


def test_expert_data_is_the_expert():
    env_id = "seqrl/TMazePassive-v0"
    env = make_batched_env(env_maker(env_id, {"corridor_length": 3, "balanced_goals": True}), 2)
    trajectories = list(collect_episodes(env, ScriptedPolicy(env_id, env), 8, seed=0))
    hints = [t.obs["obs"][0, 3] for t in trajectories]
    assert sorted(hints) == [-1.0] * 4 + [1.0] * 4
    for trajectory, hint in zip(trajectories, hints, strict=True):
        assert trajectory.actions.tolist() == [0, 0, 0, 1 if hint > 0 else 3]
        assert trajectory.rewards.tolist() == [0, 0, 0, 1]


def test_evaluation_is_the_same_for_the_same_seed():
    def lengths(seed):
        env = make_batched_env(env_maker("seqrl/TMazePassive-v0", {"corridor_length": 2}), 3)
        up = lambda s: np.eye(4, dtype=np.float32)[np.where(s.obs["obs"][:, 2] > 0, 1, 0)]  # noqa: E731
        return [e.success for e in evaluate_episodes(env, up, 30, seed=seed)]

    assert lengths(4) == lengths(4)
    assert lengths(4) != lengths(5)


def test_noise_replaces_that_share_of_the_experts_actions():
    def actions(noise, seed=0):
        env = make_batched_env(env_maker("seqrl/TMazePassive-v0", {"corridor_length": 6}), 10)
        policy = ScriptedPolicy("seqrl/TMazePassive-v0", env, noise=noise, seed=seed)
        episodes = list(collect_episodes(env, policy, 100, seed=0))
        env.close()
        return np.concatenate([e.actions for e in episodes])

    expert, noisy, again, random = actions(0.0), actions(0.4), actions(0.4), actions(1.0)
    assert np.isin(expert, [0, 1, 3]).all()  # never back
    assert np.array_equal(noisy, again)
    assert not np.array_equal(noisy, actions(0.4, seed=1))
    assert np.mean(noisy == 2) == pytest.approx(0.1, abs=0.03)  # one of four random actions, in 40 % of the steps
    np.testing.assert_allclose([np.mean(random == a) for a in range(4)], 0.25, atol=0.05)


def test_episodes_that_do_not_end_are_told_once(monkeypatch, caplog):
    monkeypatch.setattr(rollouts, "ENDLESS_AFTER", 20)
    evaluate_episodes(_env([[10_000], [10_000]]), _still, 2, seed=0, max_steps=60)
    assert caplog.text.count("no episode has ended within 20 steps of each environment") == 1
    caplog.clear()
    evaluate_episodes(_env([[10_000], [15]]), _still, 2, seed=0, max_steps=60)
    assert not caplog.text
