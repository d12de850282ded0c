"""Windows start where the specification says, each start equally often."""

import numpy as np
import pytest

from seqrl.data.sampling import draw_trajectories, draw_windows

PADDINGS = ("none", "left", "right", "both")


def specified(length, window, padding):
    """Return every (first row, real transitions), once per start, straight from the specification."""
    if length <= window:
        return [(0, length)]
    end = length - 1 if window > 1 else length  # a window of one step that began later would hold nothing else
    starts = {
        "none": range(0, length - window + 1),
        "left": range(-window + 1, length - window + 1),
        "right": range(0, end),
        "both": range(-window + 1, end),
    }[padding]
    windows = []
    for start in starts:
        covered = [t for t in range(start, start + window) if 0 <= t < length]
        windows.append((covered[0], len(covered)))
    return windows


def drawn(length, window, padding, num, seed=0):
    start, real = draw_windows(np.full(num, length), window, padding, np.random.default_rng(seed))
    return list(zip(start.tolist(), real.tolist(), strict=True))


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("window", range(1, 6))
@pytest.mark.parametrize("length", range(1, 10))
def test_the_windows_are_those_of_the_specification(length, window, padding):
    assert set(drawn(length, window, padding, 1500)) == set(specified(length, window, padding))


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("length", "window"), [(9, 4), (5, 4), (12, 1), (30, 7)])
def test_starts_are_uniform(length, window, padding):
    expected = specified(length, window, padding)
    num = 20_000
    found = drawn(length, window, padding, num, seed=1)
    observed = np.array([found.count(w) for w in expected])
    assert len(set(expected)) == len(expected)
    share = num / len(expected)
    freedom = len(expected) - 1
    assert ((observed - share) ** 2 / share).sum() < freedom + 5 * np.sqrt(2 * freedom) + 5


@pytest.mark.parametrize("padding", PADDINGS)
def test_trajectories_of_different_lengths_do_not_mix(padding):
    lengths = np.tile(np.array([1, 3, 4, 6, 50]), 400)
    start, real = draw_windows(lengths, 4, padding, np.random.default_rng(0))
    for length, s, r in zip(lengths.tolist(), start.tolist(), real.tolist(), strict=True):
        assert (s, r) in specified(length, 4, padding)


def test_padding_only_shows_where_asked():
    assert {r for _, r in drawn(9, 4, "none", 500)} == {4}
    assert {(s, r) for s, r in drawn(9, 4, "left", 500) if r < 4} == {(0, 1), (0, 2), (0, 3)}
    assert {(s, r) for s, r in drawn(9, 4, "right", 500) if r < 4} == {(6, 3), (7, 2)}


def test_windows_repeat_with_the_generator_and_differ_without():
    assert drawn(50, 4, "both", 100, seed=3) == drawn(50, 4, "both", 100, seed=3)
    assert drawn(50, 4, "both", 100, seed=3) != drawn(50, 4, "both", 100, seed=4)


@pytest.mark.parametrize("by", ["trajectory", "transition", "of a plug-in"])
def test_trajectories_have_their_votes(by):
    lengths = np.array([1, 10, 100, 5, 84])
    num = 20_000
    votes = {"trajectory": np.ones(5, int), "transition": lengths, "of a plug-in": lengths / 7}[by]
    chosen = draw_trajectories(votes, num, np.random.default_rng(0))
    assert chosen.shape == (num,)
    observed = np.array([(chosen == i).sum() for i in range(5)])
    share = np.full(5, num / 5) if by == "trajectory" else num * lengths / lengths.sum()
    assert observed.sum() == num
    assert ((observed - share) ** 2 / share).sum() < 4 + 5 * np.sqrt(8) + 5
