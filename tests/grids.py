"""Grids of cases: `make test` runs a sample that leaves nothing out, `make test-all` every one, or a share of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest


def pairwise(*axes: Sequence[Any], keep: Callable[..., bool] | None = None, every: int = 1) -> list[Any]:
    """Return the grid as pytest params; every pair of values of two axes is in a case that is not marked slow.

    Two axes are all pairs already, and nothing is marked: `each_once` samples those.

    Args:
        axes: Values of each parameter, in the order of the test's arguments.
        keep: Called with a case's values; a case is left out, slow or not, where it is false.
        every: Of the slow cases, how many make one that is run, spread over all axes: 2 is a chequerboard.
    """
    return _marked(axes, keep, together=2, every=every)


def each_once(*axes: Sequence[Any], keep: Callable[..., bool] | None = None) -> list[Any]:
    """Return the grid as pytest params; every value of every axis is in a case that is not marked slow."""
    return _marked(axes, keep, together=1)


def _marked(
    axes: Sequence[Sequence[Any]], keep: Callable[..., bool] | None, together: int, every: int = 1
) -> list[Any]:
    places = itertools.product(*(range(len(axis)) for axis in axes))
    cases = {place: tuple(axis[i] for axis, i in zip(axes, place, strict=True)) for place in places}
    if keep is not None:
        cases = {place: case for place, case in cases.items() if keep(*case)}
    fast = _cover(list(cases), together)
    shown = {place: case for place, case in cases.items() if place in fast or sum(place) % every == 0}
    return [pytest.param(*case, marks=[] if place in fast else pytest.mark.slow) for place, case in shown.items()]


def _cover(places: list[tuple[int, ...]], together: int) -> set[tuple[int, ...]]:
    """Choose places until every combination is met: always the one with the most new ones.

    Of equals, the one whose values were chosen least so far, and of these the first.
    """
    met = {p: set(itertools.combinations(enumerate(p), min(together, len(p)))) for p in places}
    left = set().union(*met.values())
    chosen = set()
    uses: Counter[tuple[int, int]] = Counter()
    while left:
        best = max(places, key=lambda place: (len(met[place] & left), -sum(uses[value] for value in enumerate(place))))
        chosen.add(best)
        left -= met[best]
        uses.update(enumerate(best))
    return chosen
