"""Copying by hand."""

import numpy as np
import pytest

from seqrl.envs.builtin.copying import ANSWER, IGNORE, REMEMBER, Copying, CopyingExpert


def test_an_episode_by_hand():
    env = Copying(num_symbols=3, length=2, num_distractors=3)
    shown = [env.reset(seed=0)[0]]
    for _ in range(5):
        obs, *rest = env.step(0)
        assert rest == [0.0, False, False, {}]  # early answers are ignored
        shown.append(obs)
    assert [mark for _, mark in shown].count(REMEMBER) == 2
    assert [mark for _, mark in shown].count(IGNORE) == 3
    assert shown[-1].tolist() == [0, ANSWER]
    first, second = (int(symbol) for symbol, mark in shown if mark == REMEMBER)
    assert env.step(first)[1:] == (0.5, False, False, {})
    assert env.step((second + 1) % 3)[1:] == (0.0, True, False, {"success": False, "log/share_right": 0.5})


def test_symbols_and_places_are_drawn_evenly():
    env = Copying(num_symbols=2, length=1, num_distractors=3)
    env.reset(seed=0)
    places, symbols = [], []
    for _ in range(400):
        obs, _ = env.reset()
        shown = [obs, *(env.step(0)[0] for _ in range(3))]
        places.append(next(t for t, (_, mark) in enumerate(shown) if mark == REMEMBER))
        symbols.append(shown[places[-1]][0])
    assert np.abs(np.bincount(places) - 100).max() < 35
    assert abs(np.bincount(symbols)[0] - 200) < 50


def test_the_expert_is_right_and_remembers_nothing_of_the_last_episode():
    env, expert = Copying(), CopyingExpert()
    for seed in range(20):
        obs, is_over = env.reset(seed=seed)[0], False
        expert.reset()
        total = 0.0
        while not is_over:
            obs, reward, is_over, _, info = env.step(expert(obs))
            total += reward
        assert info["success"]
        assert total == pytest.approx(1.0)


@pytest.mark.parametrize("options", [{"num_symbols": 1}, {"length": 0}, {"num_distractors": -1}])
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Copying(**options)


def test_the_picture_shows_what_was_marked_and_answered():
    env = Copying(num_symbols=2, length=1, num_distractors=1, render_mode="rgb_array")
    obs, _ = env.reset(seed=1)
    image = env.render()
    assert image.shape[2] == 3
    size = image.shape[0] // 3
    place = 0 if obs[1] == REMEMBER else 1
    floor = image[2 * size + size // 2, size + size // 2].tolist()
    assert [image[row * size + size // 2, size + size // 2].tolist() for row in range(2)] == [
        floor
    ] * 2  # not yet shown
    symbol = [obs[0], env.step(0)[0][0]][place]
    env.step(0)
    env.step(symbol)
    image = env.render()
    middle = place * size + size // 2
    assert image[(1 - symbol) * size + size // 2, middle].tolist() == [50, 90, 220]
    assert image[2 * size + size // 2, middle].tolist() == [70, 180, 90]
    assert Copying().render() is None
