"""Checkpoints of robomimic's BC as policies of seqrl: the same networks with the same weights.

robomimic's files are pickles. Only tensors and plain values are read from them (``weights_only``); anything else is
refused, so that reading one executes no code.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from seqrl.algo.algo import Algo, algo_factory
from seqrl.algo.ema import without_averages
from seqrl.configs import config_factory
from seqrl.core.errors import CheckpointError
from seqrl.core.spaces import ObsSpec

_NETS, _FIRST, _MEMORY, _ACTOR = (
    "policy.nets.",
    "trunk.timestep_encoder.mlp.0",
    "trunk.sequence_encoder.rnn",
    "actor.mlp",
)
_UNFIT = ("transformer", "vae")


def import_robomimic(path: Path) -> tuple[Algo, dict[str, Any]]:
    """Return the policy of a checkpoint that robomimic wrote, and the environment that it names.

    BC of vectors is read: as an MLP, with an LSTM or a GRU, giving an action, a Gaussian or a mixture of Gaussians.
    Actions are those of the original, but for two things. robomimic clears a recurrent memory every ``rnn.horizon``
    steps of an episode, and seqrl does not. The standard deviation of a Gaussian grows otherwise with the network's
    output, which shows where ``low_noise_eval`` is off.

    Raises:
        CheckpointError: If the file cannot be read as tensors and plain values, or holds another policy.
    """
    found = _read(path)
    if found["algo_name"] != "bc":
        raise CheckpointError(f"{path} holds robomimic's {found['algo_name']!r}; only 'bc' can be imported")
    try:
        return _policy(path, found), dict(found.get("env_metadata") or {})
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is not as robomimic writes it: {type(error).__name__}: {error}") from error


def _policy(path: Path, found: Mapping[str, Any]) -> Algo:
    theirs = json.loads(found["config"])
    section = theirs["algo"]
    unfit = [f"algo.{part}.enabled" for part in _UNFIT if section.get(part, {}).get("enabled")]
    unfit += ["algo.rnn.open_loop"] if section["rnn"]["enabled"] and section["rnn"].get("open_loop") else []
    unfit += ["algo.gaussian.fixed_std"] if section["gaussian"]["enabled"] and section["gaussian"]["fixed_std"] else []
    scaled = (found.get("action_normalization_stats") or {}).values()
    if any((_numbers(s["scale"]) != 1).any() or (_numbers(s["offset"]) != 0).any() for s in scaled):
        unfit.append("actions that are normalised")
    if unfit:
        raise CheckpointError(f"{path}: policies with {', '.join(unfit)} cannot be imported")
    weights = {k: v for k, v in found["model"].items() if ".per_step_net." not in k}
    if any(name.startswith(f"{_NETS}encoder") for name in weights):
        raise CheckpointError(f"{path}: policies with encoders of images or scans cannot be imported")
    sizes = {key: int(shape[0]) for key, shape in found["shape_metadata"]["all_shapes"].items()}
    obs = {key: ObsSpec((size,)) for key, size in sizes.items()}
    dim = int(found["shape_metadata"]["ac_dim"])
    action_space = spaces.Box(-1.0, 1.0, (dim,))
    algo = algo_factory("bc", config_factory("bc", _config(theirs, weights, sizes)), obs, dim, "cpu", action_space)
    ours = without_averages(algo.serialize())
    ours |= _translated(weights, sizes, found.get("obs_normalization_stats"), section)
    algo.deserialize(ours)
    return algo


def _numbers(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32).flatten()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as tensors and plain values ({str(error)[:200]})") from error
    needed = {"model", "config", "algo_name", "shape_metadata"}
    if not isinstance(found, dict) or not needed <= found.keys():
        raise CheckpointError(f"{path} is not a robomimic checkpoint: it lacks {', '.join(sorted(needed))}")
    return found


def _head(section: Mapping[str, Any]) -> str:
    return next((kind for kind in ("gaussian", "gmm") if section[kind]["enabled"]), "deterministic")


def _layers(weights: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the MLP's layers before the heads, in order."""
    names = {name.rsplit(".", 1)[0] for name in weights if name.startswith(f"{_NETS}mlp._model.")}
    return sorted(names, key=lambda name: int(name.rsplit(".", 1)[1]))


def _config(theirs: Mapping[str, Any], weights: Mapping[str, Tensor], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return a run file whose networks are those of the checkpoint, behind a linear layer that orders the entries."""
    section, head = theirs["algo"], _head(theirs["algo"])
    widths = {len(weights[f"{name}.bias"]) for name in _layers(weights)}
    if len(widths) > 1:
        raise CheckpointError(f"layers of different widths ({', '.join(map(str, sorted(widths)))}) cannot be imported")
    actor: dict[str, Any] = {"num_layers": len(_layers(weights)), "activation": "relu"}
    memory: dict[str, Any] = {"type": "identity"}
    window = 1
    if section["rnn"]["enabled"]:
        kind, options = str(section["rnn"]["rnn_type"]).lower(), {"d_output": None, "norm": "none"}
        memory = {"type": kind, "d_hidden": section["rnn"]["hidden_dim"], **options}
        memory["num_layers"] = section["rnn"]["num_layers"]
        window = int(section["rnn"]["horizon"])
    distribution: dict[str, Any] = {"type": head}
    if head != "deterministic":
        distribution |= {k: section[head][k] for k in ("std_activation", "low_noise_eval")}
    if head == "gaussian":
        distribution |= {"init_std": section["gaussian"]["init_std"], "min_std": 1e-4}
    if head == "gmm":
        distribution |= {k: section["gmm"][k] for k in ("num_modes", "min_std")}
    return {
        "train": {"window_steps": window, "seed": int(theirs["train"].get("seed", 0))},
        "observation": {
            "keys": sorted(sizes),
            "timestep_encoder": {
                "type": "mlp",
                "num_layers": 0,
                "d_output": sum(sizes.values()),
                "norm": "none",
                "normalize_inputs": False,
            },
        },
        "algo": {
            "sequence_encoder": memory,
            "actor": actor | ({"d_hidden": widths.pop()} if widths else {}),
            "distribution": distribution,
        },
    }  # fmt: skip


def _translated(
    weights: Mapping[str, Tensor], sizes: Mapping[str, int], stats: Any, section: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return our weights: order and scale of the observation, memory, hidden layers, heads side by side."""
    ours = _ordered(sizes, stats)
    for name, value in weights.items():
        if name.startswith(f"{_NETS}rnn.nets."):
            ours[f"{_MEMORY}.{name.removeprefix(f'{_NETS}rnn.nets.')}"] = value
    layers = _layers(weights)
    for i, layer in enumerate(layers):
        for part in ("weight", "bias"):
            ours[f"{_ACTOR}.{2 * i}.{part}"] = weights[f"{layer}.{part}"]
    head = _head(section)
    parts = {"deterministic": ("action",), "gaussian": ("mean", "scale"), "gmm": ("logits", "mean", "scale")}[head]
    for part in ("weight", "bias"):
        heads = [weights[f"{_NETS}decoder.nets.{name}.{part}"] for name in parts]
        ours[f"{_ACTOR}.{2 * len(layers)}.{part}"] = torch.cat(heads)
    return ours


def _ordered(sizes: Mapping[str, int], stats: Any) -> dict[str, Tensor]:
    """Return the first layer: entries in the order of their names become those of robomimic, scaled as it does."""
    at, starts = 0, {}
    for key in sorted(sizes):
        starts[key], at = at, at + sizes[key]
    matrix, bias, row = torch.zeros(at, at), torch.zeros(at), 0
    for key, size in sizes.items():
        mean, std = torch.zeros(size), torch.ones(size)
        if stats:
            mean, std = (_numbers(stats[key][name]) for name in ("mean", "std"))
        rows = torch.arange(size)
        matrix[row + rows, starts[key] + rows] = 1.0 / std
        bias[row : row + size] = -mean / std
        row += size
    return {f"{_FIRST}.weight": matrix, f"{_FIRST}.bias": bias}
