"""Intervals and the test against scipy, and simulated: how often they hold the truth, how often the test errs."""

import math

import numpy as np
import pytest
from scipy import stats

from seqrl.reports import intervals
from seqrl.reports.intervals import compare_means, mean_interval, share_interval
from seqrl.reports.statistics import (
    estimate,
    estimate_curve,
    estimate_improvement,
    estimate_mean,
    estimate_profile,
    interquartile_mean,
    iqm_interval,
    median,
    optimality_gap,
)
from tests.helpers import separate_tasks


# ------------------------------------------------------------------------------------------ against scipy
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (2.0, 0.5), (1.0, 200.0), (151.0, 50.0), (2500.0, 2501.0)])
def test_the_beta_distribution_is_scipys(a, b):
    for p in (1e-6, 0.025, 0.5, 0.975, 1 - 1e-6):
        x = stats.beta.ppf(p, a, b)
        assert intervals.beta_cdf(x, a, b) == pytest.approx(p, rel=1e-8)
        assert intervals.beta_quantile(p, a, b) == pytest.approx(x, rel=1e-7)


@pytest.mark.parametrize("degrees", [1.0, 2.7, 4.0, 199.0])
def test_students_distribution_is_scipys(degrees):
    assert intervals.t_limit(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-9)
    assert intervals.t_tails(-1.7, degrees) == pytest.approx(2 * stats.t.sf(1.7, degrees), rel=1e-9)


@pytest.mark.parametrize("trials", [1, 2, 7, 200, 5000])
def test_a_share_has_the_exact_interval(trials):
    for successes in sorted({0, 1, trials // 3, trials - 1, trials}):
        got = share_interval(successes, trials)
        theirs = stats.binomtest(successes, trials).proportion_ci(0.95, method="exact")
        assert got.value == successes / trials
        assert (got.low, got.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_a_share_needs_a_trial():
    with pytest.raises(ValueError, match="at least one trial"):
        share_interval(0, 0)


def test_the_comparison_is_scipys_welch_test():
    rng = np.random.default_rng(0)
    x, y = rng.normal(1.0, 2.0, 5), rng.normal(0.0, 0.5, 7)
    got, theirs = compare_means(x, y), stats.ttest_ind(x, y, equal_var=False)
    limits = theirs.confidence_interval()
    assert got.value == pytest.approx(x.mean() - y.mean())
    assert got.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (got.low, got.high) == pytest.approx((limits.low, limits.high), rel=1e-9)
    twice = compare_means(separate_tasks(x, x + 9.0), separate_tasks(y, y + 9.0))
    assert twice.value == pytest.approx(got.value)
    assert twice.p_value < got.p_value  # two tasks that agree say more than one


def test_what_the_comparison_cannot_know_it_leaves_open():
    one, two, three = (np.arange(float(n)) for n in (1, 2, 3))
    for few in (one, two):
        got = compare_means(few, three)
        assert (got.p_value, got.low, got.num_seeds) == (None, None, None)
    same, other = np.zeros(4), np.ones(4)
    assert compare_means(same, same).p_value == 1.0
    assert compare_means(same, other).p_value == pytest.approx(2 / math.comb(8, 4))
    assert compare_means(np.full(5, 0.1), np.full(7, 0.1)).p_value == 1.0  # their means differ by rounding
    assert compare_means(separate_tasks(other, same), separate_tasks(same, same)).p_value == pytest.approx(
        2 / math.comb(8, 4)
    )
    both = separate_tasks(other, other), separate_tasks(same, same)
    assert compare_means(*both).p_value == pytest.approx(2 / math.comb(8, 4) ** 2)
    shared = np.stack([other, other], 1), np.stack([same, same], 1)
    assert compare_means(*shared).p_value == pytest.approx(2 / math.comb(8, 4))  # two tasks of one run say it once
    assert (
        compare_means(separate_tasks(other, same), separate_tasks(same, 0.9 * other)).p_value is None
    )  # the tasks disagree


def test_as_many_seeds_as_are_said_to_be_needed_show_the_difference():
    rng = np.random.default_rng(0)
    pilot = compare_means(np.array([0.0, 1.0, 2.0]) + 0.9, np.array([0.0, 1.0, 2.0]))
    assert pilot.p_value > 0.05
    n = pilot.num_seeds
    shown = [compare_means(rng.normal(0.9, 1.0, n), rng.normal(0.0, 1.0, n)).p_value < 0.05 for _ in range(1000)]
    assert 0.75 <= np.mean(shown) <= 0.87  # four of five


# ---------------------------------------------------------------------------------------------- simulated
def normal(rng, n):
    return rng.normal(size=n)


def uniform(rng, n):
    return rng.uniform(-1.0, 1.0, n)


def together(rng, draw, n, others=1.0):
    """Return scores of runs that have three tasks each, in which a good run is good in all."""
    return draw(rng, n)[:, None] + others * np.stack([draw(rng, n) for _ in range(3)], axis=1)


def uneven(rng, draw, n):
    return separate_tasks(draw(rng, n), draw(rng, 8 * n))


def estimated(statistic):
    return lambda rng, draw, n: estimate(draw(rng, n)[:, None], statistic, 1000, rng)


KINDS = {
    "mean of episodes": (lambda rng, draw, n: mean_interval(draw(rng, n)), 0.0),
    "IQM of episodes": (lambda rng, draw, n: iqm_interval(draw(rng, n)), 0.0),
    "mean of runs": (lambda rng, draw, n: estimate_mean(draw(rng, n)[:, None]), 0.0),
    "mean of two tasks": (
        lambda rng, draw, n: estimate_mean(separate_tasks(draw(rng, n), 3.0 * draw(rng, n) + 2.0)), 1.0
    ),
    "IQM of runs": (estimated(interquartile_mean), 0.0),
    "IQM of two tasks": (
        lambda rng, draw, n: estimate(separate_tasks(draw(rng, n), draw(rng, n)), interquartile_mean, 1000, rng), 0.0
    ),
    "median of three tasks": (
        lambda rng, draw, n: estimate(separate_tasks(*(draw(rng, n) for _ in range(3))), median, 1000, rng), 0.0
    ),
    "gap": (estimated(lambda groups: optimality_gap(groups, 9.0)), 9.0),
    "difference": (lambda rng, draw, n: compare_means(draw(rng, n) + 1.0, draw(rng, n)), 1.0),
    "probability of improvement": (
        lambda rng, draw, n: estimate_improvement(draw(rng, n)[:, None], draw(rng, n)[:, None]), 0.5
    ),
    "profile": (lambda rng, draw, n: _Ends(estimate_profile(draw(rng, n)[:, None], np.zeros(1))[0]), 0.5),
    "profile of uneven tasks": (lambda *args: _Ends(estimate_profile(uneven(*args), np.zeros(1))[0]), 0.5),
    "mean of tasks of one run": (lambda *args: estimate_mean(together(*args)), 0.0),
    "IQM of tasks of one run": (lambda rng, *args: estimate(together(rng, *args), interquartile_mean, 1000, rng), 0.0),
    "difference of tasks of one run": (lambda *args: compare_means(together(*args), together(*args)), 0.0),
    "improvement of tasks of one run": (lambda *args: estimate_improvement(together(*args), together(*args)), 0.5),
    "profile of tasks of one run": (lambda *args: _Ends(estimate_profile(together(*args), np.zeros(1))[0]), 0.5),
    "curve": (lambda rng, draw, n: _Ends(estimate_curve(draw(rng, n)[:, None, None], 1000, rng)[0]), 0.0),
}  # fmt: skip


class _Ends:
    def __init__(self, row):
        self.low, self.high = row[1], row[2]


@pytest.mark.slow
@pytest.mark.parametrize("draw", [normal, uniform])
@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize("kind", list(KINDS))
def test_intervals_hold_the_truth_as_often_as_they_say(kind, n, draw):
    """95 % is said; 90 % is the least that is let pass, of 400 trials."""
    make, truth = KINDS[kind]
    rng = np.random.default_rng(7)
    found = [make(rng, draw, n) for _ in range(400)]
    assert sum(e.low <= truth <= e.high for e in found) >= 0.9 * len(found)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.97])
@pytest.mark.parametrize("n", [5, 20, 200])
def test_intervals_of_shares_hold_the_truth(n, share):
    rng = np.random.default_rng(0)
    found = [share_interval(k, n) for k in rng.binomial(n, share, 400)]
    assert sum(e.low <= share <= e.high for e in found) >= 0.94 * len(found)


def test_plain_percentiles_of_five_would_fail_the_same_check():
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        values = rng.normal(size=5)
        low, high = np.percentile(intervals.resamples(values).mean(-1), [2.5, 97.5])
        hits += low <= 0.0 <= high
    assert hits < 0.88 * 400


@pytest.mark.parametrize("fails", [0.0, 0.3])
@pytest.mark.parametrize("n", [3, 5])
def test_equal_methods_are_seldom_called_different(n, fails):
    """At most 6 % of 1,000 comparisons, also where a share of the seeds fails altogether."""
    rng = np.random.default_rng(1)

    def draw():
        return (rng.random(n) >= fails) + 0.05 * rng.normal(size=n)

    assert np.mean([compare_means(draw(), draw()).p_value < 0.05 for _ in range(1000)]) <= 0.06


def test_equal_methods_whose_runs_have_several_tasks_are_seldom_called_different():
    """Were tasks of one run counted as runs, a quarter of 1,000 comparisons would be."""
    rng = np.random.default_rng(2)

    def draw():
        return together(rng, normal, 5, others=0.5)

    def as_runs(scores):
        return separate_tasks(*scores.T)

    pairs = [(draw(), draw()) for _ in range(1000)]
    assert np.mean([compare_means(x, y).p_value < 0.05 for x, y in pairs]) <= 0.06
    assert np.mean([compare_means(as_runs(x), as_runs(y)).p_value < 0.05 for x, y in pairs]) > 0.15
