"""MultiDiscreteRecall by hand."""

import numpy as np
import pytest

from seqrl.envs.builtin.multi_discrete_recall import MultiDiscreteRecall


def test_an_episode_by_hand():
    env = MultiDiscreteRecall(sizes=(2, 3), delay_steps=2)
    obs, _ = env.reset(seed=0)
    symbols = obs[:2] - 1
    assert (symbols >= 0).all()
    assert obs[2] == 0
    seen = [env.step(symbols) for _ in range(2)]
    assert [s[0].tolist() for s in seen] == [[0, 0, 0], [0, 0, 1]]  # early answers are ignored
    assert [s[1:] for s in seen] == [(0.0, False, False, {})] * 2
    obs, *rest = env.step(symbols)
    assert rest == [1.0, True, False, {"success": True, "log/share_right": 1.0}]
    assert obs.tolist() == [0, 0, 0]


def test_half_an_answer_pays_half_and_is_no_success():
    env = MultiDiscreteRecall(sizes=(2, 3), delay_steps=1)
    obs, _ = env.reset(seed=1)
    env.step(np.array([0, 0]))
    answer = np.array([1 - (obs[0] - 1), obs[1] - 1])
    assert env.step(answer)[1:] == (0.5, True, False, {"success": False, "log/share_right": 0.5})


def test_every_symbol_occurs():
    env = MultiDiscreteRecall()
    env.reset(seed=0)
    drawn = np.array([env.reset()[0][:3] for _ in range(200)])
    assert [sorted(set(column)) for column in drawn.T.tolist()] == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]


@pytest.mark.parametrize("options", [{"delay_steps": 0}, {"sizes": ()}, {"sizes": (1, 2)}])
def test_impossible_settings_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        MultiDiscreteRecall(**options)


def test_the_picture_shows_symbols_and_marks():
    env = MultiDiscreteRecall(sizes=(2, 3), delay_steps=1, render_mode="rgb_array")
    env.reset(seed=0)
    env._symbols = np.array([0, 2])
    image = env.render()
    assert image.shape == (96, 48, 3)
    assert image[60, 10].tolist() == [50, 90, 220]  # symbol 0: lowest
    assert image[10, 40].tolist() == [50, 90, 220]  # symbol 2: highest
    assert image[10, 10].tolist() == [45, 50, 60]  # the first factor has two symbols only
    env.step(env._symbols)
    env.step(np.array([0, 0]))
    image = env.render()
    assert image[90, 10].tolist() == [70, 180, 90]
    assert image[90, 40].tolist() == [200, 60, 60]
    assert MultiDiscreteRecall().render() is None
