"""Two tasks whose rewards differ 1,000 times: classified values solve both, regressed ones without PopArt do not.

A hint is shown once; a step later the agent has to repeat it (task 0, reward 1) or to do the opposite (task 1, reward
1,000). The data acts at random. Chance is 0.5; 200 episodes per task, seed 0, CPU, one thread.
"""

import functools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.configs import config_factory
from seqrl.core.seeding import generator
from seqrl.core.types import Trajectory
from seqrl.data import SequenceDataset, Source, Store, StoreInfo, StoreWriter
from seqrl.training.experiment import Experiment

REWARDS = (1.0, 1000.0)


class HintTask(gym.Env):
    """Observation: task, hint (first step only), whether to act now."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, task):
        self.task = task

    def _obs(self):
        return np.array([self.task, self.hint if self.time == 0 else 0, self.time == 1], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.hint = 0, int(self.np_random.integers(2)) * 2 - 1
        return self._obs(), {}

    def step(self, action):
        self.time += 1
        if self.time < 2:
            return self._obs(), 0.0, False, False, {}
        right = (action == 1) == (self.hint > 0) if self.task == 0 else (action == 1) != (self.hint > 0)
        return self._obs(), REWARDS[self.task] * right, True, False, {"success": bool(right)}


def random_data(path):
    info = StoreInfo(HintTask.observation_space, HintTask.action_space)
    rng = generator(0, "data")
    with StoreWriter(path, info) as writer:
        for episode in range(600):
            env = HintTask(episode % 2)
            obs = [env.reset(seed=episode)[0]]
            actions, rewards = rng.integers(0, 2, 2), []
            for action in actions:
                after, reward, *_ = env.step(action)
                obs.append(after)
                rewards.append(reward)
            ends = np.array([False, True])
            writer.append(Trajectory({"obs": np.stack(obs)}, actions, np.float32(rewards), ends, ~ends & ends))
    return Store(path)


def successes(algo, store, folder, **settings):
    """Train on both tasks, and return the success in each."""
    config = config_factory(
        algo,
        {
            "experiment": {
                "output_dir": str(folder),
                "name": algo,
                "evaluation": {"enabled": False},
                "report": {"enabled": False},
                "logging": {"tensorboard": False},
            },
            "train": {"window_steps": 2, "num_epochs": 1, "steps_per_epoch": 800, "seed": 0},
            "observation": {
                "use_prev_action": False,
                "use_prev_reward": False,
                "timestep_encoder": {"type": "mlp", "d_hidden": 64, "d_output": 64},
            },
            "algo": {
                "sequence_encoder": {"type": "gru", "d_hidden": 64, "num_layers": 1, "d_output": 64},
                "actor": {"d_hidden": 64},
                "critic": {"d_hidden": 64},
                "extra_gammas": [],
                "gamma": 0.9,
                "tau": 0.05,
                "online_coeff": 0.0,
                "offline_coeff": 1.0,
                "optimizer": {"learning_rate": 2e-3, "warmup_steps": 50},
                **settings,
            },
        },
    )
    dataset = SequenceDataset([Source(store, np.arange(len(store)))], 2)
    experiment = Experiment(config, dataset=(dataset, None))
    experiment.start()
    experiment.learn()
    makers = [functools.partial(HintTask, task) for task in (0, 1)]
    return [experiment.evaluate_test(maker, episodes=200)[0]["eval/success_mean"] for maker in makers]


@pytest.mark.learning
@pytest.mark.slow
def test_only_classified_values_ignore_the_scale(tmp_path):
    store = random_data(tmp_path / "store")
    classified = successes("multitask", store, tmp_path)
    regressed = successes("actor_critic", store, tmp_path, use_popart=False)
    assert min(classified) >= 0.95, classified
    assert min(regressed) <= 0.75, regressed
