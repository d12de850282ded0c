"""A small checkpoint, and ways to spoil it."""

import hashlib
import json
import pickle

import numpy as np
import torch
from gymnasium import spaces

from seqrl.algo import algo_factory
from seqrl.algo.checkpoint import (
    TrainingState,
    policy_from_checkpoint,
    read_checkpoint,
)
from seqrl.configs import config_factory

OBSERVATIONS, ACTIONS = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Discrete(4)
TINY_ENCODER = {"type": "mlp", "num_layers": 1, "d_hidden": 8, "d_output": 8}
FILES = [
    "config.json",
    "spaces.json",
    "model.safetensors",
    "training_state/state.json",
    "training_state/optimizer.safetensors",
]


def small_config(**values):
    small = {
        "observation": {"timestep_encoder": TINY_ENCODER},
        "train": {"window_steps": 4},
        "algo": {
            "sequence_encoder": {"type": "transformer", "d_model": 8, "num_heads": 2, "d_ff": 16, "num_layers": 1},
            "actor": {"num_layers": 1, "d_hidden": 8},
        },
    }
    return config_factory("bc", {**small, **values})


def small_algo(config=None, seed=0):
    torch.manual_seed(seed)
    algo = algo_factory("bc", config or small_config(), {"obs": (3,)}, 4, "cpu", action_space=ACTIONS)
    algo.set_eval()
    return algo


def training_state():
    return TrainingState(
        optimizer={"0.exp_avg": torch.arange(6.0).reshape(2, 3), "0.step": torch.tensor(7.0)},
        values={"epoch": 3, "num_steps": 150, "rng": [1, 2**63, "text"]},
    )


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def bomb(marker, protocol):
    return pickle.dumps(Bomb(marker), protocol=protocol)


def open_card(path):
    """Return the card without the checksum of itself, as one of an earlier version has none."""
    card = json.loads((path / "card.json").read_text())
    card.pop("checksum", None)
    return card


def fix_checksums(path):
    """Do what an attacker would: make the card agree with the files."""
    card = open_card(path)
    for name in card["files"]:
        card["files"][name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    (path / "card.json").write_text(json.dumps(card))


def edit_card(path, **values):
    card = open_card(path)
    card |= values
    (path / "card.json").write_text(json.dumps({k: v for k, v in card.items() if v is not ABSENT}))


ABSENT = object()


def use_everything(path):
    """Read all that a checkpoint holds, as deployment and resuming do."""
    policy_from_checkpoint(path, device="cpu")
    read_checkpoint(path).training_state()
