"""MetaFrozenLake by hand: moves, falls, attempts, and what each option changes."""

import numpy as np
import pytest

from seqrl.envs.builtin.meta_frozen_lake import MetaFrozenLake, _can_be_crossed

RIGHT, UP, LEFT, DOWN = range(4)
LAKE = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], bool)  # S o .  /  . . o  /  o . G
WAY = [DOWN, RIGHT, DOWN, RIGHT]


def made(**options):
    env = MetaFrozenLake(**options)
    env.reset(seed=0)
    env._lake = LAKE.copy()
    return env


def play(env, actions):
    return [env.step(a) for a in actions]


def test_the_way_to_the_goal_by_hand():
    env = made(attempts=2)
    steps = play(env, WAY)
    assert [s[0].tolist() for s in steps[:3]] == [
        pytest.approx([0.5, 0, 0, 0, 1 / 12]),
        pytest.approx([0.5, 0.5, 0, 0, 2 / 12]),
        pytest.approx([1.0, 0.5, 0, 0, 3 / 12]),
    ]
    assert [s[1] for s in steps] == [0.0, 0.0, 0.0, 1.0]
    assert steps[3][0].tolist() == [0, 0, 1, 0.5, 0]  # back on the start, second attempt
    assert steps[3][2:] == (False, False, {"log/attempt_1": 1.0})


def test_a_hole_ends_the_attempt_and_the_last_attempt_the_episode():
    env = made(attempts=2)
    obs, reward, terminated, _, info = env.step(RIGHT)
    assert (reward, terminated, info) == (0.0, False, {"log/attempt_1": 0.0})
    assert obs.tolist() == [0, 0, 1, 0.5, 0]
    assert (env._lake == LAKE).all()  # the same lake
    obs, reward, terminated, truncated, info = play(env, WAY)[-1]
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info == {"log/attempt_2": 1.0, "log/goals": 1.0, "success": True}
    assert obs.tolist() == pytest.approx([1, 1, 0, 1, 4 / 12])  # where it ended, all attempts over


def test_success_is_that_of_the_last_attempt():
    env = made(attempts=2)
    assert play(env, [*WAY, RIGHT])[-1][4] == {"log/attempt_2": 0.0, "log/goals": 1.0, "success": False}


def test_walls_and_the_clock():
    env = made(attempts=1, attempt_steps=4)
    steps = play(env, [LEFT, UP, LEFT, UP])
    assert all(s[0][:2].tolist() == [0, 0] and not s[0][2] for s in steps)
    assert [s[2] for s in steps] == [False, False, False, True]
    assert steps[-1][4]["success"] is False


def test_in_recover_mode_a_fall_costs_steps_only():
    env = made(attempts=1, recover_mode=True)
    obs, _, terminated, _, info = env.step(RIGHT)
    assert (terminated, info) == (False, {})
    assert obs.tolist() == pytest.approx([0, 0, 1, 0, 1 / 12])
    assert play(env, WAY)[-1][4]["success"] is True


def test_hidden_progress_shortens_the_observation():
    env = made(hide_progress=True)
    assert env.observation_space.shape == (3,)
    assert env.step(DOWN)[0].tolist() == [0.5, 0, 0]


def test_hard_mode_shuffles_the_controls_by_episode_and_not_by_attempt():
    env = MetaFrozenLake(is_hard=True, attempts=2)
    seen = set()
    for seed in range(40):
        env.reset(seed=seed)
        env._lake = LAKE.copy()
        before = env._controls.copy()
        inverse = np.argsort(before)  # the action that makes a move
        last = play(env, [inverse[m] for m in (*WAY, *WAY)])[-1]
        assert last[4]["log/goals"] == 2.0
        assert (env._controls == before).all()
        seen.add(tuple(before))
    assert len(seen) > 10
    env = MetaFrozenLake()
    env.reset(seed=0)
    assert env._controls.tolist() == [0, 1, 2, 3]


def test_a_slip_goes_sideways():
    env = MetaFrozenLake(slip_chance=1.0, attempt_steps=9)
    moves = set()
    for seed in range(20):
        env.reset(seed=seed)
        env._lake, env._cell = np.zeros((3, 3), bool), (1, 1)
        env.step(RIGHT)
        moves.add(env._cell)
    assert moves == {(0, 1), (2, 1)}


def test_ice_breaks_where_it_was_left_until_the_next_return():
    env = made(attempts=2, break_chance=1.0)
    play(env, [DOWN, RIGHT])
    assert np.argwhere(env._broken).tolist() == [[1, 0]]  # not the start
    _, _, _, _, info = env.step(LEFT)
    assert info == {"log/attempt_1": 0.0}
    assert not env._broken.any()
    env.step(DOWN)
    assert env.step(LEFT)[4] == {}
    assert not env._broken.any()  # a wall: the cell was not left
    env.step(UP)
    env._broken[:] = False
    assert play(env, WAY)[-1][4]["success"] is True


def test_noise_moves_what_is_seen_only():
    env = made(position_noise=0.3)
    seen = np.array([env.step(a)[0][:2] for a in [DOWN, UP] * 5])
    assert env._cell == (0, 0)
    assert len(np.unique(seen)) > 5
    assert seen.min() >= 0
    assert seen.max() <= 1


def test_every_lake_can_be_crossed_and_lakes_differ():
    env = MetaFrozenLake(size=5, hole_chance=0.4)
    env.reset(seed=1)
    lakes = []
    for _ in range(30):
        env.reset()
        assert _can_be_crossed(env._lake)
        assert not env._lake[0, 0]
        assert not env._lake[-1, -1]
        lakes.append(env._lake.tobytes())
    assert len(set(lakes)) > 25
    assert not _can_be_crossed(np.array([[0, 1], [1, 0]], bool))


@pytest.mark.parametrize(
    "options",
    [{"size": 1}, {"attempts": 0}, {"hole_chance": 0.5}, {"slip_chance": -0.1}, {"break_chance": 2},
     {"position_noise": -1}, {"attempt_steps": 3}],
)  # fmt: skip
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        MetaFrozenLake(**options)


def test_the_picture_shows_attempts_and_lake():
    env = made(attempts=2, render_mode="rgb_array")
    env.step(RIGHT)
    image = env.render()
    assert image.dtype == np.uint8
    assert image[0, 0].tolist() == [200, 60, 60]  # the first attempt failed
    assert image[0, -1].tolist() == [225, 235, 245]  # the second is open
    assert image[12 + 40, 120].tolist() == [45, 50, 60]  # the hole at (0, 1)
    assert image[12 + 40, 40].tolist() == [50, 90, 220]  # the agent
    assert image[12 + 200, 160].tolist() == [59, 153, 76]  # a line at the edge of the goal
    assert MetaFrozenLake().render() is None
