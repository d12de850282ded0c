"""A trajectory's check finds every fault, and lists all of them."""

import numpy as np
import pytest

from seqrl.core.errors import DataError
from seqrl.core.types import TimeStep, Trajectory


def trajectory(steps=3, **changes):
    values = {
        "obs": {"x": np.zeros((steps + 1, 2), np.float32), "image": np.zeros((steps + 1, 2, 2, 3), np.uint8)},
        "actions": np.zeros((steps, 2), np.float32),
        "rewards": np.arange(steps, dtype=np.float32),
        "terminated": np.zeros(steps, bool),
        "truncated": np.zeros(steps, bool),
        "env_name": "Maze-v0",
    }
    return Trajectory(**{**values, **changes})


def flags(*values):
    return np.array(values, bool)


def test_good_trajectory_is_returned_as_it_is():
    good = trajectory(
        terminated=flags(0, 0, 1),
        goal={"g": np.zeros((4, 1), np.float32)},
        action_mask=np.ones((4, 2), bool),
        prev_action=np.ones(2, np.float32),
        prev_reward=1.5,
        start_step=7,
    )
    assert good.check() is good
    assert len(good) == 3
    assert good.total_reward == 3.0


def test_total_reward_is_summed_in_double_precision():
    rewards = np.full(1000, 0.1, np.float32)
    expected = sum(float(r) for r in rewards)
    total = trajectory(1000, rewards=rewards).total_reward
    assert abs(total - expected) < 1e-9


def test_discrete_actions_and_terminal_action_mask_are_legal():
    mask = np.ones((4, 2), bool)
    mask[-1] = False
    legal = trajectory(actions=np.array([0, 1, 0]), action_mask=mask, terminated=flags(0, 0, 1))
    assert legal.check() is legal


NAN_OBS = np.zeros((4, 2), np.float32)
NAN_OBS[2, 1] = np.nan

FAULTS = {
    "no transition": (
        {
            "obs": {"x": np.zeros((1, 2))},
            "actions": np.zeros((0, 2)),
            "rewards": np.zeros(0, np.float32),
            "terminated": flags(),
            "truncated": flags(),
        },
        "no transition",
    ),
    "obs too short": ({"obs": {"x": np.zeros((3, 2))}}, "obs/x has 3 rows, not 4"),
    "obs too long": ({"obs": {"x": np.zeros((5, 2))}}, "obs/x has 5 rows, not 4"),
    "goal too short": ({"goal": {"g": np.zeros((3, 1))}}, "goal/g has 3 rows, not 4"),
    "mask too short": ({"action_mask": np.ones((3, 2), bool)}, "action_mask has 3 rows, not 4"),
    "actions too long": ({"actions": np.zeros((4, 2))}, "actions has 4 rows, not 3"),
    "terminated too short": ({"terminated": flags(0, 0)}, "terminated has 2 rows, not 3"),
    "truncated too long": ({"truncated": flags(0, 0, 0, 0)}, "truncated has 4 rows, not 3"),
    "terminated not bool": ({"terminated": np.zeros(3, np.float32)}, "terminated is float32, not bool"),
    "truncated not bool": ({"truncated": np.zeros(3, np.int64)}, "truncated is int64, not bool"),
    "terminated not flat": ({"terminated": np.zeros((3, 1), bool)}, "terminated"),
    "rewards not flat": ({"rewards": np.zeros((3, 1), np.float32)}, "rewards"),
    "nan in obs": ({"obs": {"x": NAN_OBS}}, "obs/x has a non-finite value at step 2"),
    "nan in rewards": ({"rewards": np.array([0, np.nan, 0], np.float32)}, "rewards has a non-finite value at step 1"),
    "infinite action": (
        {"actions": np.array([[0, 0], [0, 0], [np.inf, 0]])},
        "actions has a non-finite value at step 2",
    ),
    "nan in goal": ({"goal": {"g": NAN_OBS}}, "goal/g has a non-finite value at step 2"),
    "nan in prev_action": ({"prev_action": np.array([np.nan, 0])}, "prev_action"),
    "nan in prev_reward": ({"prev_reward": float("nan")}, "prev_reward"),
    "prev_action of another shape": ({"prev_action": np.zeros(3)}, "prev_action"),
    "negative start": ({"start_step": -1}, "start_step"),
    "goes on after terminated": ({"terminated": flags(0, 1, 0)}, "continues after its end at step 1"),
    "goes on after truncated": ({"truncated": flags(1, 0, 0)}, "continues after its end at step 0"),
    "mask not bool": ({"action_mask": np.ones((4, 2))}, "action_mask"),
    "objects in obs": ({"obs": {"x": np.array([None] * 4)}}, "obs/x"),
    "text in obs": ({"obs": {"x": np.array(["a"] * 4)}}, "obs/x"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_check_finds(name):
    changes, message = FAULTS[name]
    with pytest.raises(DataError, match=message):
        trajectory(**changes).check()


def test_check_lists_every_fault_and_names_the_environment():
    bad = trajectory(
        obs={"x": np.zeros((3, 2))}, actions=np.full((3, 2), np.nan), goal={"g": np.zeros((9, 1))}, env_name="Maze-v0"
    )
    with pytest.raises(DataError) as caught:
        bad.check()
    text = str(caught.value)
    assert "Maze-v0" in text
    assert "obs/x has 3 rows" in text
    assert "goal/g has 9 rows" in text
    assert "actions has a non-finite value at step 0" in text


def test_time_step_is_done_where_either_flag_is_set():
    step = TimeStep(
        obs={},
        final_obs={},
        reward=np.zeros(4, np.float32),
        terminated=flags(0, 1, 0, 1),
        truncated=flags(0, 0, 1, 1),
        is_first=flags(0, 0, 0, 0),
        step=np.zeros(4, np.int64),
        env_name=("a",) * 4,
        success=flags(0, 0, 0, 0),
        success_known=flags(0, 0, 0, 0),
    )
    assert step.done.tolist() == [False, True, True, True]
