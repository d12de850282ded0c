"""DarkKeyDoor by hand: key, door, attempts, and what each option shows and shuffles."""

import numpy as np
import pytest

from seqrl.envs.builtin.dark_key_door import DarkKeyDoor
from seqrl.envs.builtin.grid import MOVES

RIGHT, UP, LEFT, DOWN = range(4)


def made(**options):
    env = DarkKeyDoor(**{"size": 5, "random_places": False, **options})  # start (2, 2), key (0, 4), door (4, 0)
    return env, env.reset(seed=0)[0]


TO_KEY, TO_DOOR = [UP, UP, RIGHT, RIGHT], [DOWN] * 4 + [LEFT] * 4


def test_key_then_door_by_hand():
    env, obs = made()
    assert obs.tolist() == [0.5, 0.5, 1.0]
    steps = [env.step(a) for a in TO_KEY + TO_DOOR]
    assert [i for i, s in enumerate(steps) if s[1] == 1.0] == [3, 11]
    assert sum(s[1] for s in steps) == 2.0
    assert steps[0][0].tolist() == [0.25, 0.5, 0.0]
    assert steps[3][0].tolist() == [0.0, 1.0, 0.0]
    assert steps[-1][0].tolist() == [0.5, 0.5, 1.0]  # the next attempt
    assert not env._has_key


def test_the_door_is_shut_without_the_key_and_the_key_pays_once():
    env, _ = made()
    assert sum(env.step(a)[1] for a in [DOWN, DOWN, LEFT, LEFT]) == 0.0
    assert env._cell == (4, 0)
    assert sum(env.step(a)[1] for a in [UP] * 4 + [RIGHT] * 4) == 1.0
    assert [env.step(a)[1] for a in (LEFT, RIGHT, UP)] == [0.0, 0.0, 0.0]  # back on it, and against the wall


def test_an_attempt_that_takes_too_long_begins_anew():
    env, _ = made(attempt_steps=5)
    flags = [env.step(a)[0][2] for a in [*TO_KEY, LEFT, UP]]
    assert flags == [0, 0, 0, 0, 1, 0]
    assert env._cell == (1, 2)
    assert not env._has_key


def test_the_horizon_truncates_and_reports():
    env, _ = made(horizon=17)
    steps = [env.step(a) for a in [*TO_KEY, *TO_DOOR, *TO_KEY, LEFT]]
    assert [s[3] for s in steps] == [False] * 16 + [True]
    assert not any(s[2] for s in steps)
    assert steps[-1][4] == {"log/keys": 2.0, "log/doors": 1.0, "success": True}
    assert all(s[4] == {} for s in steps[:-1])
    env, _ = made(horizon=1)
    assert env.step(UP)[4] == {"log/keys": 0.0, "log/doors": 0.0, "success": False}


def test_the_light_shows_key_and_door():
    env, obs = made(is_light=True)
    assert obs.tolist() == [0.5, 0.5, 1, 0, 0, 1, 1, 0]
    for a in TO_KEY:
        obs, *_ = env.step(a)
    assert obs.tolist() == [0, 1, 0, 1, 0, 1, 1, 0]


def test_places_are_drawn_by_episode_and_not_by_attempt():
    env = DarkKeyDoor(size=4, attempt_steps=3)
    env.reset(seed=0)
    places = []
    for _ in range(40):
        env.reset()
        place = (env._key, env._door)
        assert len({*place, (2, 2)}) == 3
        for _ in range(3):
            env.step(UP)
        assert (env._key, env._door) == place
        places.append(place)
    assert len(set(places)) > 20
    assert len({key for key, _ in places}) > 8


def test_shuffled_actions_are_a_permutation_by_episode():
    env, _ = made(shuffled_actions=True)
    seen = set()
    for _ in range(40):
        env.reset()
        inverse = np.argsort(env._controls)
        assert sum(env.step(inverse[m])[1] for m in TO_KEY + TO_DOOR) == 2.0
        seen.add(tuple(env._controls))
    assert len(seen) > 10


@pytest.mark.parametrize("options", [{"size": 1}, {"horizon": 0}, {"attempt_steps": 0}])
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        DarkKeyDoor(**options)


def test_the_picture_shows_the_key_until_it_is_taken():
    env, _ = made(render_mode="rgb_array")
    image = env.render()
    assert image.shape == (240, 240, 3)
    assert image[24, 216].tolist() == [240, 170, 60]
    assert image[216, 24].tolist() == [70, 180, 90]
    assert image[120, 120].tolist() == [50, 90, 220]
    for a in [*TO_KEY, LEFT]:
        env.step(a)
    assert env.render()[24, 216].tolist() == [225, 235, 245]
    assert DarkKeyDoor().render() is None


def test_one_closed_way_through_all_cells_is_paid_what_the_page_tells():
    env = DarkKeyDoor()
    way = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 3), (3, 2),
           (2, 2), (1, 2), (1, 1), (2, 1), (3, 1), (3, 0), (2, 0), (1, 0)]  # fmt: skip
    follows = dict(zip(way, way[1:] + way[:1], strict=True))
    returns = []
    for seed in range(400):
        env.reset(seed=seed)
        rewards = []
        for _ in range(100):
            row, column = env._cell
            move = (follows[row, column][0] - row, follows[row, column][1] - column)
            rewards.append(env.step([tuple(m) for m in MOVES].index(move))[1])
        returns.append(sum(rewards))
        assert env._doors > 0
    assert np.mean(returns) == pytest.approx(15.6, abs=1.5)  # standard deviation of an episode 11, of the mean 0.6
