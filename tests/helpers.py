"""Small configs, batches and runs that several test files need."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from seqrl.algo import algo_factory
from seqrl.configs import config_factory
from seqrl.core.spaces import ActionCodec, ObsSpec
from seqrl.core.tensors import SeqBatch, SeqInputs

SMALL_MEMORY = {
    "feedforward": {"d_model": 16, "d_ff": 32},
    "gru": {"d_hidden": 16, "num_layers": 2, "d_output": 16},
    "lstm": {"d_hidden": 16, "num_layers": 2, "d_output": 16},
    "mamba": {"d_model": 16, "d_state": 4, "num_layers": 2},
    "transformer": {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 2},
}
"""Options that make a sequence encoder tiny; an encoder that is not listed is tested at its defaults."""

OBS = {"image": ObsSpec((2, 2), "uint8"), "room": ObsSpec((), "int64", (3,)), "state": ObsSpec((3,))}
IMAGE = {"image": ObsSpec((8, 8, 3), "uint8")}
ENCODER_OBS = {"cnn": IMAGE, "multimodal": {**OBS, **IMAGE}}
"""Observations that a timestep encoder is tested on; one that is not listed is tested on ``OBS``."""

SMALL_IMAGE = {"type": "image", "core": {"type": "gridworld"}, "d_output": 16}
SMALL_ENCODER = {
    "mlp": {"d_hidden": 16, "d_output": 16},
    "cnn": {"core": {"type": "gridworld"}, "d_image": 16, "d_output": 16},
    "multimodal": {"modalities": {"image": SMALL_IMAGE}, "d_hidden": 16, "d_output": 16},
}
"""Options that make a timestep encoder tiny; an encoder that is not listed is tested at its defaults."""

ACTION_SPACES = {
    "discrete": spaces.Discrete(5, start=2),
    "multi_discrete": spaces.MultiDiscrete([3, 2]),
    "multi_binary": spaces.MultiBinary(4),
    "box": spaces.Box(-2.0, 3.0, (2, 2)),
}


def small_config(algo: str = "bc", memory: str = "transformer", window: int = 6, encoder: str = "mlp", **algo_values):
    values = {
        "train": {"window_steps": window, "batch_size": 4},
        "observation": {"timestep_encoder": {"type": encoder, **SMALL_ENCODER.get(encoder, {})}},
        "algo": {
            "sequence_encoder": {"type": memory, **SMALL_MEMORY.get(memory, {})},
            "optimizer": {"learning_rate": 1e-2, "warmup_steps": 2},
            **algo_values,
        },
    }
    return config_factory(algo, values)


def small_algo(
    algo: str = "bc",
    memory: str = "transformer",
    action_space=None,
    window: int = 6,
    seed: int = 0,
    encoder: str = "mlp",
    **values,
):
    torch.manual_seed(seed)
    action_space = action_space or ACTION_SPACES["discrete"]
    config = small_config(algo, memory, window, encoder, **values)
    obs = ENCODER_OBS.get(encoder, OBS)
    return algo_factory(algo, config, obs, ActionCodec(action_space).dim, "cpu", action_space)


def random_obs(rng, specs, *lead: int) -> dict[str, torch.Tensor]:
    """Return random observations ``(*lead, ...)`` in the order of the specs."""

    def draw(spec):
        shape = (*lead, *spec.shape)
        if spec.nvec is not None:
            sizes = spec.nvec[0] if len(set(spec.nvec)) == 1 else np.reshape(spec.nvec, spec.shape)
            return rng.integers(0, sizes, shape)
        if "int" in spec.dtype:
            return rng.integers(0, 256 if spec.dtype == "uint8" else 100, shape, dtype=spec.dtype)
        return rng.normal(size=shape).astype(np.float32)

    return {name: torch.from_numpy(draw(spec)) for name, spec in specs.items()}


def random_batch(action_space, *, num: int = 4, window: int = 6, seed: int = 0, obs=None) -> SeqBatch:
    """Return a batch with padding in some rows, made from actions that the space itself samples."""
    rng = np.random.default_rng(seed)
    action_space.seed(seed)
    codec = ActionCodec(action_space)
    actions = np.array([[action_space.sample() for _ in range(window + 1)] for _ in range(num)])
    prev_action = codec.encode(actions)
    prev_action[:, 0] = 0.0
    real = rng.integers(1, window + 1, num)
    real[0] = window
    prev_reward = rng.normal(size=(num, window + 1)).astype(np.float32)
    prev_reward[:, 0] = 0.0
    inputs = SeqInputs(
        obs=random_obs(rng, obs or OBS, num, window + 1),
        prev_action=torch.from_numpy(prev_action),
        prev_reward=torch.from_numpy(prev_reward),
        step=torch.arange(window + 1).expand(num, -1).clone(),
    )
    last = np.arange(window) == real[:, None] - 1
    return SeqBatch(
        inputs=inputs,
        actions=inputs.prev_action[:, 1:].clone(),
        rewards=inputs.prev_reward[:, 1:].clone(),
        terminated=torch.from_numpy(last & (rng.random((num, 1)) < 0.5)),
        truncated=torch.from_numpy(last & (rng.random((num, 1)) >= 0.5)),
        mask=torch.from_numpy(np.arange(window) < real[:, None]),
    )
