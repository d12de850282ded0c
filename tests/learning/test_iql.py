"""Relay: implicit Q-learning joins the good halves of different episodes, unless its memory keeps them apart.

Episodes begin at A or at B and meet in one corridor whose fork leads to a goal or to a dead end. In the data, those
from A always took the dead end, and those from B went either way; evaluation begins at A. The observation tells the
place, so a policy without memory may do at the fork what episodes from B have shown to be good. One that remembers has
never seen anybody who came from A do it. Cloning takes the goal as often as the data does. Seed 0, 200 episodes,
sampled, CPU.
"""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import seqrl
from seqrl.core.types import Trajectory
from seqrl.data.store import StoreInfo, StoreWriter

A, B, CORRIDOR, FORK, GOAL, DEAD_END = range(6)
NUM_PLACES = 6


class Relay(gym.Env[np.ndarray, np.int64]):
    """Three steps to a fork; action 1 leads to the goal, any other to the dead end."""

    observation_space = spaces.Box(0.0, 1.0, (NUM_PLACES,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.place = A
        return self.observe(), {}

    def observe(self):
        return np.eye(NUM_PLACES, dtype=np.float32)[self.place]

    def step(self, action):
        if self.place == FORK:
            self.place = GOAL if action == 1 else DEAD_END
        else:
            self.place = FORK if self.place == CORRIDOR else CORRIDOR
        over = self.place in (GOAL, DEAD_END)
        info = {"success": self.place == GOAL} if over else {}
        return self.observe(), float(self.place == GOAL), over, False, info


def demonstrations(folder, rewards_of_others):
    """Write 300 episodes; ``rewards_of_others`` gives each the reward of another one, which tells nothing."""
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 2, 300)
    turns = np.where(starts == A, 0, rng.integers(0, 2, 300) | (rng.random(300) < 0.5))
    rewards = turns.astype(np.float32)
    if rewards_of_others:
        rewards = rng.permutation(rewards)
    info = StoreInfo(Relay.observation_space, Relay.action_space)
    with StoreWriter(folder, info) as writer:
        for start, turn, reward in zip(starts, turns, rewards, strict=True):
            places = [start, CORRIDOR, FORK, GOAL if turn else DEAD_END]
            writer.append(
                Trajectory(
                    obs={"obs": np.eye(NUM_PLACES, dtype=np.float32)[places]},
                    actions=np.array([rng.integers(2), rng.integers(2), turn]),
                    rewards=np.array([0, 0, reward], np.float32),
                    terminated=np.array([False, False, True]),
                    truncated=np.zeros(3, bool),
                )
            )


def success(tmp_path, algo, memory, rewards_of_others=False, seed=0):
    """Return the share of sampled episodes that reach the goal after training."""
    data = tmp_path / f"data-{rewards_of_others}"
    if not data.exists():
        demonstrations(data, rewards_of_others)
    memories = {
        "feedforward": {"type": "feedforward", "d_model": 32, "d_ff": 64, "num_layers": 1},
        "gru": {"type": "gru", "d_hidden": 32, "num_layers": 1, "d_output": 32},
    }
    own = {"beta": 10.0, "critic": {"d_hidden": 64}, "tau": 0.02} if algo == "iql" else {}
    config = seqrl.config_factory(
        algo,
        {
            "experiment": {
                "output_dir": str(tmp_path / "runs"),
                "name": f"{algo}-{memory}-{rewards_of_others}-{seed}",
                "evaluation": {"episodes": 200, "every_n_epochs": 2, "deterministic": False},
                "report": {"enabled": False},
                "logging": {"tensorboard": False},
            },
            "train": {
                "data": [{"path": str(data)}],
                "window_steps": 4,
                "num_epochs": 1,
                "steps_per_epoch": 400,
                "seed": seed,
            },
            "observation": {
                "use_prev_action": False,
                "use_prev_reward": False,
                "timestep_encoder": {"type": "mlp", "d_hidden": 32, "d_output": 32},
            },
            "algo": {
                "sequence_encoder": memories[memory],
                "actor": {"d_hidden": 64},
                "optimizer": {"learning_rate": 2e-3, "warmup_steps": 20},
                **own,
            },
        },
    )
    experiment = seqrl.Experiment(config, make_val_env=Relay)
    experiment.start()
    return experiment.learn().metrics["eval/success_mean"]


@pytest.mark.learning
def test_a_policy_without_memory_joins_what_one_with_a_memory_keeps_apart(tmp_path):
    assert success(tmp_path, "iql", "feedforward") >= 0.95
    assert success(tmp_path, "iql", "gru") <= 0.05


@pytest.mark.slow
@pytest.mark.learning
def test_without_telling_rewards_it_clones(tmp_path):
    cloned = success(tmp_path, "bc", "feedforward")
    assert 0.2 <= cloned <= 0.6
    assert success(tmp_path, "iql", "feedforward", rewards_of_others=True) <= 0.75
