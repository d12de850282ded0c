"""Relay by hand: where it leads, what it pays, what its demonstrator does."""

import numpy as np
import pytest

from seqrl.envs.builtin.relay import CORRIDOR, DEAD_END, FORK, GOAL, A, B, Relay, RelayDemonstrator


def played(env, turn, seed=None):
    """Return the places, the reward, and whether it was a success, of an episode that turns so at the fork."""
    obs, _ = env.reset(seed=seed)
    places, over = [int(obs.argmax())], False
    while not over:
        obs, reward, over, truncated, info = env.step(turn)
        assert not truncated
        places.append(int(obs.argmax()))
    return places, reward, info["success"]


@pytest.mark.parametrize(("start", "place"), [("A", A), ("B", B)])
def test_both_starts_lead_to_one_fork(start, place):
    env = Relay(start)
    assert played(env, 1) == ([place, CORRIDOR, FORK, GOAL], 1.0, True)
    assert played(env, 0) == ([place, CORRIDOR, FORK, DEAD_END], 0.0, False)


def test_starts_are_drawn_from_the_seed():
    env = Relay()
    starts = [played(env, 1, seed=0 if i == 0 else None)[0][0] for i in range(200)]
    assert 70 < starts.count(B) < 130
    assert starts == [played(env, 1, seed=0 if i == 0 else None)[0][0] for i in range(200)]


def test_rewards_that_tell_nothing():
    env = Relay("A", telling=False)
    env.reset(seed=0)
    for turn in (0, 1):
        paid = np.mean([played(env, turn)[1] for _ in range(400)])
        assert 0.4 < paid < 0.6
    assert played(env, 1)[2]


def test_the_demonstrator_takes_the_goal_from_b_alone():
    demonstrator = RelayDemonstrator()
    for start, turn in (("A", 0), ("B", 1), ("A", 0)):
        env = Relay(start)
        demonstrator.reset()
        obs, _ = env.reset()
        actions = []
        for _ in range(3):
            actions.append(demonstrator(obs))
            obs, *_ = env.step(actions[-1])
        assert actions == [0, 0, turn]


def test_a_start_that_is_none_is_refused():
    with pytest.raises(ValueError, match="start must be 'A', 'B' or 'both', got 'C'"):
        Relay("C")
