"""Runs that start from the weights of another (``train.init_from``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqrl.algo.algo import Algo
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.configs import layered
from seqrl.configs.differences import differences
from seqrl.core.errors import CheckpointError, ConfigError
from seqrl.core.files import expanded

TAKEN = ("window_steps", "normalize_obs", "normalize_actions")


def with_networks_of(values: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """Return a run file over what a checkpoint was trained with, except for its optimiser, if it is the algorithm's.

    Args:
        values: Nested dict with ``algo_name``; its keys win.
        path: Of the checkpoint.

    Raises:
        CheckpointError: If it is missing or damaged.
    """
    former = read_checkpoint(expanded(path)).json_object("config.json")
    if former.get("algo_name") != values["algo_name"]:
        return dict(values)
    own = {
        "observation": former["observation"],
        "algo": {key: value for key, value in former["algo"].items() if key != "optimizer"},
        "train": {key: former["train"][key] for key in TAKEN},
    }
    return layered(own, dict(values))[0]


def take_weights(algo: Algo, path: str | Path) -> None:
    """Give the algorithm the weights of any checkpoint whose networks fit.

    Raises:
        CheckpointError: If it is missing, damaged, of other networks, or not finite.
        ConfigError: If its networks know observations or actions on another scale than the run file asks for.
    """
    checkpoint = read_checkpoint(expanded(path), allow_nonfinite=algo.config.train.allow_nonfinite)
    former = checkpoint.json_object("config.json")
    for key in ("normalize_obs", "normalize_actions"):
        own, theirs = getattr(algo.config.train, key), former.get("train", {}).get(key, "none")
        if own != theirs:
            raise ConfigError(
                f"train.{key} is {own!r}, and the weights of train.init_from ({checkpoint.path}) were trained with "
                f"{theirs!r}, by the statistics that come with them: set train.{key} to {theirs!r}"
            )
    weights = checkpoint.tensors("model.safetensors")
    try:
        algo.deserialize(weights)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}{_told_apart(former, algo)}") from error
    algo.on_checkpoint_loaded(is_resume=False)


def _told_apart(former: dict[str, Any], algo: Algo) -> str:
    """Return by which settings the networks of a checkpoint may differ from a run's."""
    own = algo.config.to_json()
    if former.get("algo_name") != own["algo_name"]:
        return f"; the weights are of {former.get('algo_name')}, and the run is of {own['algo_name']}"
    found = [
        f"{path} is {json.dumps(new)} (theirs: {json.dumps(old)})"
        for section in ("algo", "observation")
        for path, old, new in differences(former.get(section), own[section], section)
        if not path.startswith("algo.optimizer")
    ]
    return f"; {', '.join(found[:6])}" if found else ""
