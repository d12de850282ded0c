"""What PushT's demonstrator knows of the block: its outline, how it gives way to a push, and ways round it."""

import itertools

import numpy as np
import pytest

from seqrl.envs.suites import pusht_expert as expert

POSE = np.array([200.0, 280.0, 0.7])


def test_distances_from_the_outline():
    points = np.array(
        [[0.0, 10.0], [0.0, 100.0], [0.0, -20.0], [70.0, 15.0], [25.0, 80.0], [-63.0, -4.0], [20.0, 36.0]]
    )
    assert expert.distance_to_block(points) == pytest.approx([0, 0, 20, 10, 10, 5, 5])


def test_a_push_through_the_centre_moves_and_does_not_turn():
    """The bar's top edge, right above the centre of mass, is pushed 4 pixels deep."""
    turn = POSE[2]
    pusher = POSE[:2] + expert.turned(np.array([[0.0, -11.0]]), np.array([turn]))[0]
    moved = expert.separated(pusher[None], POSE[None])[0]
    np.testing.assert_allclose(moved[:2] - POSE[:2], 4.0 * np.array([-np.sin(turn), np.cos(turn)]), atol=1e-9)
    assert moved[2] == pytest.approx(turn)


def test_a_push_at_a_lever_moves_the_point_of_contact_by_its_depth():
    """4 pixels deep at the end of the bar: half of them, or any share, may come from turning."""
    pusher = expert.turned(np.array([[55.0, -11.0]]), np.zeros(1))
    moved = expert.separated(pusher, np.zeros((1, 3)))[0]
    assert moved[2] > 0.01
    contact = expert.turned(np.array([[55.0, 0.0]]), moved[2:])[0] + moved[:2]
    assert contact[1] == pytest.approx(4.0, abs=0.15)  # to first order in the angle
    share = 1.0 / (1.0 + 55.0**2 / expert.INERTIA)
    centre = expert.turned(expert.CENTRE[None], moved[2:])[0] + moved[:2]
    assert centre[1] - expert.CENTRE[1] == pytest.approx(4.0 * share)


def test_a_pusher_beside_the_block_moves_nothing():
    away = POSE[:2] + expert.turned(np.array([[0.0, -15.0]]), POSE[2:])[0]
    np.testing.assert_array_equal(expert.separated(away[None], POSE[None])[0], POSE)


def test_ways_round_the_block_do_not_touch_it_and_differ():
    """From above the bar to below the stem."""
    begin, end = (POSE[:2] + expert.turned(np.array([p]), POSE[2:])[0] for p in ([0.0, -40.0], [0.0, 160.0]))
    lengths = set()
    for seed in range(8):
        way = np.array([begin, *expert.way_round(begin, end, POSE, np.random.default_rng(seed))])
        np.testing.assert_array_equal(way[-1], end)
        between = np.concatenate([np.linspace(a, b, 30) for a, b in itertools.pairwise(way)])
        assert expert.distance_to_block(expert.to_frame(between, POSE[None])).min() > expert.PUSHER_RADIUS
        local = expert.to_frame(between, POSE[None])
        lengths.add(bool(local[np.abs(local[:, 1] - 60).argmin(), 0] > 0))
    assert lengths == {True, False}  # on the left and on the right


def test_the_push_that_is_chosen_helps():
    rng = np.random.default_rng(0)
    push = expert.choose_push(np.array([400.0, 100.0]), POSE, rng)
    way = push.end - push.begin
    after = expert.pushed(push.begin[None], way[None] / np.linalg.norm(way), POSE)
    assert after.min() < 0.8 * expert.distance_to_goal(POSE[None])[0]


def test_the_same_first_observation_gives_the_same_episode():
    states = np.random.default_rng(1).uniform(100, 300, (20, 5))
    played = []
    for first in (0, 0, 1):
        policy = expert.PushTExpert()
        policy.reset()
        played.append([policy(state) for state in (states[first], *states[2:])])
    np.testing.assert_array_equal(played[0], played[1])
    assert any((a != b).any() for a, b in zip(played[0], played[2], strict=True))


def test_it_stands_still_before_a_push_for_a_time_that_is_drawn():
    waits = set()
    for number in range(12):
        state = np.array([100.0 + number, 100.0, *POSE])
        policy = expert.PushTExpert()
        policy.reset()
        played = [policy(state) for _ in range(30)]
        still = [bool((action == state[:2].astype(np.float32)).all()) for action in played]
        waits.add(still.index(False))
        assert not any(still[still.index(False) :])
    assert waits <= set(range(*expert.PAUSES))
    assert len(waits) > 4


def test_the_side_is_drawn_even_if_the_other_way_is_much_shorter():
    """From the left of the stem's end to its right: above the bar is a long way."""
    begin, end = (POSE[:2] + expert.turned(np.array([p]), POSE[2:])[0] for p in ([-50.0, 100.0], [50.0, 100.0]))
    is_above = []
    for seed in range(40):
        way = np.array([begin, *expert.way_round(begin, end, POSE, np.random.default_rng(seed))])
        between = np.concatenate([np.linspace(a, b, 30) for a, b in itertools.pairwise(way)])
        is_above.append((expert.to_frame(between, POSE[None])[:, 1] < 0).any())
    assert 10 <= sum(is_above) <= 30
