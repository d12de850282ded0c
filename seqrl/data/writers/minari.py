"""Writes Minari's HDF5 layout: ``data/main_data.hdf5`` and ``data/metadata.json``."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.files import write_json
from seqrl.core.spaces import OBS_KEY, ActionCodec
from seqrl.core.types import Trajectory
from seqrl.data.hdf5_file import own_file
from seqrl.data.readers.minari import local_store
from seqrl.data.store_info import StoreInfo

MINARI_VERSION = "0.5.4"
"""Of the layout."""
_ID = re.compile(r"(?:[\w-]+/)*[\w-]+-v\d+")


def minari_folder(target: Path) -> tuple[Path, str]:
    """Return the folder of a dataset of Minari, and its id.

    Args:
        target: Its id, in the local store (``MINARI_DATASETS_PATH``, else ``~/.minari/datasets``); or a path, absolute
            or beginning with ``.``, whose last two parts are the id.

    Raises:
        DataError: If the id is none, such as ``robot/lift-v0``.
    """
    given = target.as_posix()
    is_path = target.is_absolute() or given.startswith(".")
    name = "/".join(target.resolve().parts[-2:]) if is_path else given
    if not _ID.fullmatch(name) or "/" not in name:
        raise DataError(f"{given!r} is not a Minari id: give one such as robot/lift-v0, or a path that ends in one")
    return (target if is_path else local_store() / name), name


def write_minari(folder: Path, name: str, info: StoreInfo, trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories as a dataset of Minari into a new folder, and return their number.

    Goals and action masks become ``infos``, and text its bytes. An episode that neither terminated nor was truncated is
    marked as truncated, as Minari's collector does.

    Args:
        folder: That becomes the dataset.
        name: Its id.
        info: Spaces and environment.
        trajectories: Whole episodes.

    Raises:
        DataError: If one is a later piece of an episode, which Minari has no place for.
    """
    data, count, total = folder / "data", 0, 0
    data.mkdir()
    with own_file(data / "main_data.hdf5", "w") as file:
        for count, trajectory in enumerate(trajectories, start=1):
            if trajectory.start_step:
                step = trajectory.start_step
                raise DataError(f"episode {count - 1} begins at step {step}: Minari holds whole episodes only")
            _write(file.create_group(f"episode_{count - 1}"), count - 1, info, trajectory)
            total += len(trajectory)
    size = (data / "main_data.hdf5").stat().st_size / 1e6
    metadata = {
        "total_episodes": count,
        "total_steps": total,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(_described(info.observation_space)),
        "action_space": json.dumps(_described(info.action_space)),
        "dataset_id": name,
        "minari_version": MINARI_VERSION,
        "dataset_size": round(size, 1),
    }
    spec = _spec(info)
    write_json(data / "metadata.json", metadata if spec is None else {**metadata, "env_spec": spec})
    return count


def _write(group: h5py.Group, number: int, info: StoreInfo, trajectory: Trajectory) -> None:
    group.attrs.update({"id": number, "total_steps": len(trajectory)})
    _put(group, "observations", _nested(info.observation_space, trajectory.obs, ""))
    _put(group, "actions", _parts(ActionCodec(info.action_space).nested(trajectory.actions)))
    ends = trajectory.truncated.copy()
    ends[-1] |= not trajectory.terminated[-1]
    group["rewards"] = trajectory.rewards.astype(np.float64)
    group["terminations"], group["truncations"] = trajectory.terminated, ends
    infos: dict[str, Any] = {"goal": trajectory.goal} if trajectory.goal else {}
    if trajectory.action_mask is not None:
        infos["action_mask"] = trajectory.action_mask
    if infos:
        _put(group, "infos", infos)


def _nested(space: spaces.Space[Any], obs: Mapping[str, np.ndarray], prefix: str) -> Any:
    """Return the values of a space over an episode, nested as it is; categories begin where the space's do."""
    if isinstance(space, spaces.Dict):
        return {key: _nested(sub, obs, f"{prefix}/{key}") for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return {f"_index_{i}": _nested(sub, obs, f"{prefix}/{i}") for i, sub in enumerate(space.spaces)}
    values = obs[prefix[1:] or OBS_KEY]
    return values + space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else values


def _parts(actions: Any) -> Any:
    """Return actions with their parts by name; Minari numbers those of a tuple."""
    if isinstance(actions, tuple):
        return {f"_index_{i}": _parts(part) for i, part in enumerate(actions)}
    return {k: _parts(v) for k, v in actions.items()} if isinstance(actions, dict) else actions


def _put(group: h5py.Group, name: str, values: Any) -> None:
    if isinstance(values, Mapping):
        for key, part in values.items():
            _put(group.require_group(name), key, part)
    else:
        group[name] = values


def _described(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as Minari describes it."""
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "subspaces": {key: _described(sub) for key, sub in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "subspaces": [_described(sub) for sub in space.spaces]}
    found: dict[str, Any] = {"type": type(space).__name__, "dtype": str(space.dtype)}
    if isinstance(space, spaces.Box):
        return {
            **found,
            "type": "Box",
            "shape": list(space.shape),
            "low": space.low.tolist(),
            "high": space.high.tolist(),
        }
    if isinstance(space, spaces.Discrete):
        return {**found, "start": int(space.start), "n": int(space.n)}
    if isinstance(space, spaces.MultiDiscrete):
        return {**found, "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": list(space.shape) if len(space.shape) > 1 else int(space.shape[0])}
    raise DataError(f"a space of type {type(space).__name__} cannot be stored in Minari")


def _spec(info: StoreInfo) -> str | None:
    """Return the environment as gymnasium describes it; id and arguments alone if it is not registered here."""
    if info.env_id is None:
        return None
    try:
        known = gym.registry.get(info.env_id)
        spec = gym.envs.registration.EnvSpec(info.env_id) if known is None else copy.deepcopy(known)
        spec.kwargs = {**spec.kwargs, **info.env_kwargs}
        return spec.to_json()
    except (TypeError, ValueError, gym.error.Error):  # its entry point, an argument, or the id cannot be written
        return None
