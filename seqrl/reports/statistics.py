"""Statistics of scores, with intervals: over the episodes of one checkpoint, and over the runs of methods.

What is said over episodes holds for that checkpoint, never for the method. For methods the unit is the run: their
scores are one array per task, whose last axis is the run; leading axes are resamples. Tasks weigh the same, whatever
their number of runs. Definitions follow Agarwal et al. (2021), Deep Reinforcement Learning at the Edge of the
Statistical Precipice (arXiv 2108.13264); intervals are those of :mod:`seqrl.reports.intervals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqrl.moved import moved_names
from seqrl.reports.intervals import (
    MIN_VALUES,
    Estimate,
    bootstrap_interval,
    compare_means,
    has_spread,
    improvement_interval,
    resamples,
    share_interval,
)

if not TYPE_CHECKING:  # mypy shall not take every name for one of this module
    __getattr__ = moved_names(__name__, "seqrl.rollout.evaluator", "summarize_episodes")

MAX_POINTS = 50

Groups = Sequence[np.ndarray]
"""One array ``(..., runs)`` per task."""
Statistic = Callable[[Groups], np.ndarray]


def iqm(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Interquartile mean: the mean of the middle half, fractional weights at its ends (Agarwal et al., 2021).

    Args:
        values: ``(..., N)``; the last axis is averaged.
        weights: ``(N,)`` how much each value counts; None counts them alike.
    """
    values = np.asarray(values, np.float64)
    order = np.argsort(values, axis=-1)
    ends = np.cumsum((np.ones(values.shape[-1]) if weights is None else weights)[order], axis=-1)
    total = ends[..., -1:]
    edges = np.clip(np.concatenate([np.zeros_like(total), ends], axis=-1), total / 4, 3 * total / 4)
    kept = np.diff(edges, axis=-1)
    middle: np.ndarray = (np.take_along_axis(values, order, -1) * kept).sum(-1) / kept.sum(-1)
    return middle


def bottom_quintile(values: np.ndarray) -> float:
    """Mean of the worst fifth (at least one value)."""
    ordered = np.sort(np.asarray(values, np.float64))
    return float(ordered[: max(1, len(ordered) // 5)].mean())


def iqm_interval(values: np.ndarray) -> Estimate:
    """Interquartile mean, with a bootstrap interval from a fixed generator, where five values or more have one."""
    values = np.asarray(values, np.float64)
    middle = float(iqm(values))
    return bootstrap_interval(middle, iqm(resamples(values)), len(values)) if has_spread(values) else Estimate(middle)


# ------------------------------------------------------------------------------- methods over runs
def mean(groups: Groups) -> np.ndarray:
    """Return the mean over tasks of the mean over runs."""
    return np.mean([g.mean(-1) for g in groups], axis=0)  # type: ignore[no-any-return]


def median(groups: Groups) -> np.ndarray:
    """Return the median over tasks of the mean over runs; with one task it is the mean."""
    return np.median([g.mean(-1) for g in groups], axis=0)  # type: ignore[no-any-return]


def interquartile_mean(groups: Groups) -> np.ndarray:
    """Return the mean of the middle half of all runs of all tasks, with fractional weights at its ends.

    With as many runs in every task, and a number of runs that four divides, it is ``scipy.stats.trim_mean(.., 0.25)``.
    """
    weights = np.concatenate([np.full(g.shape[-1], 1 / g.shape[-1]) for g in groups]) / len(groups)
    return iqm(np.concatenate(groups, axis=-1), weights)


def optimality_gap(groups: Groups, target: float) -> np.ndarray:
    """Return by how much runs fall short of a target, on average; what exceeds it counts as the target."""
    return target - mean([np.minimum(g, target) for g in groups])


def share_above(groups: Groups, threshold: float) -> np.ndarray:
    """Return the share of runs whose score is above a threshold: a point of the performance profile."""
    return mean([(g > threshold).astype(np.float64) for g in groups])


def improvement(better: Groups, worse: Groups) -> np.ndarray:
    """Return the probability that a run of one method beats a run of the other on the same task; a tie is a half.

    For a task it is the statistic U of Mann and Whitney over the number of pairs.

    Args:
        better: Scores of the method in question, one array ``(..., R)`` per task.
        worse: Scores of the other, of the same tasks in the same order.
    """
    shares = []
    for x, y in zip(better, worse, strict=True):
        wins = sum((value > y).mean(-1) + 0.5 * (value == y).mean(-1) for value in np.moveaxis(x, -1, 0)[..., None])
        shares.append(wins / x.shape[-1])
    return np.mean(shares, axis=0)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------ intervals
def draws(groups: Groups, num: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return, for each task, the runs ``(num, runs)`` of every resample, with replacement."""
    return [rng.integers(0, g.shape[0], (num, g.shape[0])) for g in groups]


def estimate(groups: Groups, statistic: Statistic, num: int, rng: np.random.Generator) -> Estimate:
    """Return a statistic of scores ``(runs,)`` per task, with its interval over ``num`` resamples."""
    resampled = [g[drawn] for g, drawn in zip(groups, draws(groups, num, rng), strict=True)]
    return bootstrap_interval(float(statistic(groups)), statistic(resampled), min(map(len, groups)))


def estimate_improvement(better: Groups, worse: Groups) -> Estimate:
    """Return :func:`improvement` with its interval."""
    sizes = [(len(x), len(y)) for x, y in zip(better, worse, strict=True)]
    return improvement_interval(float(improvement(better, worse)), sizes)


def estimate_mean(groups: Groups) -> Estimate:
    """Return :func:`mean` with Student's interval, where every task has five runs or more."""
    if min(map(len, groups)) < MIN_VALUES:
        return Estimate(float(mean(groups)))
    found = compare_means(groups, [np.zeros(len(g)) for g in groups])  # against a constant it is Student's own
    return Estimate(found.value, found.low, found.high)


def estimate_profile(groups: Groups, thresholds: np.ndarray) -> np.ndarray:
    """Return ``(thresholds, 3)``: the share of runs above each, and its interval point by point.

    Without an interval, where a task has fewer than five runs, its ends are not numbers.
    """
    num = sum(map(len, groups))
    shares = [float(share_above(groups, t)) for t in thresholds]
    if min(map(len, groups)) < MIN_VALUES:
        return np.array([[share, np.nan, np.nan] for share in shares])
    return np.array([[share, *share_interval(share * num, num).ends] for share in shares])


def estimate_curve(curves: Groups, num: int, rng: np.random.Generator) -> np.ndarray:
    """Return ``(places, 3)``: the interquartile mean at each place, and its interval point by point.

    Where there is no interval its ends are not numbers.

    Args:
        curves: One array ``(runs, places)`` per task. A resample draws whole curves.
        num: Resamples.
        rng: Draws them.
    """
    drawn = draws(curves, num, rng)
    rows = []
    for place in range(curves[0].shape[1]):
        here = [g[:, place] for g in curves]
        resampled = [g[d] for g, d in zip(here, drawn, strict=True)]
        found = bootstrap_interval(float(interquartile_mean(here)), interquartile_mean(resampled), min(map(len, here)))
        rows.append([found.value, found.low, found.high])
    return np.array(rows, np.float64)


# --------------------------------------------------------------------------------------------- curves
def common_places(curves: Sequence[np.ndarray]) -> np.ndarray:
    """Return at most 50 places at which every curve is known; none if there is no such place.

    Args:
        curves: ``(N, 2)`` each: place, in rising order, and value.
    """
    low = max(c[0, 0] for c in curves)
    high = min(c[-1, 0] for c in curves)
    places = np.unique(np.concatenate([c[:, 0] for c in curves]))
    places = places[(places >= low) & (places <= high)]
    return places if len(places) <= MAX_POINTS else np.linspace(low, high, MAX_POINTS)


def interpolated(curves: Sequence[np.ndarray], places: np.ndarray) -> np.ndarray:
    """Return ``(curves, places)``: values between the points of a curve lie on a straight line."""
    return np.stack([np.interp(places, c[:, 0], c[:, 1]) for c in curves])
