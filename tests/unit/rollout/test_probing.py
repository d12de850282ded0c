"""Probes: a cleared memory is an empty one, another window is the same policy, attempts are found."""

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.algo.acting import VectorPolicy
from seqrl.core.errors import ConfigError
from seqrl.envs.metrics import Episode
from seqrl.rollout.probing import by_attempt, point_of, probe_table, window_of, with_window
from tests.helpers import OBS, random_obs, small_algo

SPACE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (2, 2), np.uint8),
        "room": spaces.Discrete(3),
        "state": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    }
)


def observations(num, rows=2):
    rng = np.random.default_rng(0)
    return [{k: v.numpy() for k, v in random_obs(rng, OBS, rows).items()} for _ in range(num)]


@pytest.mark.parametrize("memory", ["gru", "mamba", "transformer"])
def test_a_cleared_memory_acts_like_one_that_has_seen_nothing(memory):
    algo = small_algo(memory=memory, action_space=spaces.Box(-1.0, 1.0, (2,)))
    algo.set_eval()
    policy, fresh, kept = (VectorPolicy(algo, 2, deterministic=True) for _ in range(3))
    seen = observations(5)
    rewards = np.ones(2, np.float32)
    for obs in seen[:3]:
        policy.act(obs, rewards)
        kept.act(obs, rewards)
    fresh._step, fresh._prev_action = policy._step.copy(), policy._prev_action.copy()
    policy.clear_memory(np.array([True, False]))
    for obs in seen[3:]:
        got, empty, whole = (p.act(obs, rewards) for p in (policy, fresh, kept))
        np.testing.assert_allclose(got[0], empty[0], atol=1e-6)
        np.testing.assert_allclose(got[1], whole[1], atol=1e-6)
        assert not np.allclose(got[0], whole[0], atol=1e-6)


def test_another_window_is_the_same_policy_until_it_is_left():
    algo = small_algo(memory="transformer", action_space=spaces.Box(-1.0, 1.0, (2,)), window=6)
    algo.set_eval()
    assert window_of(algo) == 6
    short = with_window(algo, 2, SPACE)
    assert window_of(short) == 2
    hybrid = small_algo(memory="hybrid", action_space=algo.codec.space)
    assert window_of(with_window(hybrid, 3, SPACE)) == 3
    assert not short.nets.training
    both = [VectorPolicy(a, 2, deterministic=True) for a in (algo, short)]
    for number, obs in enumerate(observations(5)):
        one, other = (p.act(obs, np.ones(2, np.float32)) for p in both)
        assert np.allclose(one, other, atol=1e-6) == (number < 2), number


@pytest.mark.parametrize("memory", ["gru", "mamba", "feedforward"])
def test_a_memory_without_a_window_is_refused(memory):
    with pytest.raises(ConfigError, match=f"'{memory}' has no window"):
        window_of(small_algo(memory=memory))


def episode(total, success=None, **log):
    return Episode("A", 0, total, 3, success, {k.replace("__", "/"): v for k, v in log.items()})


def test_attempts_are_found_in_what_the_environment_logs():
    logged = [
        episode(1.0, log__attempt_1=0.0, log__attempt_2=1.0, log__attempt_10=1.0, log__keys=3.0),
        episode(1.0, log__attempt_1=1.0, log__attempt_2=1.0),
    ]
    probe = by_attempt(logged)
    assert [p.value for p in probe.points] == [1, 2, 10]
    assert [p.measures["log/attempt"].value for p in probe.points] == [0.5, 1.0, 1.0]
    assert [p.num_episodes for p in probe.points] == [2, 2, 1]
    assert by_attempt([episode(1.0, log__keys=3.0)]) is None
    several = by_attempt([episode(1.0, log__success_attempt_1=1.0, log__attempt_1_return=2.0)])
    assert set(several.points[0].measures) == {"log/success_attempt", "log/attempt_return"}


def test_an_episode_that_tells_nothing_has_failed_if_others_tell_of_success():
    assert list(point_of(1, [episode(2.0)]).measures) == ["return"]
    known = point_of(1, [episode(2.0, True), episode(4.0, False), episode(0.0)])
    assert known.measures["success"].value == pytest.approx(1 / 3)
    assert known.measures["return"].value == 2.0


def test_the_table_marks_training():
    from seqrl.rollout.probing import Probe

    points = [point_of(n, [episode(1.0, True)]) for n in (5, 10)]
    table = probe_table(Probe("size", points, 10))
    assert "| 10 (training) | 1 [" in table
    assert "| 5 " in table
