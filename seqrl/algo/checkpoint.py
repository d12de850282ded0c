"""Checkpoints: a folder of JSON and safetensors with a checksum of every file. Nothing in it can execute code."""

from __future__ import annotations

import errno
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import spaces
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from seqrl.algo.algo import Algo, algo_factory
from seqrl.algo.ema import take_averages
from seqrl.algo.model_card import PAGE, model_card
from seqrl.algo.rollout_policy import RolloutPolicy
from seqrl.configs import BaseConfig, config_factory
from seqrl.core.action_codecs import action_codec
from seqrl.core.checkpoint_card import CARD, FORMAT_VERSION, MODEL, STATE_FOLDER, CheckpointCard, read_card
from seqrl.core.errors import CheckpointError, ConfigError, DataError, RegistryError
from seqrl.core.files import new_folder, require_space, sha256_of, space_left, write_json
from seqrl.core.plugins import Plugins, are_loaded, load_plugins, names_foreign_module
from seqrl.core.spaces import obs_specs, space_from_json, space_to_json
from seqrl.core.strict_json import sealed
from seqrl.models.image_cores import skip_local_weights
from seqrl.moved import moved_names
from seqrl.version import __version__

if not TYPE_CHECKING:  # mypy shall not take every name for one of this module
    __getattr__ = moved_names(__name__, "seqrl.core.checkpoint_card", "find_checkpoint", "write_pointer")

logger = logging.getLogger(__name__)

_OPTIMIZER = f"{STATE_FOLDER}/optimizer.safetensors"
_STATE = f"{STATE_FOLDER}/state.json"
_SMALL_FILES_BYTES = 200_000
"""Room that is kept for what is not a tensor."""


@dataclass(frozen=True)
class TrainingState:
    """What a run needs, besides weights, to go on as if it had not stopped.

    Attributes:
        optimizer: Tensors of the optimiser, by name.
        values: Counters and best scores; JSON values. Between epochs generators need no state, as each seeds them.
    """

    optimizer: dict[str, Tensor]
    values: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint(CheckpointCard):
    """A checkpoint that has been found, whose card has been read, and whose files have the right checksums.

    Attributes:
        allow_nonfinite: Whether its tensors may hold NaN and inf.
    """

    allow_nonfinite: bool = False

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of a safetensors file of the checkpoint.

        Raises:
            CheckpointError: If it cannot be read, or holds NaN or inf and may not.
        """
        try:
            tensors = load_file(self.path / name)
        except (OSError, SafetensorError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"{self.path / name}: not a safetensors file ({error})") from error
        broken = [] if self.allow_nonfinite else [key for key, x in tensors.items() if not x.isfinite().all()]
        if broken:
            more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
            raise CheckpointError(
                f"{self.path / name}: NaN or inf in {broken[0]!r}{more}; to load it anyway, pass "
                "allow_nonfinite=True, or set train.allow_nonfinite for a run"
            )
        return tensors

    def training_state(self) -> TrainingState:
        """Return what a resumed run needs.

        Raises:
            CheckpointError: If the checkpoint holds weights only.
        """
        if not {_STATE, _OPTIMIZER} <= self.card["files"].keys():
            raise CheckpointError(f"{self.path} holds weights only, so a run cannot be resumed from it")
        tensors = self.tensors(_OPTIMIZER)
        return TrainingState(tensors, self.json_object(_STATE))


# ---------------------------------------------------------------------------------------------- writing
def save_checkpoint(
    path: Path,
    algo: Algo,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    env: Mapping[str, Any] | None = None,
    metrics: Mapping[str, float] | None = None,
    training_state: TrainingState | None = None,
) -> None:
    """Write a checkpoint folder; it appears under its name only when it is whole.

    Args:
        path: Folder to write, replaced if it exists.
        algo: Its weights and config are saved.
        observation_space: Of one environment.
        action_space: Of one environment.
        env: ``id`` and ``kwargs`` of the environment, where there is one.
        metrics: Scores, for the card.
        training_state: For resuming.

    Raises:
        CheckpointError: If it cannot be written, for instance because the disk is full; whatever was there stays.
    """
    tensors = {MODEL: algo.serialize()}
    if training_state is not None:
        tensors[_OPTIMIZER] = {k: v.contiguous() for k, v in training_state.optimizer.items()}
    num_bytes = sum(t.nbytes for file in tensors.values() for t in file.values()) + _SMALL_FILES_BYTES
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        require_space(path.parent, num_bytes)
        with new_folder(path) as folder:
            write_json(folder / "config.json", algo.config.to_json())
            write_json(
                folder / "spaces.json",
                {"observation_space": space_to_json(observation_space), "action_space": space_to_json(action_space)},
            )
            if training_state is not None:
                (folder / STATE_FOLDER).mkdir()
                write_json(folder / _STATE, training_state.values)
            for name, file in tensors.items():
                save_file(file, folder / name)
            _write_cards(folder, algo, env or {}, metrics or {})
    except (OSError, SafetensorError) as error:
        is_full = not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = f"; it takes {num_bytes / 1e6:,.1f} MB. Make room there, or save to another disk" if is_full else ""
        raise CheckpointError(f"{path} cannot be written: {space_left(path.parent, error)}{advice}") from error


def _write_cards(folder: Path, algo: Algo, env: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
    """Write what says of the other files of a checkpoint what they are, for programs and for people."""
    files = sorted(f for f in folder.rglob("*") if f.is_file())
    card = {
        "format_version": FORMAT_VERSION,
        "algo_name": algo.config.algo_name,
        "versions": {"seqrl": __version__, "torch": torch.__version__},
        "plugins": algo.config.plugins,
        "env": dict(env),
        "metrics": dict(metrics),
        "files": {f.relative_to(folder).as_posix(): sha256_of(f) for f in files},
    }
    write_json(folder / CARD, sealed(card))
    num_weights = sum(p.numel() for p in algo.nets.parameters() if p.requires_grad)
    page = model_card(algo.config, num_weights, env, metrics)
    (folder / PAGE).write_text(page, encoding="utf-8")  # may be edited: it has no checksum


# ---------------------------------------------------------------------------------------------- reading
def read_checkpoint(path: str | Path, *, allow_nonfinite: bool = False) -> Checkpoint:
    """Find a checkpoint and verify its files.

    Args:
        path: See :func:`seqrl.core.checkpoint_card.find_checkpoint`.
        allow_nonfinite: Let its tensors hold NaN and inf, which else is an error when they are read.

    Raises:
        CheckpointError: If a file is missing or altered, or the format is another one.
    """
    found = read_card(path)
    return Checkpoint(found.path, found.card, allow_nonfinite)


def algo_name_from_checkpoint(
    ckpt_path: str | Path | None = None, ckpt_dict: Checkpoint | None = None
) -> tuple[str, Checkpoint]:
    """Return the name of the algorithm that a checkpoint holds, and the checkpoint.

    Args:
        ckpt_path: See :func:`seqrl.core.checkpoint_card.find_checkpoint`.
        ckpt_dict: In its place, a checkpoint that was read before.
    """
    checkpoint = _given(ckpt_path, ckpt_dict)
    return str(checkpoint.card["algo_name"]), checkpoint


def config_from_checkpoint(
    ckpt_path: str | Path | None = None,
    *,
    algo_name: str | None = None,
    ckpt_dict: Checkpoint | None = None,
    plugins: Plugins = (),
    verbose: bool = False,
) -> tuple[BaseConfig, Checkpoint]:
    """Return the run file of a checkpoint, and the checkpoint.

    A run of it imports nothing but what is given: other plug-ins, and environments ``module:Env-v0`` of modules that
    are not imported yet, are left out, with a warning.

    Args:
        ckpt_path: See :func:`seqrl.core.checkpoint_card.find_checkpoint`.
        algo_name: What the algorithm should be; None takes any.
        ckpt_dict: In place of the path, a checkpoint that was read before.
        plugins: Files or modules to import first, and in a run of the config.
        verbose: Print the run file.

    Raises:
        CheckpointError: If it holds another algorithm, or something in it comes from a plug-in that is not loaded.
    """
    named = load_plugins(plugins)
    checkpoint = _given(ckpt_path, ckpt_dict)
    if algo_name not in (None, checkpoint.card["algo_name"]):
        raise CheckpointError(f"{checkpoint.path} holds {checkpoint.card['algo_name']!r}, not {algo_name!r}")
    config = _config(checkpoint)
    if dropped := _drop_foreign(config, named):
        logger.warning(
            "%s: left out what a run of its config would import unasked: %s. If you trust it, pass it in plugins=[...]",
            checkpoint.path,
            ", ".join(dropped),
        )
    if verbose:
        _print(config)
    return config, checkpoint


def _print(config: BaseConfig) -> None:
    sys.stdout.write(json.dumps(config.to_json(), indent=2) + "\n")


def _drop_foreign(config: BaseConfig, plugins: list[str]) -> list[str]:
    """Take out of a run file what would import more than the given plug-ins; return the names."""
    env, train = config.env, config.train
    named = [env.id, *(task.id for task in env.tasks)]
    foreign = [env_id for env_id in named if env_id and names_foreign_module(env_id)]
    if foreign:
        env.id, env.kwargs, env.eval_kwargs, env.tasks = None, {}, {}, []
    made = [source.scripted for source in train.data if source.scripted and names_foreign_module(source.scripted)]
    train.data = [source for source in train.data if source.scripted not in made]
    dropped = [name for name in config.plugins if name not in plugins]
    config.plugins = plugins
    return list(dict.fromkeys([*dropped, *foreign, *made]))


def _given(path: str | Path | None, checkpoint: Checkpoint | None) -> Checkpoint:
    """Return the checkpoint at a path, or the one that was read before."""
    if (path is None) == (checkpoint is None):
        raise CheckpointError("give a path (ckpt_path) or a checkpoint that was read before (ckpt_dict)")
    return checkpoint if path is None else read_checkpoint(path)  # type: ignore[return-value]


def _config(checkpoint: Checkpoint) -> BaseConfig:
    with _naming_plugins(checkpoint):
        return config_factory(
            str(checkpoint.card["algo_name"]),
            checkpoint.json_object("config.json"),
            str(checkpoint.path / "config.json"),
        )


@contextmanager
def _naming_plugins(checkpoint: Checkpoint) -> Iterator[None]:
    """Name the plug-ins that a checkpoint needs if something is wrong and they are not imported."""
    try:
        yield
    except (RegistryError, ConfigError) as error:
        if not (told := missing_plugins(checkpoint)):
            raise
        raise CheckpointError(f"{told}\n{error}") from error


def missing_plugins(checkpoint: Checkpoint) -> str:
    """Return what to say of plug-ins that a checkpoint needs and are not there; an empty text if there are none."""
    needed = list(map(str, checkpoint.card.get("plugins") or ()))
    if not needed or are_loaded(needed):
        return ""
    return (
        f"{checkpoint.path} was trained with plug-ins, which are never imported unasked: {', '.join(needed)}. If you "
        "trust them, pass --plugin NAME for each, or plugins=[NAME, ...] in Python."
    )


def resolve_device(name: str) -> torch.device:
    """Return the device that a name means; ``auto`` is a GPU where there is one.

    Raises:
        ConfigError: If torch does not know it, or it is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"train.device: {name!r} is not a device; use 'auto', 'cpu', 'cuda' or 'cuda:N'") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"train.device: {name!r} was asked for, but torch sees no GPU; use 'auto' or 'cpu'")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise ConfigError(f"train.device: {name!r} was asked for, but the last GPU that torch sees is 'cuda:{last}'")
    return device


def algo_for(
    config: BaseConfig, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], device: torch.device
) -> Algo:
    """Build the algorithm of a run file for an environment's spaces.

    Raises:
        SeqrlError: As :func:`~seqrl.algo.algo_factory`.
    """
    width = action_codec(action_space).dim
    return algo_factory(config.algo_name, config, obs_specs(observation_space), width, device, action_space)


def load_algo(checkpoint: Checkpoint, device: str = "auto") -> tuple[Algo, spaces.Space[Any], spaces.Space[Any]]:
    """Return the algorithm of a verified checkpoint with its weights, and its observation and action spaces."""
    config = _config(checkpoint)
    value = checkpoint.json("spaces.json")
    try:
        observation_space, action_space = (space_from_json(value[f"{k}_space"]) for k in ("observation", "action"))
    except (KeyError, TypeError, DataError) as error:
        raise CheckpointError(f"{checkpoint.path / 'spaces.json'}: does not hold two spaces ({error})") from error
    with skip_local_weights(), _naming_plugins(checkpoint):
        algo = algo_for(config, observation_space, action_space, resolve_device(device))
    algo.deserialize(checkpoint.tensors(MODEL))
    take_averages(algo.nets)
    algo.on_checkpoint_loaded(is_resume=False)
    algo.set_eval()
    return algo, observation_space, action_space


def policy_from_checkpoint(
    ckpt_path: str | Path | None = None,
    ckpt_dict: Checkpoint | None = None,
    device: str | torch.device | None = "auto",
    verbose: bool = False,
    *,
    plugins: Plugins = (),
    deterministic: bool | None = None,
    allow_nonfinite: bool = False,
) -> tuple[RolloutPolicy, Checkpoint]:
    """Load a policy for deployment.

    Args:
        ckpt_path: A checkpoint folder, a run's folder, or ``RUN/last``, ``RUN/best_success``.
        ckpt_dict: In its place, a checkpoint that was read before.
        device: ``auto`` (or None), ``cpu``, ``cuda`` or ``cuda:N``.
        verbose: Print the run file.
        plugins: Files or modules to import first.
        deterministic: Act greedily; False samples, None does what the run's evaluations did.
        allow_nonfinite: Take weights that are NaN or inf too.

    Returns:
        The policy, and the checkpoint it came from.

    Raises:
        CheckpointError: If the checkpoint is missing, altered, not finite, or needs a plug-in that is not loaded.
    """
    load_plugins(plugins)
    checkpoint = _given(ckpt_path, ckpt_dict)
    if allow_nonfinite:
        checkpoint = replace(checkpoint, allow_nonfinite=True)
    if verbose:
        _print(_config(checkpoint))
    algo, observation_space, action_space = load_algo(checkpoint, "auto" if device is None else str(device))
    return RolloutPolicy(algo, observation_space, action_space, deterministic=deterministic), checkpoint
