"""Every planted fault is named in words, alone; sound environments give no problem."""

import re
import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.envs.check.environment import check_environment, inspect_environment


class Sound(gym.Env):
    """Ten steps of seeded noise; subclasses plant one fault each."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.num = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.num = 0
        return self.obs(), self.info()

    def step(self, action):
        self.num += 1
        return self.obs(), self.reward(), self.num == 10, False, self.info()

    def obs(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def reward(self):
        return float(self.num)

    def info(self):
        return {"success": False}


class ResetAlone(Sound):
    def reset(self, **kwargs):
        return super().reset(**kwargs)[0]


class ResetPairWithoutInfo(Sound):
    def reset(self, **kwargs):
        return super().reset(**kwargs)[0], None


class ResetWithoutSeed(Sound):
    def reset(self):
        return super().reset()


class FourValues(Sound):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class OneValue(Sound):
    def step(self, action):
        return super().step(action)[0]


class WrongShape(Sound):
    def obs(self):
        return super().obs()[: 3 - (self.num == 4)]


class WrongDtype(Sound):
    observation_space = spaces.Box(0, 255, (3,), np.uint8)


class TextObservation(Sound):
    def obs(self):
        return "here"


class WrongBounds(Sound):
    def obs(self):
        return super().obs() + np.float32([0, 0, 3 * (self.num == 5)])


class WrongCategory(Sound):
    observation_space = spaces.Discrete(4, start=1)

    def obs(self):
        return min(self.num, 4)


class MissingKey(Sound):
    observation_space = spaces.Dict({"a": Sound.observation_space, "b": spaces.Dict({"c": spaces.MultiBinary(2)})})

    def obs(self):
        return {"a": super().obs(), "b": {}}


class ShortTuple(Sound):
    observation_space = spaces.Tuple([Sound.observation_space] * 2)

    def obs(self):
        return (super().obs(),)


class NanObservation(Sound):
    def obs(self):
        return np.where([False, self.num == 6, False], np.nan, super().obs()).astype(np.float32)


class InfiniteReward(Sound):
    def reward(self):
        return np.inf if self.num == 7 else 0.0


class ArrayReward(Sound):
    def reward(self):
        return np.zeros(1)


class NoReward(Sound):
    def reward(self):
        return None


class IntegerEnd(Sound):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, int(terminated), truncated, info


class NoneEnd(Sound):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, None, info


class InfoIsNone(Sound):
    def step(self, action):
        return *super().step(action)[:4], None


class TextAction(Sound):
    action_space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Text(2)})


class UnboundedAction(Sound):
    action_space = spaces.Box(-np.inf, np.inf, (2,))


class NoActionSpace(Sound):
    action_space = None


class TextSpace(Sound):
    observation_space = spaces.Text(5)

    def obs(self):
        return "here"


class EmptySpace(Sound):
    observation_space = spaces.Dict({})

    def obs(self):
        return {}


class Unseeded(Sound):
    def obs(self):
        return np.random.uniform(-1, 1, 3).astype(np.float32)  # noqa: NPY002


class UnseededReward(Sound):
    def reward(self):
        return float(np.random.uniform()) if self.num == 3 else 0.0  # noqa: NPY002


class ReusesBuffer(Sound):
    def __init__(self):
        self.buffer = np.zeros(3, np.float32)

    def obs(self):
        self.buffer[:] = super().obs()
        return self.buffer


class ReusesDict(Sound):
    observation_space = spaces.Dict({"n": spaces.Discrete(11)})

    def __init__(self):
        self.dict = {}

    def obs(self):
        self.dict["n"] = self.num
        return self.dict


class Masked(Sound):
    """Sound: action 1 is never legal, nothing is at the end, and a wrong action raises."""

    def info(self):
        return {"success": False, "action_mask": np.array([self.num < 10, 0], np.int8)}

    def step(self, action):
        assert action == 0
        return super().step(action)


class MaskNotAtTheEnd(Masked):
    """Sound, too: nobody acts there."""

    def info(self):
        return super().info() if self.num < 10 else {"success": False}


class MaskStuck(Masked):
    def info(self):
        return {"success": False, "action_mask": np.array([self.num != 3, 0], np.int8)}

    def step(self, action):
        return Sound.step(self, action)


class MaskTooLong(Sound):
    def info(self):
        return {"success": False, "action_mask": np.ones(3, bool)}


class MaskLost(Masked):
    def info(self):
        return super().info() if self.num < 2 else {"success": False}

    def step(self, action):
        return Sound.step(self, action)


class MaskLate(Masked):
    def info(self):
        return super().info() if self.num else {"success": False}

    def step(self, action):
        return Sound.step(self, action)


class MaskInObservation(Masked):
    """Sound, too."""

    observation_space = spaces.Dict({"x": Sound.observation_space, "action_mask": spaces.MultiBinary(2)})

    def obs(self):
        return {"x": super().obs(), "action_mask": Masked.info(self)["action_mask"]}

    def info(self):
        return {"success": True}


class StepRaises(Sound):
    def reward(self):
        return 1 / (8 - self.num)


class ResetRaises(Sound):
    def reset(self, **kwargs):
        raise RuntimeError("no simulator")


class SecondResetRaises(Sound):
    def reset(self, *, seed=None, options=None):
        if seed is None:
            raise RuntimeError("no second")
        return super().reset(seed=seed)


class InitRaises(Sound):
    def __init__(self):
        raise OSError("no display")


class CloseRaises(Sound):
    def close(self):
        raise OSError("no window")


class OnlyOne(Sound):
    number = 0

    def __init__(self):
        OnlyOne.number += 1
        self.mine = OnlyOne.number

    def obs(self):
        assert self.mine == 1, "port is taken"
        return super().obs()


FAULTS = [
    (ResetAlone, r"^At reset, reset returned one ndarray, but has to return \(obs, info\)"),
    (ResetPairWithoutInfo, r"^At reset, reset returned 2 values of which the second is a NoneType"),
    (ResetWithoutSeed, r"^At reset, reset raised TypeError: .*Write `def reset\(self, \*, seed=None, options=None\)`"),
    (FourValues, r"^At step 1, step returned 4 values as in the old gym interface, but has to return 5"),
    (OneValue, r"^At step 1, step returned one ndarray, but has to return 5"),
    (WrongShape, r"^At step 4, observation 'obs' has shape \(2,\), but its space has shape \(3,\)"),
    (WrongDtype, r"^At reset, observation 'obs' has dtype float32, but its space has uint8"),
    (TextObservation, r"^At reset, observation 'obs' has type str, but its space needs numbers of dtype float32"),
    (WrongBounds, r"^At step 5, observation 'obs'\[2\] is [23]\.\d+, but its space allows -1 to 1"),
    (WrongCategory, r"^At reset, observation 'obs' is 0, but its space allows 1 to 4"),
    (MissingKey, r"^At reset, observation 'b' has no entry 'c', but observation_space has"),
    (ShortTuple, r"^At reset, the observation is 1 entries, but its space is a Tuple of 2"),
    (NanObservation, r"^At step 6, observation 'obs'\[1\] is nan, but has to be finite"),
    (InfiniteReward, r"^At step 7, the reward is inf, but has to be finite"),
    (ArrayReward, r"^At step 1, the reward is a ndarray of shape \(1,\), but has to be one number"),
    (NoReward, r"^At step 1, the reward is a NoneType, but has to be one number"),
    (IntegerEnd, r"^At step 1, terminated is 0 of type int, but has to be a bool.*\(Seen 50 times\.\)"),
    (NoneEnd, r"^At step 1, truncated is None of type NoneType, but has to be a bool"),
    (InfoIsNone, r"^At step 1, info is a NoneType, but has to be a dict"),
    (TextAction, r"^Action space Dict.*: b; supported are Discrete"),
    (UnboundedAction, r"^Action space Box.* has no bounds"),
    (NoActionSpace, r"^The environment's action_space is None, not a gymnasium space"),
    (TextSpace, r"^Observation 'obs' has space Text.*; supported are"),
    (EmptySpace, r"^The observation space Dict\(\) has no entry"),
    (Unseeded, r"^At reset, two fresh copies with the same seed \(0\) and the same actions differ in observation"),
    (UnseededReward, r"^At step 3, two fresh copies .* differ in the reward: 0\.\d+ and 0\.\d+\. Draw every"),
    (ReusesBuffer, r"^Observation 'obs' that reset returned was changed by step 1: "),
    (ReusesDict, r"^Observation 'n' that reset returned was changed by step 1: "),
    (MaskStuck, r"^At step 3, the action_mask leaves no legal action: \[0, 0\]"),
    (MaskTooLong, r"^At reset, the mask is wrong: action_mask has shape \(3,\), but Discrete\(2\) needs 2 flags"),
    (MaskLost, r"^An action_mask was given by the first reset but not by step 2"),
    (MaskLate, r"^An action_mask was given by step 1 but not by the first reset"),
    (StepRaises, r"^At step 8, step\([01]\) raised ZeroDivisionError: .* \(test_environment.py, line \d+\)\."),
    (ResetRaises, r"^At reset, reset raised RuntimeError: no simulator \(test_environment.py"),
    (SecondResetRaises, r"^At the reset after step 10, reset raised RuntimeError: no second"),
    (InitRaises, r"^The environment cannot be made: it raised OSError: no display"),
    (CloseRaises, r"^Closing the environment raised OSError: no window"),
    (OnlyOne, r"^A further copy raised AssertionError: port is taken"),
    (dict, r"^Making the environment gave a dict, not a gymnasium\.Env"),
]  # fmt: skip


def texts(make, level="problem", num_steps=50):
    return [f.text for f in check_environment(make, num_steps=num_steps) if f.level == level]


def limited(make, num_steps=30):
    """Return a maker with the wrappers that gymnasium.make puts on."""
    return lambda: gym.wrappers.TimeLimit(gym.wrappers.OrderEnforcing(make()), num_steps)


@pytest.mark.parametrize(("make", "phrase"), FAULTS, ids=[make.__name__ for make, _ in FAULTS])
def test_planted_fault_is_the_only_finding(make, phrase):
    OnlyOne.number = 0
    found = texts(make)
    assert len(found) == 1, found
    assert re.search(phrase, found[0]), found[0]


@pytest.mark.parametrize("make", [Sound, Masked, MaskInObservation, MaskNotAtTheEnd])
def test_sound_environment_gives_nothing(make):
    assert check_environment(make) == []
    assert check_environment(limited(make, 7)) == []


@pytest.mark.parametrize("make", [FourValues, OneValue, ResetAlone])
def test_wrappers_do_not_hide_the_fault(make):
    assert texts(limited(make)) == texts(make)


def test_same_object_twice():
    env = Sound()
    assert "each row needs its own" in texts(lambda: env)[0]


def test_problems_come_before_notes_and_one_run_tells_all():
    class Bad(ArrayReward):
        def info(self):
            return {}

        def obs(self):
            return super().obs() + 5

    found = check_environment(Bad, num_steps=20)
    assert [f.level for f in found] == ["problem", "problem", "note"]


def test_float_rounding_of_a_bound_is_no_fault():
    class Rounded(Sound):
        observation_space = spaces.Box(-0.1, 0.1, (3,), np.float64)

        def obs(self):
            return np.full(3, np.float32(0.1), np.float64)

    assert check_environment(Rounded) == []


class Endless(Sound):
    def step(self, action):
        return *super().step(action)[:2], False, False, {}


def test_note_on_endless_episodes_and_on_success():
    notes = texts(Endless, "note", 40)
    assert notes[0].startswith("No episode ended within 40 steps and no time limit is set")
    assert notes[1].startswith("Success was never reported")
    assert texts(Endless, num_steps=40) == []
    assert len(texts(limited(Endless, 1000), "note")) == 1


def test_note_on_scale_on_casts_and_on_entries_outside_the_space():
    class Odd(Sound):
        observation_space = spaces.Dict({"x": spaces.Box(-np.inf, np.inf, (3,), np.float32)})

        def obs(self):
            return {"x": super().obs().astype(np.float64) + 1e5, "y": 0}

    extra, cast, large = texts(Odd, "note")
    assert "has an entry 'y' that is not in observation_space" in extra
    assert "'x' has dtype float64, but its space has float32" in cast
    assert "'x'[0] is 1" in large
    assert "normalize_inputs" in large
    assert texts(Odd) == []


def test_note_on_a_callable_that_no_worker_can_be_sent():
    lock = threading.Lock()

    def make():
        with lock:
            return Sound()

    assert "cannot be pickled (TypeError" in texts(make, "note")[0]


def test_unsupported_action_space_is_played_all_the_same():
    class Both(TextAction):
        def reward(self):
            return np.nan

    assert len(texts(Both)) == 2


def test_report_counts_episodes():
    report = inspect_environment(Sound, num_steps=25)
    assert (report.num_steps, report.lengths, report.returns) == (25, [10, 10], [55.0, 55.0])
    assert report.codec.dim == 2
    assert report.observations["obs"].shape == (3,)


def test_values_that_cannot_be_looked_at_do_not_stop_the_check():
    class Hostile:
        def __repr__(self):
            raise RuntimeError("no repr")

        __array__ = __len__ = __bool__ = __getattr__ = __repr__

    class All(Sound):
        def step(self, action):
            return (Hostile(),) * 5

    found = texts(All)
    assert len(found) == 5
    assert "terminated is a Hostile of type Hostile" in found[1]
