"""Fork by hand: the wall, the line, which way pays, and demonstrators who disagree."""

import numpy as np
import pytest

from seqrl.envs.builtin.fork import Fork, ForkDemonstrator


def played(env, policy, seed=0):
    """Return the places, the reward and the last info of an episode."""
    obs, _ = env.reset(seed=seed)
    places, over = [obs], False
    while not over:
        obs, reward, terminated, truncated, info = env.step(policy(obs))
        over = terminated or truncated
        places.append(obs)
    return np.array(places), reward, info, truncated


def test_straight_on_is_the_wall():
    places, reward, info, truncated = played(Fork(), lambda obs: np.array([1.0, 0.0]))
    assert places[:, 0].tolist() == pytest.approx([0.0, 0.2, 0.4])
    assert (reward, info, truncated) == (0.0, {"success": False, "log/passed": 0.0, "log/right": 0.0}, False)


def test_a_step_through_a_corner_of_the_wall_hits_it():
    env = Fork()
    env.reset()
    env._place = np.array([0.39, 0.25])
    _, reward, terminated, *_ = env.step(np.array([0.5, 0.9]))
    assert (reward, terminated) == (0.0, True)


def test_demonstrators_take_either_side_and_arrive():
    demonstrator, sides = ForkDemonstrator(), []
    for seed in range(100):
        demonstrator.reset()
        places, reward, info, _ = played(Fork(), demonstrator, seed)
        assert (len(places), reward, info["success"]) == (8, 1.0, True)
        assert np.linalg.norm(np.diff(places, axis=0), axis=1).max() <= 0.2 + 1e-6
        sides.append(info["log/right"])
    assert 35 <= sum(sides) <= 65


@pytest.mark.parametrize("pays", ["right", "left", "both"])
def test_only_the_way_that_pays_is_a_success(pays):
    demonstrator = ForkDemonstrator()
    for seed in range(10):
        demonstrator.reset()
        _, reward, info, _ = played(Fork(pays), demonstrator, seed)
        assert info["success"] == bool(reward)
        assert reward == (pays in ("both", "right" if info["log/right"] else "left"))


def test_the_clock_truncates_and_settings_are_checked():
    *_, info, truncated = played(Fork(max_steps=7), lambda obs: np.zeros(2))
    assert truncated
    assert not info["success"]
    with pytest.raises(ValueError, match="max_steps must be >= 7"):
        Fork(max_steps=6)
    with pytest.raises(ValueError, match="pays must be 'both', 'right' or 'left', got 'up'"):
        Fork("up")
