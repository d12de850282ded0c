"""PointRecall by hand: what it shows, when it moves, what it pays."""

import math

import numpy as np
import pytest

from seqrl.envs.builtin.point_recall import PointRecall


def heading(env):
    return env._goal.astype(np.float32)


def test_the_goal_is_shown_once_and_the_delay_ignores_actions():
    env = PointRecall(delay_steps=3, move_steps=5)
    obs, _ = env.reset(seed=0)
    goal = obs[2:4]
    assert math.hypot(*goal) == pytest.approx(1.0, abs=1e-6)
    for t in range(3):
        assert obs[4] == 0.0
        obs, reward, terminated, truncated, _ = env.step(np.ones(2, np.float32))
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert obs[:4].tolist() == [0.0, 0.0, 0.0, 0.0], t
    assert obs[4] == 1.0


def test_the_straight_way_takes_four_steps_and_pays_one_in_all():
    env = PointRecall(delay_steps=0, move_steps=4)
    env.reset(seed=1)
    rewards = []
    for t in range(4):
        obs, reward, terminated, truncated, info = env.step(heading(env))
        rewards.append(reward)
        assert np.linalg.norm(obs[:2]) == pytest.approx(0.2 * (t + 1), abs=1e-5)
        assert terminated == (t == 3)
    assert not truncated
    assert info == {"success": True}
    assert rewards == pytest.approx([0.25] * 4, abs=1e-6)


def test_a_step_is_never_longer_than_a_fifth_and_stays_in_the_arena():
    env = PointRecall(delay_steps=0, move_steps=40)
    env.reset(seed=2)
    obs, *_ = env.step(np.array([1.0, 1.0], np.float32))
    assert np.linalg.norm(obs[:2]) == pytest.approx(0.2, abs=1e-6)
    half, *_ = env.step(np.array([0.0, -0.5], np.float32))
    assert (half[:2] - obs[:2]).tolist() == pytest.approx([0.0, -0.1], abs=1e-6)
    for _ in range(20):
        obs, *_ = env.step(-heading(env))
    assert np.abs(obs[:2]).max() <= 1.5 + 1e-6


def test_the_wrong_way_costs_and_ends_by_the_clock():
    env = PointRecall(delay_steps=1, move_steps=4)
    env.reset(seed=3)
    results = [env.step(-heading(env)) for _ in range(5)]
    assert [r[3] for r in results] == [False] * 4 + [True]
    assert results[-1][4] == {"success": False}
    assert sum(r[1] for r in results) == pytest.approx(-1.0, abs=1e-6)  # four fifths the other way, of four fifths


@pytest.mark.parametrize(("options", "message"), [({"delay_steps": -1}, "delay_steps"), ({"move_steps": 3}, "4")])
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PointRecall(**options)


def test_the_picture_shows_goal_and_point():
    env = PointRecall(render_mode="rgb_array")
    env.reset(seed=0)
    image = env.render()
    assert image.shape == (120, 120, 3)
    colours = {tuple(c) for c in image.reshape(-1, 3).tolist()}
    assert {(70, 180, 90), (50, 90, 220), (235, 235, 235)} <= colours
    assert PointRecall().render() is None
