"""Runs that start from the weights of another (``train.init_from``)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqrl.algo.algo import Algo
from seqrl.algo.checkpoint import Checkpoint, read_checkpoint
from seqrl.algo.ema import averaged_weights
from seqrl.configs import BaseConfig, layered
from seqrl.configs.differences import differences, with_defaults
from seqrl.core.errors import CheckpointError, ConfigError
from seqrl.core.files import expanded
from seqrl.core.spaces import GOAL_PREFIX, obs_specs, space_from_json
from seqrl.training.run_folder import saved_config

logger = logging.getLogger(__name__)

TAKEN = ("window_steps", "normalize_obs", "normalize_actions", "normalize_rewards")
LEARNING = (
    "optimizer", "tau", "n_step", "time_limits", "memory_dropout", "boltzmann", "novelty", "filter",
    "online_coeff", "offline_coeff", "critic_loss_weight", "average_decay", "num_critics_td", "online_value",
)  # fmt: skip
"""Settings of algorithms on which no weight depends, and which another kind of data asks for anew."""


def with_networks(values: Mapping[str, Any], *, goes_on: bool) -> dict[str, Any]:
    """Return a run file over the networks of the checkpoint that it starts from, if that is of the same algorithm.

    Args:
        values: Nested dict with ``algo_name`` and ``train.init_from``; its keys win.
        goes_on: Whether the run may be there already, and then has taken them: the checkpoint may be gone.

    Raises:
        CheckpointError: If the checkpoint is missing or damaged.
    """
    former = _own_config(values) if goes_on else None
    if former is None:
        former = with_defaults(read_checkpoint(expanded(values["train"]["init_from"])).json_object("config.json"))
    if former.get("algo_name") != values["algo_name"]:
        return dict(values)
    taken = {
        "observation": {key: value for key, value in former["observation"].items() if key != "prev_dropout"},
        "algo": {key: value for key, value in former["algo"].items() if key not in LEARNING},
        "train": {key: former["train"][key] for key in TAKEN},
    }
    return layered(taken, dict(values))[0]


def _own_config(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the config of the run that a run file describes, if it has a name and has begun."""
    section = {**BaseConfig.model_fields["experiment"].default.to_values(), **values.get("experiment", {})}
    if not (isinstance(section["name"], str) and isinstance(section["output_dir"], str)):
        return None
    folder = expanded(section["output_dir"]) / section["name"]
    return saved_config(folder) if (folder / "config.json").is_file() else None


def take_weights(algo: Algo, path: str | Path, what: str = "the weights of train.init_from") -> None:
    """Give the algorithm the weights of any checkpoint whose networks fit.

    Args:
        algo: Of the run.
        path: Of the checkpoint.
        what: How messages call it.

    Raises:
        CheckpointError: If it is missing, damaged, of other networks, or not finite.
        ConfigError: If its networks know observations, actions or rewards on another scale than the run file asks for.
    """
    checkpoint = read_checkpoint(expanded(path), allow_nonfinite=algo.config.train.allow_nonfinite)
    former = with_defaults(checkpoint.json_object("config.json"))
    for key in ("normalize_obs", "normalize_actions", *(("normalize_rewards",) if algo.scales_rewards else ())):
        own, theirs = getattr(algo.config.train, key), former.get("train", {}).get(key, "none")
        if own != theirs:
            raise ConfigError(
                f"train.{key} is {own!r}, and {what} ({checkpoint.path}) were trained with "
                f"{theirs!r}, by the statistics that come with them: set train.{key} to {theirs!r}"
            )
    _warn_of_other_entries(algo, checkpoint, what)
    weights = averaged_weights(checkpoint.tensors("model.safetensors"))  # what acts; averages begin anew
    try:
        algo.deserialize(weights)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint.path}: {_told_apart(former, algo)}{error}") from error
    algo.on_checkpoint_loaded(is_resume=False)


def _warn_of_other_entries(algo: Algo, checkpoint: Checkpoint, what: str) -> None:
    """Warn if the weights read other observations than the run: networks know only the width of them all."""
    read = checkpoint.json_object("config.json").get("observation", {}).get("keys")
    specs = obs_specs(space_from_json(checkpoint.json_object("spaces.json")["observation_space"]))
    former = {name: spec.shape for name, spec in specs.items() if name in (read or specs)}
    own = {name: spec.shape for name, spec in algo.obs.items() if not name.startswith(GOAL_PREFIX)}
    if former != own:
        theirs, ours = (", ".join(f"{k} {list(shape)}" for k, shape in found.items()) for found in (former, own))
        logger.warning("%s (%s) read %s, and this run %s", what, checkpoint.path, theirs, ours)


def _told_apart(former: dict[str, Any], algo: Algo) -> str:
    """Return by which settings the networks of a checkpoint may differ from a run's."""
    own = algo.config.to_json()
    if former.get("algo_name") != own["algo_name"]:
        return f"the weights are of {former.get('algo_name')}, and the run is of {own['algo_name']}; "
    found = {
        path: f"{path} is {json.dumps(new)} (theirs: {json.dumps(old)})"
        for section in ("algo", "observation")
        for path, old, new in differences(former.get(section), own[section], section)
        if not path.startswith(tuple(f"algo.{key}" for key in LEARNING))
    }
    kinds = [path.removesuffix("type") for path in found if path.endswith(".type")]
    told = [text for path, text in found.items() if path.endswith(".type") or not path.startswith(tuple(kinds))]
    return f"{', '.join(told[:6])}; " if told else ""
