"""Action masks from the environment to the policy and to the store, in every autoreset mode."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from seqrl.core.errors import DataError, EnvError
from seqrl.core.spaces import ActionCodec
from seqrl.core.types import Trajectory
from seqrl.data import Store, StoreInfo, StoreWriter
from seqrl.envs.recorder import Recorder
from seqrl.envs.vector import BatchedEnv

NUM_ACTIONS = 5


def mask_at(start, time):
    """Two legal actions, which move round with time."""
    mask = np.zeros(NUM_ACTIONS, np.int8)
    mask[[(start + time) % NUM_ACTIONS, (start + 2 * time + 1) % NUM_ACTIONS]] = 1
    return mask


class MaskedEnv(gym.Env):
    """Three steps; the observation is (episode, time), the mask a function of both. An illegal action is an error."""

    def __init__(self, source="obs", ends="terminated", number=0):
        counter = spaces.Box(-1, 1000, (2,), np.float32)
        entry = {"action_mask": spaces.MultiBinary(NUM_ACTIONS)} if source == "obs" else {}
        self.observation_space = spaces.Dict({"counter": counter, **entry})
        self.action_space = spaces.Discrete(NUM_ACTIONS, start=2)
        self.source, self.ends = source, ends
        self.episode, self.time, self.number = -1, 0, number

    def _result(self):
        mask = mask_at(self.episode + self.number, self.time)
        if self.time == 3 and self.ends == "terminated":
            mask[:] = 0
        obs = {"counter": np.array([self.episode, self.time], np.float32)}
        return (obs | {"action_mask": mask}, {}) if self.source == "obs" else (obs, {"action_mask": mask})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._result()

    def step(self, action):
        assert mask_at(self.episode + self.number, self.time)[action - 2], "illegal"
        self.time += 1
        obs, info = self._result()
        done = self.time == 3
        return obs, 1.0, done and self.ends == "terminated", done and self.ends == "truncated", info


def vector(source, ends, mode):
    makers = [lambda i=i: MaskedEnv(source, ends, i) for i in range(3)]
    return BatchedEnv(SyncVectorEnv(makers, autoreset_mode=mode))


def legal_actions(rng, mask):
    """Return a random legal action per row, as policy actions."""
    index = np.array([rng.choice(np.flatnonzero(row)) for row in mask])
    return np.eye(NUM_ACTIONS, dtype=np.float32)[index]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("ends", ["terminated", "truncated"])
@pytest.mark.parametrize("source", ["obs", "info"])
def test_masks_reach_policy_and_trajectory(source, ends, mode, tmp_path):
    env, rng, recorder = vector(source, ends, mode), np.random.default_rng(0), Recorder()
    step = env.reset(seed=0)
    recorder.start(step)
    found = []
    for _ in range(14):
        actions = legal_actions(rng, step.action_mask)
        step = env.step(actions)
        found += recorder.add(env.codec.decode(actions), step)
    env.close()
    assert len(found) >= 9
    space = spaces.Discrete(NUM_ACTIONS, start=2)
    with StoreWriter(tmp_path / "s", StoreInfo(env.observation_space, space)) as writer:
        for trajectory in found:
            number = next(
                n for n in range(3)
                if (trajectory.action_mask[0] == mask_at(int(trajectory.obs["counter"][0, 0]) + n, 0)).all()
            )  # fmt: skip
            for t in range(4 if ends == "truncated" else 3):
                expected = mask_at(int(trajectory.obs["counter"][t, 0]) + number, t)
                np.testing.assert_array_equal(trajectory.action_mask[t], expected)
            if ends == "terminated":
                assert not trajectory.action_mask[3].any()
            writer.append(trajectory)
    assert len(Store(tmp_path / "s")) == len(found)


def test_a_mask_that_appears_late_is_refused():
    class Late(MaskedEnv):
        def reset(self, **options):
            return super().reset(**options)[0], {}

    env = BatchedEnv(SyncVectorEnv([lambda: Late("info")], autoreset_mode=AutoresetMode.SAME_STEP))
    step = env.reset()
    assert step.action_mask is None
    with pytest.raises(EnvError, match=r"after a step, but did not after the first reset; .* in all tasks or in none"):
        env.step(legal_actions(np.random.default_rng(0), mask_at(0, 0)[None]))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_mask_that_stops_coming_is_refused(mode):
    class Forgetful(MaskedEnv):
        def step(self, action):
            return *super().step(action)[:4], {}

    env = BatchedEnv(SyncVectorEnv([lambda: Forgetful("info")], autoreset_mode=mode))
    step = env.reset()
    with pytest.raises(EnvError, match=r"was there, but is missing in row 0 \(.*in all tasks or in none"):
        env.step(legal_actions(np.random.default_rng(0), step.action_mask))


def test_a_mask_without_a_legal_action_is_refused():
    class Stuck(MaskedEnv):
        def _result(self):
            obs, _ = super()._result()
            return obs, {"action_mask": np.zeros(NUM_ACTIONS, np.int8)}

    env = BatchedEnv(SyncVectorEnv([lambda: Stuck("info")], autoreset_mode=AutoresetMode.SAME_STEP))
    with pytest.raises(EnvError, match=r"environment 0 leaves no legal action"):
        env.reset()


def test_masks_in_policy_form():
    codec = ActionCodec(spaces.MultiDiscrete([3, 2]))
    legal = codec.legal(np.array([[1, 0, 0, 0, 1], [1, 1, 1, 0, 0]]), 2)
    assert legal.dtype == bool
    assert codec.stuck(legal).tolist() == [False, True]
    assert codec.legal((np.ones(3), np.zeros(2))).tolist() == [True, True, True, False, False]
    grid = ActionCodec(spaces.MultiBinary((2, 2)))
    assert grid.legal(np.ones((3, 2, 2)), 3).shape == (3, 4)
    assert not grid.stuck(np.zeros((3, 4), bool)).any()
    with pytest.raises(DataError, match=r"shape \(4,\), but MultiDiscrete\(\[3 2\]\) needs 5 flags"):
        codec.legal(np.ones((2, 4)), 2)
    with pytest.raises(DataError, match="takes no mask"):
        ActionCodec(spaces.Box(-1, 1, (2,))).legal(np.ones((1, 2)), 1)


def trajectory(actions, mask):
    steps = len(actions)
    return Trajectory(
        obs={"action_mask": np.asarray(mask, np.int8)},
        actions=np.asarray(actions),
        rewards=np.zeros(steps, np.float32),
        terminated=np.zeros(steps, bool),
        truncated=np.arange(steps) == steps - 1,
    )


@pytest.mark.parametrize(
    ("actions", "mask", "message"),
    [
        ([0, 1], [[1, 0], [1, 0], [1, 1]], "action at step 1 is forbidden by its action_mask"),
        ([0, 1], [[1, 1], [0, 0], [1, 1]], "allows no action at input 1, not terminal"),
        ([0, 1], [[1, 1, 1]] * 3, "needs 2 flags"),
    ],
)
def test_the_store_refuses_what_contradicts_its_mask(actions, mask, message, tmp_path):
    info = StoreInfo(spaces.Dict({"action_mask": spaces.MultiBinary(2)}), spaces.Discrete(2))
    with StoreWriter(tmp_path / "s", info) as writer, pytest.raises(DataError, match=message):
        writer.append(trajectory(actions, mask), "demo_3")


def test_a_time_limit_may_come_where_no_action_is_left(tmp_path):
    """Nobody acts there, but values are looked at: all actions count as legal."""
    info = StoreInfo(spaces.Dict({"action_mask": spaces.MultiBinary(2)}), spaces.Discrete(2))
    with StoreWriter(tmp_path / "s", info) as writer:
        writer.append(trajectory([0, 1], [[1, 1], [0, 1], [0, 0]]))
    (stored,) = Store(tmp_path / "s").trajectories()
    assert stored.action_mask.tolist() == [[True, True], [False, True], [True, True]]
