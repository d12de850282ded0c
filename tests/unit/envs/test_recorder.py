"""Whole episodes, and pieces that know what came before them."""

import itertools

import numpy as np
import pytest

from seqrl.core.types import TimeStep
from seqrl.envs.recorder import Recorder


def _step(time, reward, *, is_first=False, terminated=False, truncated=False, final=None, name="task"):
    """Return a time step of one row whose observation is ``[time, -time]``."""
    obs = {"obs": np.array([[time, -time]], np.float32), "pixels": np.full((1, 2, 2), time % 256, np.uint8)}
    last = obs
    if final is not None:
        last = {"obs": np.array([[final, -final]], np.float32), "pixels": np.full((1, 2, 2), final % 256, np.uint8)}
    flag = lambda x: np.array([x])  # noqa: E731
    return TimeStep(
        obs=obs,
        final_obs=last,
        reward=np.array([reward], np.float32),
        terminated=flag(terminated),
        truncated=flag(truncated),
        is_first=flag(is_first),
        step=np.array([time]),
        env_name=(name,),
        success=flag(False),
        success_known=flag(False),
    )


def _record(max_steps, length, episodes=2, terminated=True):
    """Return the pieces of same-step episodes with action ``100 e + t`` and reward ``e + t / 8``."""
    recorder, pieces = Recorder(max_steps), []
    recorder.start(_step(0, 0.0, is_first=True))
    for e in range(episodes):
        for t in range(length):
            over = t == length - 1
            step = _step(
                0 if over else t + 1,
                e + t / 8,
                is_first=over,
                terminated=over and terminated,
                truncated=over and not terminated,
                final=t + 1 if over else None,
            )
            pieces += recorder.add(np.array([100 * e + t]), step)
    return pieces


def test_whole_episode():
    (first, second) = _record(None, 5)
    for e, trajectory in enumerate((first, second)):
        trajectory.check()
        assert trajectory.obs["obs"].tolist() == [[t, -t] for t in range(6)]
        assert trajectory.obs["pixels"].dtype == np.uint8
        assert trajectory.actions.tolist() == [100 * e + t for t in range(5)]
        assert trajectory.rewards.tolist() == [e + t / 8 for t in range(5)]
        assert trajectory.rewards.dtype == np.float32
        assert trajectory.terminated.tolist() == [False] * 4 + [True]
        assert not trajectory.truncated.any()
        assert trajectory.env_name == "task"


def test_episode_longer_than_any_first_buffer():
    (trajectory,) = _record(None, 300, episodes=1, terminated=False)
    assert trajectory.actions.tolist() == list(range(300))
    assert trajectory.obs["obs"][:, 0].tolist() == list(range(301))
    assert trajectory.truncated.tolist() == [False] * 299 + [True]


@pytest.mark.parametrize("max_steps", [1, 2, 3, 5, 6, 7, 100])
@pytest.mark.parametrize("length", [1, 6, 7])
def test_pieces_joined_are_the_whole(max_steps, length):
    whole = _record(None, length)
    pieces = _record(max_steps, length)
    assert len(pieces) == 2 * -(-length // max_steps)
    per_episode = [pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]]
    for mine, expected in zip(per_episode, whole, strict=True):
        assert all(1 <= len(p.check()) <= max_steps for p in mine)
        for name in ("actions", "rewards", "terminated", "truncated"):
            joined = np.concatenate([getattr(p, name) for p in mine])
            assert np.array_equal(joined, getattr(expected, name))
            assert joined.dtype == getattr(expected, name).dtype
        for key, values in expected.obs.items():
            joined = np.concatenate([mine[0].obs[key][:1], *[p.obs[key][1:] for p in mine]])
            assert np.array_equal(joined, values)
        for before, after in itertools.pairwise(mine):
            assert all(np.array_equal(before.obs[k][-1], after.obs[k][0]) for k in expected.obs)


def test_pieces_carry_what_came_before():
    pieces = _record(2, 5, episodes=2)
    assert [p.start_step for p in pieces] == [0, 2, 4, 0, 2, 4]
    assert [p.prev_reward for p in pieces] == [0.0, 1 / 8, 3 / 8, 0.0, 1 + 1 / 8, 1 + 3 / 8]
    assert [None if p.prev_action is None else int(p.prev_action) for p in pieces] == [None, 1, 3, None, 101, 103]


def test_pieces_do_not_share_memory_with_the_recorder():
    pieces = _record(2, 5, episodes=1)
    before = [p.obs["obs"].copy() for p in pieces]
    pieces[0].obs["obs"][:] = -7
    assert np.array_equal(pieces[1].obs["obs"], before[1])


def test_next_step_row_ignores_the_action_that_resets_it():
    """The row ends, then answers ``is_first`` to an action that leads nowhere."""
    recorder = Recorder()
    recorder.start(_step(0, 0.0, is_first=True))
    assert recorder.add(np.array([1]), _step(1, 0.5)) == []
    (first,) = recorder.add(np.array([2]), _step(2, 1.5, terminated=True))
    assert recorder.add(np.array([999]), _step(0, 0.0, is_first=True)) == []
    (second,) = recorder.add(np.array([3]), _step(1, 2.5, truncated=True))
    assert (first.actions.tolist(), first.rewards.tolist()) == ([1, 2], [0.5, 1.5])
    assert (second.actions.tolist(), second.rewards.tolist()) == ([3], [2.5])
    assert second.obs["obs"][:, 0].tolist() == [0, 1]


def test_start_drops_what_was_unfinished():
    recorder = Recorder(max_steps=2)
    recorder.start(_step(0, 0.0, is_first=True))
    for t in range(3):
        recorder.add(np.array([t]), _step(t + 1, 9.0))
    recorder.start(_step(0, 0.0, is_first=True))
    (trajectory,) = recorder.add(np.array([7]), _step(1, 1.0, terminated=True))
    assert (trajectory.actions.tolist(), trajectory.rewards.tolist()) == ([7], [1.0])
    assert (trajectory.start_step, trajectory.prev_action, trajectory.prev_reward) == (0, None, 0.0)


def test_name_is_that_of_the_episode():
    recorder = Recorder()
    recorder.start(_step(0, 0.0, is_first=True, name="a"))
    (trajectory,) = recorder.add(np.array([0]), _step(1, 0.0, terminated=True, name="a"))
    assert trajectory.env_name == "a"


def _rows_step(time, reward, *, is_first, truncated, fault=None):
    """Return a time step of as many rows as there are flags, all at the same time."""
    num = len(is_first)
    no = np.zeros(num, bool)
    obs = {"obs": np.repeat(np.float32(time), num)[:, None]}
    return TimeStep(
        obs=obs,
        final_obs=obs,
        reward=np.full(num, reward, np.float32),
        terminated=no,
        truncated=np.array(truncated, bool),
        is_first=np.array(is_first, bool),
        step=np.full(num, time),
        env_name=("task",) * num,
        success=no,
        success_known=no,
        fault=None if fault is None else np.array(fault, bool),
    )


def _endless(recorder, num_rows, steps, restarted=-1):
    """Play rows that never end, but for one that does every 90 steps; return ``(row, time, trajectory)``."""
    none = [False] * num_rows
    recorder.start(_rows_step(0, 0.0, is_first=[True] * num_rows, truncated=none))
    found = []
    for t in range(1, steps + 1):
        over = [t % 90 == 0 and row == restarted for row in range(num_rows)]
        step = _rows_step(t, t, is_first=over, truncated=over)
        found += [(row, t, piece) for row, piece in recorder.add_by_row(np.full(num_rows, t), step)]
    return found


@pytest.mark.parametrize("restarted", [0, 1])
def test_buffers_keep_the_row_that_began_first(restarted):
    """One row ends again and again, the other has not ended when the buffers are full."""
    recorder = Recorder()
    _endless(recorder, 2, 1000, restarted)
    whole = recorder.cut()[1 - restarted]
    assert whole.actions.tolist() == list(range(1, 1001))
    assert whole.obs["obs"][:, 0].tolist() == list(range(1001))


@pytest.mark.parametrize(("is_staggered", "first"), [(True, [3, 5, 8, 10]), (False, [10, 10, 10, 10])])
def test_only_the_first_piece_is_staggered(is_staggered, first):
    """Of row ``e`` it is ``(e + 1) / 4`` of 10 steps, rounded up; all others are of 10."""
    found = _endless(Recorder(10, is_staggered=is_staggered), 4, 35)
    for row in range(4):
        times = [time for r, time, _ in found if r == row]
        assert times == list(range(first[row], 36, 10))
        assert [len(piece) for r, _, piece in found if r == row] == [first[row]] + [10] * (len(times) - 1)


def test_fault_of_a_row_that_has_ended_adds_nothing():
    """A next-step row ended, and failed in place of its reset: its episode is already out."""
    recorder, none = Recorder(), [False] * 2
    recorder.start(_rows_step(0, 0.0, is_first=[True] * 2, truncated=none))
    recorder.add(np.ones(2), _rows_step(1, 1.0, is_first=none, truncated=none))
    (ended,) = recorder.add(np.full(2, 2), _rows_step(2, 2.0, is_first=none, truncated=[True, False]))
    everyone = [True] * 2
    ((row, cut),) = recorder.add_by_row(
        np.full(2, 3), _rows_step(0, 0.0, is_first=everyone, truncated=everyone, fault=everyone)
    )
    assert (row, ended.actions.tolist(), cut.actions.tolist()) == (1, [1, 2], [1, 2])
    assert cut.truncated.tolist() == [False, False]
