"""Summaries of episodes against scipy and against definitions written out."""

import numpy as np
import pytest
from scipy import stats

from seqrl.envs.metrics import Episode
from seqrl.reports.intervals import share_interval
from seqrl.reports.statistics import bottom_quintile, iqm, iqm_interval
from seqrl.rollout.evaluator import summarize_episodes


def _fractional_iqm(values):
    """Return the integral of the empirical quantile function over [1/4, 3/4], times 2, in quarters of a value."""
    quarters = np.repeat(np.sort(values), 4)  # 4 n equal shares, of which the middle 2 n are kept
    return quarters[len(values) : 3 * len(values)].mean()


@pytest.mark.parametrize("n", [4, 8, 12, 100, 400])
def test_iqm_is_scipys_trimmed_mean_where_quarters_are_whole(n):
    values = np.random.default_rng(n).normal(size=n)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 9, 10, 11, 201])
def test_iqm_weighs_the_edges_by_their_share(n):
    values = np.random.default_rng(n).normal(size=n)
    assert iqm(values) == pytest.approx(_fractional_iqm(values), rel=1e-12)


def test_iqm_by_hand():
    assert iqm(np.array([3.0])) == 3.0
    assert iqm(np.array([1.0, 5.0])) == 3.0
    assert iqm(np.array([0.0, 10.0, 1e9])) == pytest.approx((0.25 * 0 + 10 + 0.25 * 1e9) / 1.5)
    assert iqm(np.array([-1e9, 2.0, 1e9, 4.0])) == 3.0
    assert iqm(np.array([5, 1, 3, 2, 4])) == 3.0


def test_iqm_averages_the_last_axis():
    values = np.random.default_rng(0).normal(size=(3, 2, 7))
    got = iqm(values)
    assert got.shape == (3, 2)
    assert got[1, 0] == pytest.approx(_fractional_iqm(values[1, 0]))


@pytest.mark.parametrize(("n", "worst"), [(1, 1), (4, 1), (5, 1), (9, 1), (10, 2), (200, 40)])
def test_bottom_quintile_is_the_mean_of_the_worst_fifth(n, worst):
    values = np.random.default_rng(n).permutation(np.arange(n, dtype=float) ** 2)
    assert bottom_quintile(values) == pytest.approx(np.mean(np.arange(worst, dtype=float) ** 2))


def test_the_interval_of_the_iqm_follows_the_data():
    values = np.random.default_rng(1).exponential(size=50)
    assert iqm_interval(values) == iqm_interval(values)
    shifted, one = iqm_interval(values), iqm_interval(values + 100.0)
    assert (one.low, one.high) == pytest.approx((shifted.low + 100, shifted.high + 100))
    assert iqm_interval(np.array([1.0, 2.0, 3.0, 4.0])).low is None
    assert iqm_interval(np.full(50, 2.5)).low is None


def _episodes(name, rewards, successes=None, logs=None, length=3):
    successes = successes or [None] * len(rewards)
    logs = logs or [{}] * len(rewards)
    return [
        Episode(name, 0, r, length, s, log) for r, s, log in zip(rewards, successes, logs, strict=True)
    ]  # fmt: skip


def test_summary_of_one_name():
    rewards = [1.0, 2.0, 3.0, 4.0, 10.0]
    logs = [{"log/x": 1.0}, {"log/x": 3.0}, {}, {"log/y": 5.0}, {}]
    got = summarize_episodes(_episodes("maze", rewards, [True, False, None, True, None], logs))
    interval = share_interval(2, 5)
    assert got["eval/return_mean"] == pytest.approx(4.0)
    assert got["eval/return_iqm"] == pytest.approx(_fractional_iqm(rewards))
    assert got["eval/return_bottom_quintile"] == 1.0
    assert got["eval/return_mean_low"] < 4.0 < got["eval/return_mean_high"]
    assert got["eval/return_iqm_low"] < got["eval/return_iqm"] < got["eval/return_iqm_high"]
    assert got["eval/success_mean"] == pytest.approx(2 / 5)
    assert (got["eval/success_mean_low"], got["eval/success_mean_high"]) == (interval.low, interval.high)
    assert (got["eval/log/x"], got["eval/log/y"]) == (2.0, 5.0)
    assert (got["eval/length_mean"], got["eval/episodes"]) == (3.0, 5.0)


def test_few_or_equal_returns_have_no_interval():
    for rewards in ([1.0, 2.0, 3.0, 4.0], [1.0] * 9):
        got = summarize_episodes(_episodes("maze", rewards, [True] * len(rewards)))
        assert "eval/return_mean" in got
        assert not any(key.startswith("eval/return") and key.endswith(("_low", "_high")) for key in got)
        assert got["eval/success_mean_low"] == pytest.approx(0.025 ** (1 / len(rewards)))


def test_success_is_left_out_where_nothing_reports_it():
    got = summarize_episodes(_episodes("maze", [1.0, 2.0]), prefix="test")
    assert not any("success" in key for key in got)
    assert all(key.startswith("test/") for key in got)


def test_several_names_have_their_own_groups_and_equal_votes():
    easy = _episodes("easy/Maze-v0", [10.0] * 6, [True] * 6, [{"log/x": 1.0}] * 6, length=2)
    hard = _episodes("hard/Maze-v0", [0.0, 2.0], [False, True], length=8)
    plain = _episodes("plain", [4.0], length=5)
    got = summarize_episodes([*hard, *easy, *plain])
    assert got["eval/easy/Maze-v0/return_mean"] == 10.0
    assert got["eval/hard/Maze-v0/return_mean"] == 1.0
    assert got["eval/hard/Maze-v0/success_mean"] == 0.5
    assert got["eval/easy/Maze-v0/log/x"] == 1.0
    assert "eval/plain/success_mean" not in got
    assert got["eval/return_mean"] == pytest.approx((10 + 1 + 4) / 3)  # not weighted by the number of episodes
    assert got["eval/success_mean"] == pytest.approx((1 + 0.5) / 2)  # over the names that report it
    assert got["eval/length_mean"] == pytest.approx((2 + 8 + 5) / 3)
    assert got["eval/episodes"] == 9.0
    assert got["eval/easy/Maze-v0/episodes"] == 6.0


def test_log_entries_of_several_names_are_also_averaged_over_names():
    episodes = [*_episodes("a", [0.0] * 3, logs=[{"log/x": 1.0}] * 3), *_episodes("b", [0.0], logs=[{"log/x": 3.0}])]
    assert summarize_episodes(episodes)["eval/log/x"] == pytest.approx(2.0)


def test_no_episode_is_an_error():
    with pytest.raises(ValueError, match="no episode"):
        summarize_episodes([])
