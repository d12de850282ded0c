"""How far an estimate can be trusted: intervals with known coverage, and a test with a known error rate.

Means, and statistics that are resampled, have no interval for fewer than five values, which say more themselves, nor
for values that are all alike, whose spread is unknown. What holds of episodes is true for one checkpoint; what is said
of methods needs runs with several seeds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

MIN_VALUES = 5
"""Fewest values that have an interval."""
MIN_TEST = 3
"""Fewest runs of each method that are compared by a test."""
NUM_RESAMPLES = 2000
LEVEL = 0.95
POWER_Z = 0.8416212335729143
"""Quantile of the normal distribution at the power of 0.8 for which needed seeds are told."""


@dataclass(frozen=True)
class Estimate:
    """A value, with its 95 % interval where there can be one.

    Attributes:
        value: Point estimate.
        low: Lower end; None without an interval.
        high: Upper end; None without an interval.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The interval, or the value twice, for axes that have to hold it."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


@dataclass(frozen=True)
class Difference:
    """How two methods differ.

    Attributes:
        value: Mean of the first minus that of the second, averaged over tasks.
        low: Lower end of its 95 % interval; None where a task has fewer than three runs of a method, or no spread.
        high: Upper end.
        p_value: Probability of a difference as large between equal methods; None where nothing can be said.
        num_seeds: Seeds of each method for which such a difference, if it is the true one, would show at 5 % in four of
            five comparisons; None where there is no difference or no spread.
    """

    value: float
    low: float | None
    high: float | None
    p_value: float | None
    num_seeds: int | None


# -------------------------------------------------------------------------------- special functions
def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the probability of at most ``x`` under a Beta distribution (regularised incomplete beta function).

    Source: the continued fraction of Abramowitz & Stegun, 26.5.8, evaluated by Lentz's method.
    """
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny, c, d = 1e-300, 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    total = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1.0 + term * d) or tiny)
            c = (1.0 + term / c) or tiny
            total *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * total / a


def beta_quantile(p: float, a: float, b: float) -> float:
    """Return the ``x`` of which :func:`beta_cdf` is ``p``."""
    low, high = 0.0, 1.0
    while high - low > 1e-16 and low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if beta_cdf(middle, a, b) < p else (low, middle)
    return 0.5 * (low + high)


def t_tails(t: float, degrees: float) -> float:
    """Return the probability of more than ``|t|`` on either side under Student's distribution."""
    return beta_cdf(degrees / (degrees + t * t), degrees / 2, 0.5)


def t_limit(degrees: float) -> float:
    """Return the number that Student's distribution exceeds on either side with probability ``1 - LEVEL``."""
    x = beta_quantile(1.0 - LEVEL, degrees / 2, 0.5)
    return math.sqrt(degrees * (1.0 / x - 1.0))


def normal_cdf(z: float) -> float:
    """Return the probability of at most ``z`` under the normal distribution."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


# ---------------------------------------------------------------------------------------- intervals
@functools.lru_cache(maxsize=4096)
def share_interval(successes: float, trials: float) -> Estimate:
    """Share of successes, with the interval of Clopper and Pearson (1934), which never covers less than it says.

    Raises:
        ValueError: If there is no trial.
    """
    if trials <= 0:
        raise ValueError("share_interval needs at least one trial")
    tail, failures = (1.0 - LEVEL) / 2, trials - successes
    low = 0.0 if successes <= 0 else beta_quantile(tail, successes, failures + 1)
    high = 1.0 if failures <= 0 else beta_quantile(1 - tail, successes + 1, failures)
    return Estimate(successes / trials, low, high)


def mean_interval(values: np.ndarray) -> Estimate:
    """Mean, with Student's interval; without one for fewer than five values, or values that are all alike."""
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    if not has_spread(values):
        return Estimate(mean)
    half = t_limit(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def has_spread(values: np.ndarray) -> bool:
    """Tell whether values are at least five, and not all alike."""
    return len(values) >= MIN_VALUES and float(np.ptp(values)) > 0.0


def bootstrap_interval(value: float, resampled: np.ndarray, num_values: int) -> Estimate:
    """Return a statistic with its expanded percentile interval.

    The plain percentiles of few values are too narrow, as they take the spread of the sample for that of its source;
    these are further out, by the factor that makes Student's interval of a mean.

    Args:
        value: Statistic of the sample.
        resampled: The same of each resample.
        num_values: In the smallest group that was resampled on its own; below five there is no interval.

    Source: Hesterberg (2015), What Teachers Should Know About the Bootstrap, arXiv 1411.5279, section 3.4.
    """
    if num_values < MIN_VALUES or float(np.ptp(resampled)) == 0.0:
        return Estimate(value)
    tail = normal_cdf(-math.sqrt(num_values / (num_values - 1)) * t_limit(num_values - 1))
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Estimate(value, float(low), float(high))


def resamples(values: np.ndarray) -> np.ndarray:
    """Return resamples of values, by a fixed generator, ``(resamples, values)``."""
    rng = np.random.default_rng(0)
    return values[rng.integers(0, len(values), (NUM_RESAMPLES, len(values)))]


def improvement_interval(value: float, sizes: Sequence[tuple[int, int]], *, are_shared: bool = False) -> Estimate:
    """Return a probability of improvement with a score interval.

    Args:
        value: Mean over tasks of Mann and Whitney's U over the number of pairs.
        sizes: Runs of the one and of the other method, of each task; below five there is no interval.
        are_shared: Whether runs have several tasks. Then tasks are taken to agree fully, which is never too narrow.

    Source: Newcombe (2006), Confidence intervals for an effect size measure based on the Mann-Whitney statistic, part
    2, method 5; for several tasks the variances are averaged, or the deviations if runs are shared.
    """
    if min(min(pair) for pair in sizes) < MIN_VALUES:
        return Estimate(value)
    z = t_limit(min(m + n - 2 for m, n in sizes))

    def deviation(p: float) -> float:
        parts = ((m + n) / 2 - 1 for m, n in sizes)
        shape = (1 - p) / (2 - p) + p / (1 + p)
        each = [p * (1 - p) * (1 + part * shape) / (m * n) for part, (m, n) in zip(parts, sizes, strict=True)]
        return (sum(map(math.sqrt, each)) if are_shared else math.sqrt(sum(each))) / len(sizes)

    def limit(end: float, is_inside: Callable[[float], bool]) -> float:
        inside, outside = value, end
        for _ in range(60):
            middle = 0.5 * (inside + outside)
            inside, outside = (middle, outside) if is_inside(middle) else (inside, middle)
        return outside

    low = limit(0.0, lambda p: value - p <= z * deviation(p))
    return Estimate(value, low, limit(1.0, lambda p: p - value <= z * deviation(p)))


# --------------------------------------------------------------------------------------- comparison
def strata(scores: np.ndarray) -> list[np.ndarray]:
    """Return the rows of scores ``(runs, tasks)`` that have the same tasks, for each set of tasks that there is."""
    known = np.isfinite(scores)
    return [np.flatnonzero((known == tasks).all(1)) for tasks in np.unique(known, axis=0)]


def compare_means(first: np.ndarray, second: np.ndarray) -> Difference:
    """Compare the means of two methods by Welch's test, averaged over tasks.

    Runs are independent of each other; tasks of one run are not, so a run of several tasks counts once.

    Args:
        first: Scores of the one, ``(runs, tasks)``, NaN where a run has no such task; ``(runs,)`` is one task.
        second: Scores of the other, of the same tasks in the same order.

    With two runs of each the test is wrong too often where some runs fail, so fewer than three get no verdict.

    Source: Welch (1947), with the degrees of freedom of Satterthwaite (1946). Without any spread, p is that of a
    permutation of the runs within each task.
    """
    pair = [np.asarray(scores, np.float64).reshape(len(scores), -1) for scores in (first, second)]
    means = [np.nanmean(scores, axis=0) for scores in pair]
    value = float(np.mean(means[0] - means[1]))
    counts = [len(rows) for scores in pair for rows in strata(scores)]
    if min(counts) < MIN_TEST:
        return Difference(value, None, None, None, None)
    variances = [variance for scores in pair for variance in _variances(scores)]
    parts = [variance / n for variance, n in zip(variances, counts, strict=True)]
    error = math.sqrt(sum(parts))
    tiny = 1e-12 * max(float(np.nanmax(np.abs(scores))) for scores in pair)
    if error <= tiny:
        return Difference(value, None, None, _p_without_spread(pair[0], pair[1], tiny), None)
    degrees = sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, counts, strict=True))
    half = t_limit(degrees) * error
    return Difference(
        value, value - half, value + half, t_tails(value / error, degrees), _needed(value, sum(variances))
    )


def _variances(scores: np.ndarray) -> list[float]:
    """Return for each stratum the variance of what one of its runs adds to the mean over tasks, times its runs."""
    weights = 1.0 / (np.isfinite(scores).sum(0) * scores.shape[1])
    added = np.nansum(scores * weights, axis=1)
    return [float(added[rows].var(ddof=1)) * len(rows) ** 2 for rows in strata(scores)]


def _p_without_spread(first: np.ndarray, second: np.ndarray, tiny: float) -> float | None:
    """Return p of a permutation test where the runs of each method are all alike; None where tasks disagree."""
    gaps = np.nanmean(first, axis=0) - np.nanmean(second, axis=0)
    if gaps.min() < -tiny and gaps.max() > tiny:
        return None
    counts = [np.isfinite(scores).sum(0)[np.abs(gaps) > tiny].tolist() for scores in (first, second)]
    labellings = [math.comb(m + n, m) for m, n in zip(*counts, strict=True)]
    if not labellings:
        return 1.0
    return min(1.0, 2 / (min(labellings) if are_shared(first, second) else math.prod(labellings)))


def are_shared(*scores: np.ndarray) -> bool:
    """Tell whether a run has several tasks."""
    return any((np.isfinite(each).sum(1) > 1).any() for each in scores)


def _needed(difference: float, variance: float) -> int | None:
    """Return the seeds of each method at which a difference would show, from the variance of one run of each."""
    if difference == 0.0:
        return None
    z_sum = 1.959963984540054 + POWER_Z
    return min(max(math.ceil(z_sum**2 * variance / difference**2) + 1, MIN_TEST), 10**6)
