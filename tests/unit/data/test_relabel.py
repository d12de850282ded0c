"""Every relabeler against values worked out by hand, and against plain loops on random trajectories."""

import copy
import math
import os
from dataclasses import fields

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from seqrl.configs.building import build_section
from seqrl.configs.sections.relabel import HindsightSection, HindsightSequenceSection, ScaleRewardsSection
from seqrl.core.errors import ConfigError, DataError
from seqrl.core.registry import RELABELERS
from seqrl.core.types import Trajectory
from seqrl.data import Store, StoreInfo, StoreWriter
from seqrl.data.relabel import Relabeler


def relabeler(name, **options):
    return RELABELERS.get(name)(**options)


def relabel(name, trajectory, seed=0, **options):
    options = {"threshold": 0.0, "probability": 1.0, **options}
    return relabeler(name, **options).relabel_trajectory(trajectory, np.random.default_rng(seed)).check()


def with_goal(achieved, goal, *, obs=None, end="truncated", **changes):
    """A trajectory that never reached its goal; every row of every array tells its number."""
    achieved = np.asarray(achieved)
    steps = len(achieved) - 1
    rows = np.arange(steps + 1)
    goal = np.asarray(goal)
    last = np.arange(steps) == steps - 1
    given = {
        "obs": {
            "observation": np.stack([rows, -rows], axis=1).astype(np.float32),
            "achieved_goal": achieved,
            "desired_goal": np.broadcast_to(goal, (steps + 1, *goal.shape)),
            **(obs or {}),
        },
        "actions": rows[:-1] % 3,
        "rewards": np.full(steps, 7.0, np.float32),
        "terminated": last & (end == "terminated"),
        "truncated": last & (end == "truncated"),
        "env_name": "Reach",
        "goal": {"hint": rows[:, None].astype(np.float32)},
        "action_mask": rows[:, None] % 3 == np.arange(3),
    }
    return Trajectory(**{**given, **changes}).check()


def line(*positions, goal=9.0, **changes):
    """A walk along a line in float32."""
    return with_goal(np.array(positions, np.float32)[:, None], np.array([goal], np.float32), **changes)


def route(*positions, num_goals=2, dtype=np.float32, **changes):
    """A walk along a line past several goals."""
    return with_goal(np.array(positions, dtype)[:, None], np.full((num_goals, 1), 99, dtype), **changes)


def assert_head_of(short, whole, changed):
    """All but rewards, ends and the changed entries is what it was, cut to the same length."""
    steps = len(short)
    for key, values in whole.obs.items():
        assert short.obs[key].dtype == values.dtype
        if key not in changed:
            np.testing.assert_array_equal(short.obs[key], values[: steps + 1])
    np.testing.assert_array_equal(short.goal["hint"], whole.goal["hint"][: steps + 1])
    np.testing.assert_array_equal(short.actions, whole.actions[:steps])
    assert (short.action_mask is None) == (whole.action_mask is None)
    if whole.action_mask is not None:
        np.testing.assert_array_equal(short.action_mask, whole.action_mask[: steps + 1])
    assert (short.env_name, short.start_step, short.prev_reward) == (
        whole.env_name,
        whole.start_step,
        whole.prev_reward,
    )
    assert short.prev_action is whole.prev_action
    assert short.rewards.dtype == np.float32


def assert_ends(out, walk, terminate):
    """The last transition succeeds, or nothing has changed."""
    last = np.arange(len(out)) == len(out) - 1
    np.testing.assert_array_equal(out.terminated, last if terminate else walk.terminated)
    np.testing.assert_array_equal(out.truncated, last & False if terminate else walk.truncated)


def assert_same(one, two):
    for f in fields(Trajectory):
        np.testing.assert_equal(getattr(one, f.name), getattr(two, f.name))


def window_columns():
    prev_reward = np.array([[9.0, 1.0, -2.0, 3.0], [0.0, 0.5, 0.5, 0.5]], np.float32)
    return {"prev_reward": prev_reward, "mask": np.array([[True, True, True], [True, False, False]])}


def scaled(columns, **options):
    return relabeler("scale_rewards", **options).relabel_window(columns, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[1.0, -2.0, 3.0], [0.5, 0.5, 0.5]]),
        ({"scale": 2.0, "shift": -1.0}, [[1.0, -5.0, 5.0], [0.0, 0.0, 0.0]]),
        ({"scale": 2.0, "shift": -1.0, "clip_low": -3.0}, [[1.0, -3.0, 5.0], [0.0, 0.0, 0.0]]),
        ({"scale": 2.0, "shift": -1.0, "clip_high": 0.5}, [[0.5, -5.0, 0.5], [0.0, 0.0, 0.0]]),
        ({"clip_low": 0.0, "clip_high": 0.0}, [[0.0] * 3] * 2),
        ({"scale": -1.0}, [[-1.0, 2.0, -3.0], [-0.5, -0.5, -0.5]]),
    ],
)
def test_scaled_rewards_are_those_of_the_transitions(options, expected):
    out = scaled(window_columns(), **options)
    np.testing.assert_array_equal(out["rewards"], np.array(expected, np.float32))
    assert out["rewards"].dtype == np.float32


def test_scaling_leaves_what_the_policy_reads_alone():
    columns = window_columns()
    before = copy.deepcopy(columns)
    out = scaled(columns, scale=10.0, shift=3.0)
    np.testing.assert_equal(columns, before)
    assert set(out) == {*before, "rewards"}
    np.testing.assert_equal({k: out[k] for k in before}, before)


def test_scaling_twice_works_on_the_scaled_rewards():
    out = scaled(scaled(window_columns(), scale=2.0), shift=1.0)
    np.testing.assert_array_equal(out["rewards"], [[3.0, -3.0, 7.0], [2.0, 2.0, 2.0]])


def test_final_goal_is_reached_by_the_last_transition():
    walk = line(0.0, 1.0, 2.0, 3.0)
    out = relabel("hindsight", walk)
    np.testing.assert_array_equal(out.obs["desired_goal"], [[3.0]] * 4)
    np.testing.assert_array_equal(out.rewards, [-1.0, -1.0, 0.0])
    assert out.terminated.tolist() == [False, False, True]
    assert not out.truncated.any()
    assert_head_of(out, walk, {"desired_goal"})


def test_the_trajectory_is_cut_at_the_first_success():
    walk = line(0.0, 1.0, 2.8, 5.0, 3.0)
    out = relabel("hindsight", walk, threshold=0.5, success_reward=2.0, failure_reward=-0.5)
    np.testing.assert_array_equal(out.rewards, [-0.5, 2.0])
    assert out.terminated.tolist() == [False, True]
    assert not out.truncated.any()
    np.testing.assert_array_equal(out.obs["desired_goal"], [[3.0]] * 3)
    np.testing.assert_array_equal(out.action_mask, np.eye(3, dtype=bool))
    assert_head_of(out, walk, {"desired_goal"})


def test_success_at_the_first_input_does_not_count():
    walk = line(3.0, 1.0, 2.0, 3.0)
    np.testing.assert_array_equal(relabel("hindsight", walk).rewards, [-1.0, -1.0, 0.0])
    still = relabel("hindsight", line(3.0, 3.0, 3.0))
    np.testing.assert_array_equal(still.rewards, [0.0])
    np.testing.assert_array_equal(still.terminated, [True])


@pytest.mark.parametrize("end", ["terminated", "truncated", "neither"])
def test_without_terminate_the_ends_stay(end):
    walk = line(0.0, 3.0, 2.0, 3.0, end=end)
    out = relabel("hindsight", walk, terminate=False)
    np.testing.assert_array_equal(out.rewards, [0.0, -1.0, 0.0])
    assert_ends(out, walk, terminate=False)
    assert_head_of(out, walk, {"desired_goal"})


def test_distance_is_euclidean_over_the_flattened_goal_and_the_threshold_is_reached():
    achieved = np.zeros((4, 2, 2))
    achieved[1, 0] = [3.0, 3.9]  # at 4.92 from zero
    achieved[2, 1] = [3.0, 4.0]  # at 5 from zero
    walk = with_goal(achieved, np.ones((2, 2)))
    assert len(relabel("hindsight", walk, threshold=4.9)) == 3
    assert len(relabel("hindsight", walk, threshold=4.93)) == 1
    achieved[1, 1] = [2.0, 0.0]
    assert len(relabel("hindsight", walk, threshold=5.0)) == 2
    assert len(relabel("hindsight", walk, threshold=4.99)) == 3


def test_future_goals_are_uniform_over_the_later_inputs():
    walk = line(0.0, 1.0, 2.0, 3.0, 4.0)
    rng, hindsight = np.random.default_rng(0), relabeler("hindsight", threshold=0.0, probability=1.0, strategy="future")
    outs = [hindsight.relabel_trajectory(walk, rng) for _ in range(2000)]
    for out in outs:
        goal = int(out.obs["desired_goal"][0, 0])
        assert len(out) == goal
        np.testing.assert_array_equal(out.rewards, [-1.0] * (goal - 1) + [0.0])
    counts = np.bincount([len(out) for out in outs], minlength=5)
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 500) < 100).all()


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_integer_goals_are_compared_exactly(dtype):
    cells = np.array([[0, 0], [0, 1], [1, 1], [1, 0], [1, 1]], dtype)
    out = relabel("hindsight", with_goal(cells, np.array([0, 1], dtype)))
    np.testing.assert_array_equal(out.rewards, [-1.0, 0.0])
    np.testing.assert_array_equal(out.obs["desired_goal"], np.ones((3, 2)))
    assert out.obs["desired_goal"].dtype == dtype


def test_integer_differences_neither_wrap_nor_round():
    bytes_ = with_goal(np.array([9, 0, 4, 255], np.uint8), np.uint8(9))  # 0 - 255 = 1 in bytes
    np.testing.assert_array_equal(relabel("hindsight", bytes_, threshold=3.0).rewards, [-1.0, -1.0, 0.0])
    large = with_goal(np.array([0, 2**60 + 1, 2**60]), np.int64(0))  # equal in float64
    np.testing.assert_array_equal(relabel("hindsight", large).rewards, [-1.0, 0.0])


def test_an_achieved_goal_more_precise_than_the_goal_is_still_reached():
    walk = with_goal(np.array([[0.0], [0.3], [0.1]]), np.zeros(1, np.float32))
    out = relabel("hindsight", walk)
    np.testing.assert_array_equal(out.rewards, [-1.0, 0.0])
    np.testing.assert_array_equal(out.obs["desired_goal"], np.full((3, 1), np.float32(0.1)))


def test_pieces_keep_what_came_before_them():
    piece = line(0.0, 1.0, 2.0, 2.0, start_step=5, prev_action=np.int64(2), prev_reward=-3.0)
    out = relabel("hindsight", piece)
    assert (len(out), out.start_step, out.prev_action, out.prev_reward) == (2, 5, 2, -3.0)
    assert_head_of(out, piece, {"desired_goal"})


@pytest.mark.parametrize("name", ["hindsight", "hindsight_sequence"])
def test_without_a_mask_there_is_none(name):
    walk = line(0.0, 1.0, 0.0, action_mask=None) if name == "hindsight" else route(0, 1, 2, action_mask=None)
    assert relabel(name, walk).action_mask is None


@pytest.mark.parametrize("name", ["hindsight", "hindsight_sequence"])
def test_probability_is_the_share_that_changes(name):
    walk = line(0.0, 1.0, 2.0) if name == "hindsight" else route(0, 1, 2)
    for probability, low, high in [(0.0, 0, 0), (1.0, 1000, 1000), (0.3, 250, 350)]:
        rng, some = np.random.default_rng(1), relabeler(name, threshold=0.0, probability=probability)
        changed = sum(some.relabel_trajectory(walk, rng) is not walk for _ in range(1000))
        assert low <= changed <= high


def test_other_names_of_the_entries():
    obs = {"at": np.arange(3.0), "to": np.zeros(3)}
    walk = line(5.0, 5.0, 5.0, obs=obs)
    out = relabel("hindsight", walk, achieved_key="at", goal_key="to")
    np.testing.assert_array_equal(out.obs["to"], [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(out.rewards, [-1.0, 0.0])
    assert_head_of(out, walk, {"to"})


class Times:
    """A generator that relabels always and draws the given times."""

    def __init__(self, *times):
        self.times = np.array(times)
        self.replace = None

    def random(self):
        return 0.0

    def choice(self, steps, size, replace):
        assert len(self.times) == size
        assert ((self.times >= 1) & (self.times <= steps)).all()
        self.replace = replace
        return self.times - 1


def relabel_route(walk, *times, threshold=0.0, **options):
    drawn = Times(*times)
    out = relabeler("hindsight_sequence", threshold=threshold, **options).relabel_trajectory(walk, drawn)
    return out.check(), drawn


def test_goals_are_what_was_achieved_at_sorted_times():
    walk = route(0, 1, 2, 3, 4, num_goals=2)
    out, drawn = relabel_route(walk, 3, 1)
    np.testing.assert_array_equal(out.obs["desired_goal"], [[[1.0], [3.0]]] * 4)
    np.testing.assert_array_equal(out.rewards, [1.0, 0.0, 1.0])
    assert out.terminated.tolist() == [False, False, True]
    assert not out.truncated.any()
    assert drawn.replace is False
    assert_head_of(out, walk, {"desired_goal"})


def test_goals_count_only_in_their_order():
    walk = route(0, 5, 2, 5, 7)  # the second goal, 5, is passed before the first, 2
    np.testing.assert_array_equal(relabel_route(walk, 2, 3)[0].rewards, [0.0, 1.0, 1.0])
    again = route(0, 1, 2, 1, 2, 9)  # 1 is to be reached twice: the second time as the next goal, in the same step
    np.testing.assert_array_equal(relabel_route(again, 1, 3)[0].rewards, [2.0])


def test_one_step_may_reach_several_goals():
    walk = route(0, 10, 11, 20, 30, num_goals=3)
    out, _ = relabel_route(walk, 1, 2, 4, threshold=1.5, success_reward=3.0, failure_reward=-0.5)
    np.testing.assert_array_equal(out.rewards, [6.0, -0.5, -0.5, 3.0])
    np.testing.assert_array_equal(out.obs["desired_goal"][0], [[10.0], [11.0], [30.0]])


def test_all_goals_in_the_first_step():
    out, _ = relabel_route(route(0, 1, 1, 1, num_goals=3), 1, 2, 3)
    np.testing.assert_array_equal(out.rewards, [3.0])
    np.testing.assert_array_equal(out.terminated, [True])


def test_without_terminate_nothing_is_earned_after_the_last_goal():
    walk = route(0, 1, 2, 1, 2, end="terminated")
    out, _ = relabel_route(walk, 1, 2, terminate=False, failure_reward=-1.0)
    np.testing.assert_array_equal(out.rewards, [1.0, 1.0, -1.0, -1.0])
    assert_ends(out, walk, terminate=False)


def test_more_goals_than_transitions_are_drawn_with_replacement():
    out, drawn = relabel_route(route(0, 1, 2, num_goals=4), 2, 1, 2, 2)
    np.testing.assert_array_equal(out.rewards, [1.0, 3.0])
    np.testing.assert_array_equal(out.obs["desired_goal"][0], [[1.0], [2.0], [2.0], [2.0]])
    assert drawn.replace is True
    for seed in range(20):
        assert relabel("hindsight_sequence", route(0, 1, 2, num_goals=4), seed).total_reward == 4.0


def test_as_many_goals_as_transitions_are_all_inputs_but_the_first():
    for seed in range(20):
        out = relabel("hindsight_sequence", route(0, 1, 2, 3, num_goals=3), seed)
        np.testing.assert_array_equal(out.obs["desired_goal"][0], [[1.0], [2.0], [3.0]])
        np.testing.assert_array_equal(out.rewards, [1.0, 1.0, 1.0])


def test_times_are_uniform_over_the_later_inputs():
    rng, some = np.random.default_rng(0), relabeler("hindsight_sequence", threshold=0.0, probability=1.0)
    walk = route(0, 1, 2, 3, 4)
    pairs = [tuple(some.relabel_trajectory(walk, rng).obs["desired_goal"][0, :, 0].astype(int)) for _ in range(3000)]
    expected = {(a, b) for a in range(1, 5) for b in range(a + 1, 5)}
    assert set(pairs) == expected
    assert all(abs(pairs.count(pair) - 500) < 100 for pair in expected)


@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (-1, 1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("start_step", [0, 6])
def test_progress_counts_the_new_goals_from_zero(shape, dtype, start_step):
    stored = np.array([2, 2, 3, 3, 3], dtype).reshape(shape)
    before = {"start_step": start_step, "prev_action": np.int64(1), "prev_reward": 0.5} if start_step else {}
    walk = route(0, 1, 2, 3, 4, obs={"done": stored}, **before)
    out, _ = relabel_route(walk, 1, 3, progress_key="done")
    np.testing.assert_array_equal(out.obs["done"], np.array([0, 1, 1, 2], dtype).reshape(shape))
    assert_head_of(out, walk, {"desired_goal", "done"})
    whole, _ = relabel_route(walk, 1, 3, progress_key="done", terminate=False)
    np.testing.assert_array_equal(whole.obs["done"].ravel(), [0, 1, 1, 2, 2])


@st.composite
def trajectories(draw, num_goals=None):
    """Trajectories on a small grid, so that goals are met by chance."""
    steps, dims = draw(st.integers(1, 12)), draw(st.integers(1, 2))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.int64, np.uint8]))
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    achieved = rng.integers(0, 4, (steps + 1, dims)).astype(dtype)
    shape = (dims,) if num_goals is None else (num_goals, dims)
    changes = {"end": draw(st.sampled_from(["terminated", "truncated", "neither"]))}
    if draw(st.booleans()):
        changes |= {"start_step": 3, "prev_action": np.int64(2), "prev_reward": 1.5}
    if draw(st.booleans()):
        changes["action_mask"] = None
    obs = {} if num_goals is None else {"progress": np.zeros((steps + 1, 1), np.float32)}
    return with_goal(achieved, rng.integers(0, 4, shape).astype(dtype), obs=obs, **changes)


def play(achieved, goals, threshold, terminate):
    """Goals newly reached by each transition, one by one, until all are reached if that ends it."""
    newly, progress = [], [0]
    for position in achieved[1:]:
        number = progress[-1]
        while number < len(goals) and math.dist(position.tolist(), goals[number].tolist()) <= threshold:
            number += 1
        newly.append(number - progress[-1])
        progress.append(number)
        if terminate and number == len(goals):
            break
    return newly, progress


THRESHOLDS = st.sampled_from([0.0, 1.0, 1.5, 2.0])


@settings(max_examples=150, deadline=None)
@given(trajectories(), THRESHOLDS, st.sampled_from(["final", "future"]), st.booleans(), st.integers(0, 99))
def test_hindsight_on_random_trajectories(walk, threshold, strategy, terminate, seed):
    before = copy.deepcopy(walk)
    options = {"threshold": threshold, "strategy": strategy, "terminate": terminate}
    out = relabel("hindsight", walk, seed, **options)
    assert_same(walk, before)
    assert_head_of(out, walk, {"desired_goal"})
    goal = out.obs["desired_goal"][0]
    assert (out.obs["desired_goal"] == goal).all()
    candidates = walk.obs["achieved_goal"][1 if strategy == "future" else len(walk) :]
    assert (candidates == goal).all(axis=1).any()
    near = [play(np.stack([a, a]), [goal], threshold, True)[0][0] for a in walk.obs["achieved_goal"][1:]]
    end = near.index(1) + 1 if terminate else len(walk)
    np.testing.assert_array_equal(out.rewards, np.array(near[:end], np.float32) - 1)
    assert_ends(out, walk, terminate)
    assert_same(out, relabel("hindsight", walk, seed, **options))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5).flatmap(trajectories), THRESHOLDS, st.booleans(), st.integers(0, 99))
def test_sequences_on_random_trajectories(walk, threshold, terminate, seed):
    before = copy.deepcopy(walk)
    options = {"threshold": threshold, "terminate": terminate, "progress_key": "progress"}
    out = relabel("hindsight_sequence", walk, seed, **options)
    assert_same(walk, before)
    assert_head_of(out, walk, {"desired_goal", "progress"})
    goals = out.obs["desired_goal"][0]
    assert (out.obs["desired_goal"] == goals).all()
    newly, progress = play(walk.obs["achieved_goal"], goals, threshold, terminate)
    assert progress[-1] == len(goals)
    np.testing.assert_array_equal(out.rewards, newly)
    np.testing.assert_array_equal(out.obs["progress"][:, 0], progress)
    assert_ends(out, walk, terminate)
    assert_same(out, relabel("hindsight_sequence", walk, seed, **options))


def test_what_a_store_gives_can_be_relabelled_and_stored_again(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    walk = route(0, 1, 2, 3, 4, num_goals=3)
    box = {k: spaces.Box(-np.inf, np.inf, v.shape[1:], v.dtype.type) for k, v in walk.obs.items()}
    info = StoreInfo(spaces.Dict(box), spaces.Discrete(3))
    with StoreWriter(tmp_path / "stored", info) as writer:
        writer.append(walk)
    out = relabel("hindsight_sequence", Store(tmp_path / "stored").trajectory(0), seed=3)
    with StoreWriter(tmp_path / "again", info) as writer:
        writer.append(out)
    again = Store(tmp_path / "again").trajectory(0)
    np.testing.assert_equal((again.obs, again.rewards.tolist()), (out.obs, out.rewards.tolist()))


ROUTE = route(0, 1, 2, obs={"flat": np.zeros((3, 2), np.float32), "number": np.zeros(3)})


@pytest.mark.parametrize(
    ("name", "walk", "options", "words"),
    [
        ("hindsight", line(0, 1), {"achieved_key": "achieved"}, ["achieved_key 'achieved'", "did you mean"]),
        ("hindsight", line(0, 1), {"goal_key": "x"}, ["goal_key 'x'", "achieved_goal (2, 1) float32", "observation ("]),
        ("hindsight", ROUTE, {}, ["goal_key 'desired_goal'", "(3, 2, 1)", "not (3, 1)", "number (3,) float64"]),
        ("hindsight_sequence", ROUTE, {"achieved_key": "x"}, ["achieved_key 'x'", "flat (3, 2) float32"]),
        ("hindsight_sequence", ROUTE, {"achieved_key": "number"}, ["achieved_key 'number'", "(3,)", "(T + 1, D)"]),
        ("hindsight_sequence", ROUTE, {"achieved_key": "flat"}, ["goal_key 'desired_goal'", "(3, 2, 1)", "(3, K, 2)"]),
        ("hindsight_sequence", ROUTE, {"goal_key": "flat"}, ["goal_key 'flat'", "(3, 2)", "(3, K, 1)"]),
        ("hindsight_sequence", ROUTE, {"progress_key": "x"}, ["progress_key 'x'", "number (3,)"]),
        ("hindsight_sequence", ROUTE, {"progress_key": "flat"}, ["progress_key 'flat'", "(3, 2)", "one element"]),
        ("hindsight_sequence", route(0, 1, num_goals=0), {}, ["goal_key 'desired_goal'", "(2, 0, 1)"]),
    ],
)
@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_errors_name_the_setting_the_entry_and_the_entries(name, walk, options, words, probability):
    with pytest.raises(DataError) as caught:
        relabel(name, walk, probability=probability, **options)
    for word in [f"{name}: ", *words]:
        assert word in str(caught.value)


def test_an_integer_goal_that_cannot_hold_what_was_achieved():
    walk = with_goal(np.array([0.0, 1.0, 1.5]), np.int64(3))
    with pytest.raises(DataError, match="goal_key 'desired_goal' cannot hold the new values, which are float64"):
        relabel("hindsight", walk)
    assert relabel("hindsight", with_goal(np.array([0.0, 1.0, 2.0]), np.int64(3))).obs["desired_goal"][0] == 2


def test_the_wrong_kind_of_material_is_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(NotImplementedError, match="Hindsight does not relabel windows"):
        relabeler("hindsight", threshold=0.0).relabel_window({}, rng)
    with pytest.raises(NotImplementedError, match="ScaleRewards does not relabel trajectories"):
        relabeler("scale_rewards").relabel_trajectory(line(0, 1), rng)
    needs = {name: RELABELERS.get(name).needs for name in RELABELERS.names()}
    assert needs == {"scale_rewards": "window", "hindsight": "trajectory", "hindsight_sequence": "trajectory"}
    assert all(issubclass(RELABELERS.get(name), Relabeler) for name in needs)


@pytest.mark.parametrize(
    ("section", "values", "words"),
    [
        (ScaleRewardsSection, {"clip_low": 1.0, "clip_high": -1.0}, "clip_low 1.0 must be below clip_high -1.0"),
        (HindsightSection, {}, "threshold  is required"),
        (HindsightSection, {"threshold": -1.0}, "must be >= 0"),
        (HindsightSection, {"threshold": 1.0, "probability": 1.5}, "must be <= 1"),
        (HindsightSection, {"threshold": 1.0, "goal_key": "achieved_goal"}, "must differ"),
        (HindsightSequenceSection, {"threshold": 1.0, "progress_key": "desired_goal"}, "progress_key 'desired_goal'"),
    ],
)
def test_sections_refuse_what_makes_no_sense(section, values, words):
    with pytest.raises(ConfigError, match=words):
        build_section(section, values, "here")
