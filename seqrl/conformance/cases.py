"""Small configs, observations, batches and options, on which components are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from seqrl.algo import ALGOS, Algo, algo_factory
from seqrl.configs import BaseConfig, config_factory
from seqrl.configs.base_config import CONFIGS
from seqrl.core.errors import RegistryError
from seqrl.core.spaces import ActionCodec, ObsSpec
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.data.extras import RETURNS

SMALL_MEMORY: dict[str, dict[str, Any]] = {
    "feedforward": {"d_model": 16, "d_ff": 32},
    "gated_deltanet": {"d_model": 16, "num_heads": 2, "d_state": 4, "num_layers": 2},
    "gru": {"d_hidden": 16, "num_layers": 2, "d_output": 16},
    "hybrid": {"d_model": 16, "num_heads": 2, "d_state": 4, "d_ff": 32, "layers": ["mamba2", "attention"]},
    "lru": {"d_model": 16, "d_state": 16, "num_layers": 2},
    "lstm": {"d_hidden": 16, "num_layers": 2, "d_output": 16},
    "mamba": {"d_model": 16, "d_state": 4, "num_layers": 2},
    "mamba2": {"d_model": 16, "num_heads": 2, "d_state": 4, "num_layers": 2},
    "min_gru": {"d_model": 16, "num_layers": 2},
    "mlstm": {"d_model": 16, "num_heads": 2, "d_state": 4, "num_layers": 2},
    "transformer": {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_layers": 2},
}
"""Options that make a sequence encoder tiny; an encoder that is not listed is checked at its defaults."""

OBS = {"image": ObsSpec((2, 2), "uint8"), "room": ObsSpec((), "int64", (3,)), "state": ObsSpec((3,))}
IMAGE = {"image": ObsSpec((8, 8, 3), "uint8")}
ENCODER_OBS = {
    "auto": {**OBS, "image": ObsSpec((15, 16, 3), "uint8")},
    "cnn": IMAGE,
    "multimodal": {**OBS, **IMAGE},
}
"""Observations that a timestep encoder is checked on; one that is not listed is checked on ``OBS``."""

SMALL_IMAGE = {"type": "image", "core": {"type": "gridworld"}, "d_output": 16}
SMALL_ENCODER: dict[str, dict[str, Any]] = {
    "auto": {"d_hidden": 16, "d_output": 16},
    "mlp": {"d_hidden": 16, "d_output": 16},
    "cnn": {"core": {"type": "gridworld"}, "d_image": 16, "d_output": 16},
    "multimodal": {"modalities": {"image": SMALL_IMAGE}, "d_hidden": 16, "d_output": 16},
}
"""Options that make a timestep encoder tiny; an encoder that is not listed is checked at its defaults."""

ACTION_SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(5, start=2),
    "multi_discrete": spaces.MultiDiscrete([3, 2]),
    "multi_binary": spaces.MultiBinary(4),
    "box": spaces.Box(-2.0, 3.0, (2, 2)),
    "hybrid": spaces.Dict(
        {"move": spaces.Box(-2.0, 3.0, (2,)), "hand": spaces.Discrete(3), "light": spaces.MultiBinary(1)}
    ),
}
ACTION_KINDS = {name: ActionCodec(space).action_kind for name, space in ACTION_SPACES.items()}
"""Name of the action space -> its kind, as algorithms name those that they take."""

_SMALL_ALGO = {"optimizer": {"learning_rate": 1e-2, "warmup_steps": 2}}
_SMALL_CHUNKS = {"chunk_steps": 4, "execute_steps": 2}
SMALL_SECTION: dict[str, dict[str, Any]] = {
    "decision_transformer": {"target_return": 3.0, "return_scale": 2.0},
    "act": {**_SMALL_CHUNKS, "d_model": 16, "num_encoder_layers": 1, "d_latent": 4, "kl_weight": 0.1},
    "diffusion_policy": {**_SMALL_CHUNKS, "denoiser": {"type": "unet1d", "widths": [8, 16], "num_groups": 4}},
    **{name: {"planner": {"subgoal_steps": 2}} for name in ("gl", "hbc", "iris")},  # known within a short window
    "flow_matching": {**_SMALL_CHUNKS, "denoiser": {"type": "transformer", "d_model": 16, "num_layers": 1}},
}
"""Settings that make an algorithm tiny; one that is not listed is checked at its defaults."""


def check_has_config(algo: str) -> None:
    """Check that an algorithm that has a factory has a config class, too.

    Raises:
        RegistryError: If not.
    """
    if algo in ALGOS and algo not in CONFIGS:
        raise RegistryError(
            f"algorithm {algo!r} has no config class: derive one from BaseConfig, and register it by "
            f"@register_config({algo!r})"
        )


def small_config(
    algo: str = "bc", memory: str = "transformer", window: int = 6, encoder: str = "mlp", **algo_values: Any
) -> BaseConfig:
    """Return a tiny config.

    Raises:
        RegistryError: If the algorithm has no config class.
    """
    check_has_config(algo)
    chosen = {"sequence_encoder": {"type": memory, **SMALL_MEMORY.get(memory, {})}, **_SMALL_ALGO}
    chosen |= SMALL_SECTION.get(algo, {})
    values = {
        "train": {"window_steps": window, "batch_size": 4},
        "observation": {"timestep_encoder": {"type": encoder, **SMALL_ENCODER.get(encoder, {})}},
        "algo": {**chosen, **algo_values},
    }
    return config_factory(algo, values)


def small_algo(
    algo: str = "bc",
    memory: str = "transformer",
    action_space: spaces.Space[Any] | None = None,
    window: int = 6,
    seed: int = 0,
    encoder: str = "mlp",
    device: str = "cpu",
    **values: Any,
) -> Algo:
    """Return a tiny algorithm with seeded weights; ``values`` are of its section."""
    torch.manual_seed(seed)
    action_space = action_space or ACTION_SPACES["discrete"]
    config = small_config(algo, memory, window, encoder, **values)
    obs = ENCODER_OBS.get(encoder, OBS)
    return algo_factory(algo, config, obs, ActionCodec(action_space).dim, device, action_space)


def random_obs(rng: np.random.Generator, specs: Mapping[str, ObsSpec], *lead: int) -> dict[str, torch.Tensor]:
    """Return random observations ``(*lead, ...)`` in the order of the specs."""

    def draw(spec: ObsSpec) -> np.ndarray:
        shape = (*lead, *spec.shape)
        if spec.nvec is not None:
            sizes = spec.nvec[0] if len(set(spec.nvec)) == 1 else np.reshape(spec.nvec, spec.shape)
            return rng.integers(0, sizes, shape)
        if "int" in spec.dtype:
            return rng.integers(0, 256 if spec.dtype == "uint8" else 100, shape, dtype=spec.dtype)
        return rng.normal(size=shape).astype(np.float32)

    return {name: torch.from_numpy(draw(spec)) for name, spec in specs.items()}


def random_batch(
    action_space: spaces.Space[Any],
    *,
    num: int = 4,
    window: int = 6,
    seed: int = 0,
    obs: Mapping[str, ObsSpec] | None = None,
) -> SeqBatch:
    """Return a batch with padding in some rows, made from actions that the space itself samples; with all extras."""
    rng = np.random.default_rng(seed)
    action_space.seed(seed)
    codec = ActionCodec(action_space)
    actions = np.array([[codec.flat(action_space.sample()) for _ in range(window + 1)] for _ in range(num)])
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
    has_next = np.arange(window + 1) < real[:, None]
    next_action = np.concatenate([prev_action[:, 1:], prev_action[:, -1:]], axis=1) * has_next[..., None]
    extras = {"next_action": next_action, "has_next_action": has_next.astype(np.float32)}
    extras |= {name: rng.normal(size=has_next.shape).astype(np.float32) for name in sorted(RETURNS)}
    return SeqBatch(
        inputs=inputs,
        actions=inputs.prev_action[:, 1:].clone(),
        rewards=inputs.prev_reward[:, 1:].clone(),
        terminated=torch.from_numpy(last & (rng.random((num, 1)) < 0.5)),
        truncated=torch.from_numpy(last & (rng.random((num, 1)) >= 0.5)),
        mask=torch.from_numpy(np.arange(window) < real[:, None]),
        extras={name: torch.from_numpy(value) for name, value in extras.items()},
    )


def free_batch(batch: SeqBatch) -> SeqBatch:
    """Return a batch of discrete actions with a mask that forbids nothing."""
    mask = torch.ones(*batch.inputs.step.shape, batch.actions.shape[-1], dtype=torch.bool)
    return replace(batch, inputs=replace(batch.inputs, action_mask=mask))


def masked_batch(action_space: spaces.Space[Any], batch: SeqBatch) -> SeqBatch:
    """Return a batch with a random mask under which its actions are legal, and policy action 1 is nowhere.

    Inputs stay as they are, previous actions too.
    """
    codec = ActionCodec(action_space)
    rng = np.random.default_rng(0)
    mask = torch.from_numpy(rng.random((*batch.inputs.step.shape, codec.dim)) < 0.6)
    actions = batch.actions.clone()
    values = codec.parts[0].dim if codec.parts else 0
    mask[..., :values] = True
    choices, legal = actions[..., values:], mask[..., values:]  # views
    if codec.kind != "binary":  # action 1 of the first factor is taken by nobody
        choices[..., 0] = torch.where(choices[..., 1] > 0.5, 1.0, choices[..., 0])
    choices[..., 1] = 0.0
    legal[:, :-1] |= choices > 0.5
    if codec.kind != "binary":
        for part in legal.split((codec.parts[1] if codec.parts else codec).factors, dim=-1):
            part[..., 0] = True
    legal[..., 1] = False
    return replace(batch, inputs=replace(batch.inputs, action_mask=mask), actions=actions)
