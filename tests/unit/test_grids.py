"""Grids of cases: the fast ones leave no pair out, and slow ones are the rest."""

import itertools

from tests.grids import each_once, pairwise

AXES = (list("abcd"), [1, 2, 3], [False, True], ["x", "y", "z"])


def split(params):
    """Return the cases that are not slow, and those that are."""
    fast = [p.values for p in params if not p.marks]
    return fast, [p.values for p in params if [m.name for m in p.marks] == ["slow"]]


def test_pairwise_keeps_every_pair_in_a_few_fast_cases():
    fast, slow = split(pairwise(*AXES))
    for a, b in itertools.combinations(range(len(AXES)), 2):
        assert {(case[a], case[b]) for case in fast} == set(itertools.product(AXES[a], AXES[b]))
    assert 12 <= len(fast) <= 15
    assert sorted(fast + slow, key=str) == sorted(itertools.product(*AXES), key=str)


def test_it_draws_nothing():
    assert pairwise(*AXES) == pairwise(*AXES)


def test_two_axes_are_all_pairs_and_one_is_all_values():
    assert split(pairwise("ab", "cd")) == ([("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")], [])
    assert split(pairwise("abc")) == ([("a",), ("b",), ("c",)], [])


def test_pairs_that_no_kept_case_has_are_not_missed():
    fast, slow = split(pairwise("ab", "cd", "ef", keep=lambda x, y, z: (x, y) != ("a", "c")))
    assert not [case for case in fast + slow if case[:2] == ("a", "c")]
    assert {case[:2] for case in fast} == {("a", "d"), ("b", "c"), ("b", "d")}
    assert len(fast + slow) == 6


def test_each_once_is_as_long_as_its_longest_axis():
    fast, slow = split(each_once(*AXES))
    assert [set(values) for values in zip(*fast, strict=True)] == [set(axis) for axis in AXES]
    assert (len(fast), len(fast + slow)) == (4, 4 * 3 * 2 * 3)


def test_values_take_turns():
    fast, _ = split(each_once(list("abcdef"), [1, 2, 3]))
    assert [number for _, number in fast] == [1, 2, 3, 1, 2, 3]


def test_every_second_slow_case_is_a_chequerboard():
    every, half = (split(pairwise(*AXES, every=n)) for n in (1, 2))
    assert half[0] == every[0]
    assert abs(len(half[1]) - len(every[1]) / 2) <= 0.1 * len(every[1])
    assert {(case[0], case[1], case[3]) for case in [*half[0], *half[1]]} == set(
        itertools.product(AXES[0], AXES[1], AXES[3])
    )
