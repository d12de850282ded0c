"""A replay says what came out otherwise, and when; stored images are drawn as what they are."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError, EnvError
from seqrl.core.types import Trajectory
from seqrl.data.store import Store, StoreWriter
from seqrl.data.store_info import StoreInfo
from seqrl.rollout.playback import check_image_keys, draw_stored, image_keys, replay

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Walk(gym.Env):
    """Adds actions, scaled to [-2, 2], to a start that the seed decides; ends after so many steps."""

    def __init__(self, steps=5, render_mode=None):
        self.observation_space = spaces.Dict({"at": spaces.Box(-99, 99, (2,), np.float32)})
        self.action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.steps, self.render_mode = steps, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = self.np_random.normal(size=2).astype(np.float32), 0
        return {"at": self.at.copy()}, {}

    def step(self, action):
        self.at, self.time = self.at + np.asarray(action, np.float32), self.time + 1
        return {"at": self.at.copy()}, float(self.at[0]), self.time == self.steps, False, {}

    def render(self):
        return None if self.render_mode is None else np.full((6, 7, 3), 10 * self.time, np.uint8)


def recorded(seed=0, steps=5, scale=1.0):
    """Return the dataset's info and an episode of random actions."""
    env = Walk(steps)
    rng = np.random.default_rng(1)
    actions = rng.uniform(-1, 1, (steps, 2)).astype(np.float32) * scale
    obs, rewards = [env.reset(seed=seed)[0]["at"]], []
    for action in actions:
        seen, reward, *_ = env.step(action)
        obs.append(seen["at"])
        rewards.append(reward)
    ends = np.arange(steps) == steps - 1
    trajectory = Trajectory({"at": np.stack(obs)}, actions, np.float32(rewards), ends, np.zeros(steps, bool))
    return StoreInfo(env.observation_space, env.action_space), trajectory


def test_the_same_start_and_actions_give_what_is_stored():
    info, trajectory = recorded(seed=3)
    result = replay(Walk(), info, trajectory, "demo_0", seed=3)
    assert result.is_as_stored
    assert (result.num_steps, result.first_step, result.largest, result.reward) == (5, None, 0.0, 0.0)
    assert result.text() == "demo_0  5 steps  observations as stored (largest difference 0)"


def test_the_first_difference_and_the_largest_are_told():
    info, trajectory = recorded()
    trajectory.obs["at"][2, 1] += 0.5
    trajectory.obs["at"][4, 0] -= 3.0
    trajectory.rewards[1] += 0.25
    result = replay(Walk(), info, trajectory, "d", seed=0)
    assert (result.first_step, result.largest_step, result.largest_key) == (2, 4, "at")
    assert result.largest == pytest.approx(3.0, abs=1e-5)
    assert result.reward == pytest.approx(0.25, abs=1e-5)
    assert not result.is_as_stored
    assert "differ from step 2 on; at most by 3 (at, step 4); rewards by up to 0.25" in result.text()


def test_another_start_differs_from_the_first_input_on():
    info, trajectory = recorded(seed=0)
    assert replay(Walk(), info, trajectory, "d", seed=1).first_step == 0
    only = replay(Walk(), info, trajectory, "d", seed=1, only_first=True)
    assert (only.num_steps, only.num_stored, only.first_step) == (0, 0, 0)


def test_an_environment_that_ends_early_is_told():
    info, trajectory = recorded(steps=5)
    result = replay(Walk(3), info, trajectory, "d", seed=0)
    assert (result.num_steps, result.num_stored) == (3, 5)
    assert not result.is_as_stored
    assert "3 of 5 steps (the environment ended there)" in result.text()


def test_an_environment_that_fails_is_told_with_the_step(monkeypatch):
    info, trajectory = recorded()
    env = Walk()
    monkeypatch.setattr(env, "step", lambda action: 1 / 0)
    with pytest.raises(EnvError, match=r"^d, step 1: the environment fails: .*division by zero"):
        replay(env, info, trajectory, "d", seed=0)
    monkeypatch.setattr(env, "step", lambda action: (None, 0.0, False, {}))
    with pytest.raises(EnvError, match=r"^d, step 1: the environment fails: step returned 4 values"):
        replay(env, info, trajectory, "d", seed=0)
    monkeypatch.setattr(env, "reset", lambda **options: 1 / 0)
    with pytest.raises(EnvError, match=r"^d, reset: the environment fails"):
        replay(env, info, trajectory, "d", seed=0)


def test_a_repeated_last_observation_is_not_compared():
    info, trajectory = recorded()
    trajectory.obs["at"][-1] = trajectory.obs["at"][-2]
    assert replay(Walk(), info, trajectory, "d", seed=0).first_step == 5
    assert replay(Walk(), replace(info, has_next_obs=False), trajectory, "d", seed=0).is_as_stored


def test_actions_of_unknown_space_are_scaled_to_the_environment():
    info, trajectory = recorded(scale=2.0)
    unknown = replace(info, action_space=BOX, spaces_are_known=False)
    halved = replace(trajectory, actions=trajectory.actions / 2)
    assert replay(Walk(), unknown, halved, "d", seed=0).is_as_stored
    with pytest.raises(EnvError, match="takes Box"):
        replay(Walk(), replace(info, action_space=BOX), halved, "d", seed=0)
    with pytest.raises(EnvError, match="actions are like Discrete"):
        replay(Walk(), replace(unknown, action_space=spaces.Discrete(2)), halved, "d", seed=0)


def test_frames_are_those_of_every_nth_step_and_of_the_end():
    info, trajectory = recorded()
    pictures = []
    replay(Walk(render_mode="rgb_array"), info, trajectory, "d", seed=0, on_picture=pictures.append, every=2)
    assert [int(p[0, 0, 0]) for p in pictures] == [0, 20, 40, 50]
    with pytest.raises(EnvError, match="renders nothing"):
        replay(Walk(), info, trajectory, "d", seed=0, on_picture=pictures.append)


def test_a_later_piece_of_an_episode_cannot_be_replayed():
    info, trajectory = recorded()
    with pytest.raises(DataError, match="begins at step 7"):
        replay(Walk(), info, replace(trajectory, start_step=7), "d", seed=0)


# ------------------------------------------------------------------------------------ stored images
def images(steps=3):
    grow = np.arange(steps + 1).reshape(-1, 1, 1)
    return {
        "camera": np.broadcast_to((40 * grow)[..., None], (steps + 1, 4, 5, 3)).astype(np.uint8),
        "chw": np.broadcast_to((10 * grow)[:, None], (steps + 1, 3, 4, 5)).astype(np.uint8),
        "depth": np.broadcast_to(2.0 + grow, (steps + 1, 4, 5)).astype(np.float32),
        "state": np.zeros((steps + 1, 7), np.float32),
    }


def test_only_images_can_be_drawn(tmp_path):
    obs = images()
    space = spaces.Dict({k: spaces.Box(0, 255, v.shape[1:], v.dtype.type) for k, v in obs.items()})
    trajectory = Trajectory(obs, np.zeros(3, np.int64), np.zeros(3, np.float32), np.zeros(3, bool), np.zeros(3, bool))
    with StoreWriter(tmp_path / "s", StoreInfo(space, spaces.Discrete(2))) as writer:
        writer.append(trajectory)
    store = Store(tmp_path / "s")
    assert sorted(image_keys(store)) == ["camera", "chw", "depth"]
    check_image_keys(store, ["camera", "depth"], "s")
    with pytest.raises(DataError, match=r"s: no observation 'camra'; did you mean 'camera'\?; image-like entries: cam"):
        check_image_keys(store, ["camra"], "s")
    with pytest.raises(DataError, match=r"'state' has shape \(7,\) and is no image; image-like entries: camera, chw"):
        check_image_keys(store, ["state"], "s")


def test_stored_images_are_drawn_and_depth_is_scaled_over_the_episode():
    trajectory = Trajectory(
        images(), np.zeros(3, np.int64), np.ones(3, np.float32), np.zeros(3, bool), np.zeros(3, bool)
    )

    def drawn(key, **options):
        pictures = []
        draw_stored(trajectory, "demo_0", [key], pictures.append, **options)
        return [int(p[0, 0, 0]) for p in pictures]

    assert drawn("camera") == [0, 40, 80, 120]
    assert drawn("chw", every=2) == [0, 20]
    assert drawn("depth") == [0, 85, 170, 255]
    assert drawn("camera", only_first=True) == [0]
    both = []
    draw_stored(trajectory, "demo_0", ["camera", "depth"], both.append)
    assert both[0].shape[1] > 2 * 240


def test_large_rewards_are_compared_by_their_size():
    class Far(Walk):
        def step(self, action):
            obs, reward, *ends = super().step(action)
            return obs, 1234.5678 * reward - 9876.54321, *ends

    info, trajectory = recorded()
    trajectory.rewards[:] = 1234.5678 * trajectory.rewards.astype(np.float64) - 9876.54321
    assert replay(Far(), info, trajectory, "d", seed=0).is_as_stored
    trajectory.rewards[2] += 1
    result = replay(Far(), info, trajectory, "d", seed=0)
    assert not result.is_as_stored
    assert result.reward == pytest.approx(1, abs=0.01)
