"""Rewards, successes and ``log/`` entries go to their own row and episode."""

import numpy as np

from seqrl.core.types import TimeStep
from seqrl.envs.metrics import Episode, EpisodeMetrics, told_successes


def _step(rewards, *, terminated=(), truncated=(), first=(), success=(), known=(), log=None, names=None):
    num = len(rewards)
    rows = lambda chosen: np.isin(np.arange(num), list(chosen))  # noqa: E731
    obs = {"obs": np.zeros((num, 1), np.float32)}
    return TimeStep(
        obs=obs,
        final_obs=obs,
        reward=np.array(rewards, np.float32),
        terminated=rows(terminated),
        truncated=rows(truncated),
        is_first=rows(first),
        step=np.zeros(num, np.int64),
        env_name=tuple(names or ["task"] * num),
        success=rows(success),
        success_known=rows(known),
        log={
            k: (np.array([v.get(r, 0.0) for r in range(num)]), rows(v))
            for k, v in (log or {}).items()
        },
    )  # fmt: skip


def test_sums_and_lengths_are_per_row_and_episode():
    metrics = EpisodeMetrics(2)
    assert metrics.add(_step([1.0, 10.0])) == []
    (short,) = metrics.add(_step([2.0, 20.0], terminated=[0], first=[0]))
    assert (short.row, short.total_reward, short.length) == (0, 3.0, 2)
    assert metrics.add(_step([4.0, 40.0])) == []
    both = metrics.add(_step([8.0, 80.0], truncated=[0, 1], first=[0, 1]))
    assert [(e.row, e.total_reward, e.length) for e in both] == [(0, 12.0, 2), (1, 150.0, 4)]


def test_step_that_only_resets_counts_for_nothing():
    metrics = EpisodeMetrics(1)
    metrics.add(_step([1.0], terminated=[0], success=[0], known=[0]))
    metrics.add(_step([99.0], first=[0], success=[0], known=[0], log={"log/x": {0: 5.0}}))
    (episode,) = metrics.add(_step([2.0], truncated=[0]))
    assert (episode.total_reward, episode.length, episode.success, episode.log) == (2.0, 1, None, {})


def test_many_small_rewards_do_not_lose_precision():
    metrics = EpisodeMetrics(1)
    metrics.add(_step([2.0**24]))
    for _ in range(100):
        metrics.add(_step([1.0]))
    (episode,) = metrics.add(_step([0.0], terminated=[0]))
    assert episode.total_reward == 2.0**24 + 100


def test_success_in_any_step_counts():
    metrics = EpisodeMetrics(1)
    metrics.add(_step([0.0], success=[0], known=[0]))
    (episode,) = metrics.add(_step([0.0], terminated=[0], known=[0]))
    assert episode.success is True
    metrics.add(_step([0.0], known=[0]))
    (episode,) = metrics.add(_step([0.0], terminated=[0]))
    assert episode.success is False
    (episode,) = metrics.add(_step([0.0], terminated=[0]))
    assert episode.success is None


def test_last_log_entry_counts_and_is_forgotten_afterwards():
    metrics = EpisodeMetrics(2)
    metrics.add(_step([0.0, 0.0], log={"log/x": {0: 1.0, 1: 5.0}, "log/y": {0: 7.0}}))
    (first,) = metrics.add(_step([0.0, 0.0], terminated=[0], first=[0], log={"log/x": {0: 2.0}}))
    assert first.log == {"log/x": 2.0, "log/y": 7.0}
    first_again, second = metrics.add(_step([0.0, 0.0], truncated=[0, 1]))
    assert first_again.log == {}
    assert second.log == {"log/x": 5.0}
    assert first.log == {"log/x": 2.0, "log/y": 7.0}


def test_name_is_that_of_the_row():
    metrics = EpisodeMetrics(2)
    episodes = metrics.add(_step([0.0, 0.0], terminated=[0, 1], names=["a", "b"]))
    assert [e.env_name for e in episodes] == ["a", "b"]


def test_an_episode_that_tells_nothing_has_failed_if_another_of_its_task_tells():
    """Environments may report success only when it comes."""
    told = [("maze", True), ("maze", None), ("maze", False), ("silent", None)]
    assert told_successes(Episode(name, 0, 0.0, 1, success, {}) for name, success in told) == [True, False, False]
    assert told_successes([Episode("silent", 0, 0.0, 1, None, {})]) == []
