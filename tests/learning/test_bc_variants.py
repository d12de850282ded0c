"""Each variant of behaviour cloning learns a task that its rivals, which differ in one key, cannot.

Seed 0, 100 episodes each, CPU, one thread, seconds each.

- A fork: demonstrators pass an obstacle on the left or on the right. A policy with one mode averages them and collides.
- A push: actions have to undo the velocity, and only positions are seen. A memory-free policy needs two frames.
- Pauses: demonstrators wait before they move. A policy that sees no time, and plans one step, waits for ever.
"""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.configs import config_factory
from seqrl.core.types import Trajectory
from seqrl.data.store import StoreWriter
from seqrl.data.store_info import StoreInfo
from seqrl.training.experiment import Experiment


class Task(gym.Env):
    """One position and one action in [-1, 1]; the subclass moves and judges."""

    observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    num_steps = 10

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.v, self.t = 0.0, 0.0, 0
        self.begin()
        return self.seen(), {}

    def begin(self):
        pass

    def seen(self):
        return np.array([self.x], np.float32)

    def step(self, action):
        ended, success, log = self.move(float(np.asarray(action)[0]))
        self.t += 1
        cut = not ended and self.t == self.num_steps
        info = {"success": success, **log} if ended or cut else {}
        return self.seen(), float(success), ended, cut, info


class Fork(Task):
    """Throw past an obstacle in the middle, at either side of it; one throw, from anywhere."""

    num_steps = 1

    def begin(self):
        self.x = self.np_random.uniform(-1, 1)

    def move(self, action):
        return True, 0.6 <= abs(action) <= 1.0, {"log/right": float(action > 0)}

    def demonstrate(self, rng):
        return rng.choice([-0.8, 0.8]) + rng.normal(0, 0.03)


class Push(Task):
    """Come to rest from a push of unknown speed: the action is added to the velocity."""

    num_steps = 6

    def begin(self):
        self.v = self.np_random.uniform(0.2, 0.8) * self.np_random.choice([-1, 1])
        self.x = self.np_random.uniform(-1, 1)

    def move(self, action):
        self.v += action
        self.x += self.v
        is_over = self.t == self.num_steps - 1
        return is_over, is_over and abs(self.v) < 0.05, {}

    def demonstrate(self, rng):
        return 0.0 if self.t == 0 else -self.v  # the second frame shows the speed


class Pauses(Task):
    """Reach 1 within 25 steps; demonstrators wait six steps at the start."""

    num_steps = 25

    def move(self, action):
        self.x += 0.25 * action if abs(action) > 0.5 else 0.0  # what is pushed sticks
        return self.x >= 1, self.x >= 1, {}

    def demonstrate(self, rng):
        return 0.9 if self.t >= 6 else 0.0


def demonstrations(path, task, num=200):
    rng = np.random.default_rng(0)
    env = task()
    with StoreWriter(path, StoreInfo(env.observation_space, env.action_space)) as writer:
        for episode in range(num):
            obs, actions, rewards, ended, cut = [env.reset(seed=episode)[0]], [], [], False, False
            while not (ended or cut):
                actions.append(np.array([env.demonstrate(rng)], np.float32))
                ob, reward, ended, cut, _ = env.step(actions[-1])
                obs.append(ob)
                rewards.append(reward)
            ends = np.arange(len(actions)) == len(actions) - 1
            writer.append(
                Trajectory(
                    obs={"obs": np.array(obs)},
                    actions=np.array(actions),
                    rewards=np.array(rewards, np.float32),
                    terminated=ends & ended,
                    truncated=ends & cut,
                )
            )


def trained(folder, task, algo, *, deterministic=True, steps=400, memory=None, train=None, **options):
    """Return the metrics of the last evaluation."""
    store = folder / "data"
    if not store.exists():
        demonstrations(store, task)
    values = {
        "experiment": {
            "name": algo,
            "output_dir": str(folder / "runs"),
            "report": {"enabled": False},
            "evaluation": {"episodes": 100, "deterministic": deterministic, "every_n_epochs": 2},
            "logging": {"tensorboard": False},
        },
        "train": {
            "data": [{"path": str(store)}],
            "window_steps": task.num_steps,
            "batch_size": 32,
            "num_epochs": 1,
            "steps_per_epoch": steps,
            "seed": 0,
            **(train or {}),
        },
        "observation": {"timestep_encoder": {"d_hidden": 64, "d_output": 64}},
        "algo": {
            "sequence_encoder": {"type": "feedforward", "d_model": 64, "d_ff": 64, **(memory or {})},
            "actor": {"d_hidden": 64},
            # the rate falls to zero, so that the last step is no matter of chance
            "optimizer": {"learning_rate": 2e-3, "warmup_steps": 50, "schedule": "linear"},
            **options,
        },
    }
    experiment = Experiment(config_factory(algo, values), make_val_env=task, overwrite=True)
    experiment.start()
    return experiment.learn().metrics


ONE_MODE = {
    "l2": ("bc", {"distribution": {"type": "deterministic"}}),
    "gaussian": ("bc", {"distribution": {"type": "gaussian"}}),
    "tanh gaussian": ("bc", {"distribution": {"type": "tanh_gaussian"}}),
}
MANY_MODES = {
    "gmm": ("bc", {"distribution": {"type": "gmm"}}),
    "vae": ("bc_vae", {}),
}


@pytest.mark.slow
@pytest.mark.learning
@pytest.mark.parametrize("name", ["gmm", "vae"])
def test_both_ways_round_an_obstacle_are_learned(name, tmp_path):
    algo, options = MANY_MODES[name]
    greedy = trained(tmp_path, Fork, algo, **options)
    assert greedy["eval/success_mean"] >= 0.95
    drawn = trained(tmp_path, Fork, algo, deterministic=False, **options)
    assert drawn["eval/success_mean"] >= 0.8
    assert 0.25 <= drawn["eval/log/right"] <= 0.75


@pytest.mark.learning
@pytest.mark.parametrize(
    "name", ["gaussian", *(pytest.param(n, marks=pytest.mark.slow) for n in ("l2", "tanh gaussian"))]
)
def test_one_mode_averages_both_ways_and_collides(name, tmp_path):
    algo, options = ONE_MODE[name]
    assert trained(tmp_path, Fork, algo, **options)["eval/success_mean"] <= 0.3


@pytest.mark.learning
@pytest.mark.slow
def test_two_frames_show_a_velocity(tmp_path):
    options = {"distribution": {"type": "deterministic"}, "steps": 800}
    two = trained(tmp_path, Push, "bc", memory={"num_frames": 2}, **options)
    one = trained(tmp_path, Push, "bc", **options)
    assert two["eval/success_mean"] >= 0.95
    assert one["eval/success_mean"] <= 0.5


@pytest.mark.learning
@pytest.mark.slow
def test_chunks_get_over_pauses(tmp_path):
    options = {"distribution": {"type": "deterministic"}}
    chunks = trained(tmp_path, Pauses, "bc", chunk_steps=8, **options)
    single = trained(tmp_path, Pauses, "bc", **options)
    assert chunks["eval/success_mean"] >= 0.95
    assert single["eval/success_mean"] <= 0.05
