"""Statistics of scores, with intervals: over the episodes of one checkpoint, and over the runs of methods.

What is said over episodes holds for that checkpoint, never for the method. For methods the unit is the run: their
scores are arrays ``(..., runs, tasks)``, NaN where a run has no such task; leading axes are resamples. Tasks weigh the
same, whatever their number of runs, and a run of several tasks is one run. Definitions follow Agarwal et al. (2021),
Deep Reinforcement Learning at the Edge of the Statistical Precipice (arXiv 2108.13264); intervals are those of
:mod:`seqrl.reports.intervals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqrl.moved import moved_names
from seqrl.reports.intervals import (
    MIN_VALUES,
    Estimate,
    are_shared,
    bootstrap_interval,
    compare_means,
    has_spread,
    improvement_interval,
    resamples,
    share_interval,
    strata,
)

if not TYPE_CHECKING:  # mypy shall not take every name for one of this module
    __getattr__ = moved_names(__name__, "seqrl.rollout.evaluator", "summarize_episodes")

MAX_POINTS = 50

Statistic = Callable[[np.ndarray], np.ndarray]
"""Scores ``(..., runs, tasks)`` -> a number ``(...)``."""


def iqm(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Interquartile mean: the mean of the middle half, fractional weights at its ends (Agarwal et al., 2021).

    Args:
        values: ``(..., N)``; the last axis is averaged.
        weights: ``(..., N)`` how much each value counts; None counts them alike.
    """
    values = np.asarray(values, np.float64)
    order = np.argsort(values, axis=-1)
    ends = np.cumsum(np.take_along_axis(np.ones_like(values) if weights is None else weights, order, -1), axis=-1)
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
def mean(scores: np.ndarray) -> np.ndarray:
    """Return the mean over tasks of the mean over runs."""
    return np.nanmean(scores, axis=-2).mean(-1)  # type: ignore[no-any-return]


def median(scores: np.ndarray) -> np.ndarray:
    """Return the median over tasks of the mean over runs; with one task it is the mean."""
    return np.median(np.nanmean(scores, axis=-2), axis=-1)  # type: ignore[no-any-return]


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of all runs of all tasks, with fractional weights at its ends.

    With as many runs in every task, and a number of runs that four divides, it is ``scipy.stats.trim_mean(.., 0.25)``.
    """
    weights = np.isfinite(scores) / np.isfinite(scores).sum(-2, keepdims=True)
    flat = (*scores.shape[:-2], -1)
    return iqm(np.nan_to_num(scores).reshape(flat), weights.reshape(flat))


def optimality_gap(scores: np.ndarray, target: float) -> np.ndarray:
    """Return by how much runs fall short of a target, on average; what exceeds it counts as the target."""
    return target - mean(np.minimum(scores, target))


def share_above(scores: np.ndarray, threshold: float) -> np.ndarray:
    """Return the share of runs whose score is above a threshold: a point of the performance profile."""
    return mean(np.where(np.isfinite(scores), scores > threshold, np.nan))


def improvement(better: np.ndarray, worse: np.ndarray) -> np.ndarray:
    """Return the probability that a run of one method beats a run of the other on the same task; a tie is a half.

    For a task it is the statistic U of Mann and Whitney over the number of pairs.

    Args:
        better: Scores of the method in question, ``(..., runs, tasks)``.
        worse: Scores of the other, of the same tasks in the same order.
    """
    x, y = better[..., :, None, :], worse[..., None, :, :]
    wins = ((x > y) + 0.5 * (x == y)).sum((-3, -2))
    return (wins / (np.isfinite(x) & np.isfinite(y)).sum((-3, -2))).mean(-1)  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------ intervals
def draws(scores: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """Return the runs ``(num, runs)`` of every resample: as many of each set of tasks as there are."""
    drawn = [rows[rng.integers(0, len(rows), (num, len(rows)))] for rows in strata(scores)]
    return np.concatenate(drawn, axis=1)


def resampled(scores: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Return the scores ``(num, most runs of a task, tasks)`` of drawn runs, each task's packed together.

    Where every run has a task of its own, most of ``scores[drawn]`` would be NaN.
    """
    known = np.isfinite(scores)
    packed = np.full((len(drawn), known.sum(0).max(), scores.shape[1]), np.nan)
    for task, has_it in enumerate(known[drawn[0]].T):  # the same in every resample
        packed[:, : has_it.sum(), task] = scores[drawn[:, has_it], task]
    return packed


def estimate(scores: np.ndarray, statistic: Statistic, num: int, rng: np.random.Generator) -> Estimate:
    """Return a statistic of scores ``(runs, tasks)``, with its interval over ``num`` resamples of whole runs."""
    statistics = statistic(resampled(scores, draws(scores, num, rng)))
    return bootstrap_interval(float(statistic(scores)), statistics, _fewest(scores))


def estimate_improvement(better: np.ndarray, worse: np.ndarray) -> Estimate:
    """Return :func:`improvement` with its interval."""
    sizes = list(zip(*(np.isfinite(scores).sum(0).tolist() for scores in (better, worse)), strict=True))
    return improvement_interval(float(improvement(better, worse)), sizes, are_shared=are_shared(better, worse))


def estimate_mean(scores: np.ndarray) -> Estimate:
    """Return :func:`mean` with Student's interval, where there are five runs or more of every task."""
    if _fewest(scores) < MIN_VALUES:
        return Estimate(float(mean(scores)))
    found = compare_means(scores, np.where(np.isfinite(scores), 0.0, np.nan))  # against a constant it is Student's own
    return Estimate(found.value, found.low, found.high)


def estimate_profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return ``(thresholds, 3)``: the share of runs above each, and its interval point by point.

    The interval is that of as many runs of one task as would tell as much: tasks with few runs widen it, and tasks of
    one run are taken to agree fully. Without one, where a task has fewer than five runs, its ends are not numbers.
    """
    shares = [float(share_above(scores, t)) for t in thresholds]
    if _fewest(scores) < MIN_VALUES:
        return np.array([[share, np.nan, np.nan] for share in shares])
    weights = np.nansum(np.isfinite(scores) / np.isfinite(scores).sum(0), axis=1) / scores.shape[1]
    num = 1.0 / float((weights**2).sum())
    return np.array([[share, *share_interval(share * num, num).ends] for share in shares])


def estimate_curve(curves: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """Return ``(places, 3)``: the interquartile mean at each place, and its interval point by point.

    Where there is no interval its ends are not numbers.

    Args:
        curves: ``(runs, tasks, places)``, NaN where a run has no such task. A resample draws whole runs.
        num: Resamples.
        rng: Draws them.
    """
    drawn = draws(curves[..., 0], num, rng)
    rows = []
    for here in np.moveaxis(curves, -1, 0):
        value = float(interquartile_mean(here))
        found = bootstrap_interval(value, interquartile_mean(resampled(here, drawn)), _fewest(here))
        rows.append([found.value, found.low, found.high])
    return np.array(rows, np.float64)


def _fewest(scores: np.ndarray) -> int:
    """Return how many runs there are of the rarest set of tasks: they are drawn on their own."""
    return min(map(len, strata(scores)))


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
