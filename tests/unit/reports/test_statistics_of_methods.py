"""Statistics over runs and tasks against scipy and rliable's published definitions."""

import tracemalloc

import numpy as np
import pytest
from scipy import stats

from seqrl.reports import statistics as comparison
from seqrl.reports.statistics import (
    common_places,
    estimate,
    estimate_curve,
    estimate_improvement,
    estimate_mean,
    estimate_profile,
    improvement,
    interpolated,
    interquartile_mean,
    iqm,
    mean,
    median,
    optimality_gap,
    share_above,
)
from tests.helpers import separate_tasks

REFERENCE = {
    "iqm": (0.426896, 0.316577, 0.569253),
    "mean": (0.382504, 0.181824, 0.572166),
    "median": (0.320328, 0.174556, 0.565928),
    "gap": (0.627629, 0.445139, 0.821423),
    "improvement": (0.640000, 0.426667, 0.840000),
}
"""rliable 1.2.0, get_interval_estimates(..., reps=50000), of the scores below: (estimate, low, high)."""


def scores(seed=0, runs=(5, 5, 5), shift=0.0):
    rng = np.random.default_rng(seed)
    return separate_tasks(*(rng.normal(0.3 + 0.2 * task + shift, 0.5, n) for task, n in enumerate(runs)))


def of_task(table, task):
    return table[np.isfinite(table[:, task]), task]


def rng():
    return np.random.default_rng(1)


def test_iqm_is_scipys_trimmed_mean_over_runs_and_tasks():
    groups = scores(runs=(4, 4, 4))
    assert interquartile_mean(groups) == pytest.approx(stats.trim_mean(groups[np.isfinite(groups)], 0.25), rel=1e-12)
    assert interquartile_mean(scores()) == pytest.approx(iqm(scores()[np.isfinite(scores())]), rel=1e-12)


def test_tasks_weigh_the_same_whatever_their_number_of_runs():
    few, many = np.array([5.0, 6.0]), np.array([1.0, 2.0])
    for statistic in (interquartile_mean, mean, median):
        once, five_times = statistic(separate_tasks(few, many)), statistic(separate_tasks(few, np.tile(many, 5)))
        assert once == pytest.approx(five_times, rel=1e-12)
    assert interquartile_mean(separate_tasks(few, many)) != pytest.approx(iqm(np.concatenate([few, np.tile(many, 5)])))


def test_median_is_over_tasks_and_not_over_runs():
    assert median(separate_tasks([0.0, 0.0, 9.0], [1.0], [2.0])) == 2.0
    assert median(separate_tasks([0.0, 0.0, 9.0])) == 3.0


def test_the_gap_counts_what_exceeds_the_target_as_the_target():
    assert optimality_gap(separate_tasks([0.5, 2.0], [1.0, 1.0]), 1.0) == pytest.approx(0.125)


def test_improvement_is_mann_whitneys_u_over_the_pairs():
    x, y = [1.0, 2.0, 2.0, 5.0], [2.0, 0.0, 5.0]
    won = improvement(separate_tasks(x), separate_tasks(y))
    assert won == pytest.approx(stats.mannwhitneyu(x, y).statistic / 12, rel=1e-12)
    x, y = scores(1), scores(2, runs=(3, 7, 4))
    pairs = [(of_task(x, task), of_task(y, task)) for task in range(3)]
    by_task = [stats.mannwhitneyu(a, b).statistic / (len(a) * len(b)) for a, b in pairs]
    assert improvement(x, y) == pytest.approx(np.mean(by_task), rel=1e-12)
    assert improvement(x, y) + improvement(y, x) == pytest.approx(1.0)


def test_resamples_give_what_each_gives_alone():
    groups, others = scores(), scores(3, runs=(2, 3, 4))
    second = scores(4)
    stacked = np.stack([groups, second])
    for statistic in (interquartile_mean, mean, median, lambda g: optimality_gap(g, 1.0), lambda g: share_above(g, 0)):
        np.testing.assert_allclose(statistic(stacked), [statistic(groups), statistic(second)])
    paired = np.stack([others, others])
    np.testing.assert_allclose(improvement(stacked, paired), [improvement(groups, others), improvement(second, others)])


@pytest.mark.parametrize(
    ("name", "statistic", "runs"),
    [
        ("iqm", interquartile_mean, 8),  # of 5 runs on 3 tasks rliable cuts off 3 at each end, and not 3.75
        ("mean", mean, 5),
        ("median", median, 5),
        ("gap", lambda g: optimality_gap(g, 1.0), 5),
    ],
)
def test_intervals_are_those_of_rliable_but_wider_by_how_few_runs_there_are(name, statistic, runs):
    value, low, high = REFERENCE[name]
    got = estimate(scores(runs=(runs,) * 3), statistic, 20_000, rng())
    assert got.value == pytest.approx(value, abs=1e-5)
    assert got.low < low < high < got.high
    wider = (got.high - got.low) / (high - low)  # Student's limit over the normal one, times sqrt(n / (n - 1))
    assert wider == pytest.approx((runs / (runs - 1)) ** 0.5 * stats.t.ppf(0.975, runs - 1) / 1.96, rel=0.2)


def test_improvement_is_rliables_and_its_interval_is_near():
    value, low, high = REFERENCE["improvement"]
    got = estimate_improvement(scores(shift=0.3), scores(5))
    assert got.value == pytest.approx(value, abs=1e-5)
    assert (got.low, got.high) == pytest.approx((low, high), abs=0.07)


def test_the_interval_of_one_task_is_scipys_percentile_bootstrap_further_out():
    values = scores(runs=(12,))[:, 0]
    got = estimate(separate_tasks(values), interquartile_mean, 20_000, rng())
    level = 1 - 2 * stats.norm.sf((12 / 11) ** 0.5 * stats.t.ppf(0.975, 11))
    theirs = stats.bootstrap(
        (values,), lambda v, axis: stats.trim_mean(v, 0.25, axis=axis), method="percentile", n_resamples=20_000,
        confidence_level=level, rng=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    assert (got.low, got.high) == pytest.approx(tuple(theirs), abs=0.02)


def test_runs_are_resampled_within_their_task():
    """Tasks that are far apart widen no interval, as every resample has runs of each."""
    near, far = (
        estimate(separate_tasks(np.arange(5.0), np.arange(5.0) + shift), mean, 500, rng()) for shift in (0.0, 100.0)
    )
    assert (far.low - 50.0, far.high - 50.0) == pytest.approx((near.low, near.high))


def test_a_run_of_several_tasks_is_drawn_as_one():
    """What one of its tasks is above the mean, the other is below: no resample differs."""
    values = np.arange(6.0)
    opposite = np.stack([values, 5.0 - values], axis=1)
    assert estimate(opposite, mean, 500, rng()).low is None
    assert estimate_mean(opposite).low is None
    alike = np.stack([values, values], axis=1)
    one = estimate_mean(values[:, None])
    assert (estimate_mean(alike).low, estimate_mean(alike).high) == pytest.approx((one.low, one.high))
    apart = estimate_mean(separate_tasks(values, values))
    assert apart.high - apart.low < 0.75 * (one.high - one.low)


def test_many_tasks_cost_no_more_than_their_scores():
    """Of 60 tasks with 8 runs each a table has 28,800 cells, of which 480 hold something."""
    groups = separate_tasks(*np.random.default_rng(0).normal(size=(60, 8)))
    tracemalloc.start()
    found = estimate(groups, interquartile_mean, 1000, rng())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.low < found.value < found.high
    assert peak < 60e6  # 480 scores of 1,000 resamples are 4 MB, all cells 230 MB


def test_fewer_than_five_runs_or_no_spread_give_no_interval():
    few, alike = separate_tasks([1.0, 2.0, 3.0, 4.0], np.arange(9.0)), separate_tasks(np.full(9, 2.0))
    for groups in (few, alike):
        for got in (estimate(groups, interquartile_mean, 200, rng()), estimate_mean(groups)):
            assert (got.low, got.high) == (None, None)
    assert estimate_improvement(few, few).low is None
    assert np.isnan(estimate_profile(few, np.array([2.0]))[:, 1:]).all()
    assert np.isnan(estimate_curve(few[..., None], 200, rng())[:, 1:]).all()


def test_the_generator_decides_the_interval():
    first, again, other = (estimate(scores(), mean, 200, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again
    assert (first.low, first.high) != (other.low, other.high)


def test_the_mean_of_one_task_has_students_interval():
    values = scores(runs=(6,))[:, 0]
    got = estimate_mean(separate_tasks(values))
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval()
    assert (got.low, got.high) == pytest.approx((theirs.low, theirs.high), rel=1e-9)


def test_profile_is_the_share_of_runs_above():
    groups = separate_tasks([0.0, 1.0, 1.0, 1.0, 1.0], [2.0, 3.0, 4.0, 4.0, 4.0])
    got = estimate_profile(groups, np.array([-1.0, 0.0, 2.0, 4.0]))
    np.testing.assert_allclose(got[:, 0], [1.0, 0.9, 0.4, 0.0])
    for share, low, high in got:
        theirs = stats.binomtest(round(10 * share), 10).proportion_ci(0.95, method="exact")
        assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_tasks_with_few_runs_widen_the_profile():
    """Of 5 and 50 runs each task has half the weight: they tell as much as 18.2 runs, and not as 55."""
    got = estimate_profile(separate_tasks(np.arange(5.0), np.arange(50.0) / 10), np.array([1.95]))[0]
    num = 4 / (1 / 5 + 1 / 50)
    hits = got[0] * num
    exact = stats.beta.ppf([0.025, 0.975], [hits, hits + 1], [num - hits + 1, num - hits])
    assert got[1:] == pytest.approx(exact, abs=1e-9)
    shared = estimate_profile(np.stack([np.arange(6.0)] * 4, axis=1), np.array([1.5]))[0]
    one = estimate_profile(np.arange(6.0)[:, None], np.array([1.5]))[0]
    np.testing.assert_allclose(shared, one, atol=1e-9)


def test_a_curve_resamples_whole_runs():
    """The interval at a place is that of the scores there."""
    curves = np.stack([scores(seed, runs=(6, 5)) for seed in range(3)], axis=-1)
    got = estimate_curve(curves, 1000, rng())
    for place in range(3):
        alone = estimate(curves[..., place], interquartile_mean, 1000, rng())
        np.testing.assert_allclose(got[place], [alone.value, alone.low, alone.high])


def test_curves_meet_where_all_are_known():
    a, b = np.array([[0.0, 0.0], [10.0, 10.0]]), np.array([[5.0, 1.0], [8.0, 4.0], [20.0, 0.0]])
    places = common_places([a, b])
    np.testing.assert_array_equal(places, [5.0, 8.0, 10.0])
    np.testing.assert_allclose(interpolated([a, b], places), [[5, 8, 10], [1, 4, 4 - 4 / 6]])
    assert len(common_places([a[:1], b])) == 0
    dense = np.column_stack([np.arange(1000.0), np.zeros(1000)])
    assert len(common_places([dense])) == comparison.MAX_POINTS
