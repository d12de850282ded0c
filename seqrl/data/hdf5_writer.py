"""Writes robomimic's HDF5 layout, with two attributes more: the spaces as JSON."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from seqrl.core.spaces import space_to_json
from seqrl.core.types import Trajectory
from seqrl.data.store import StoreInfo

CHUNK_BYTES = 2**18


def write_robomimic(path: Path, info: StoreInfo, trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories as ``data/demo_0``, ``data/demo_1``, ... and return their number.

    ``dones`` holds *terminated*; a dataset ``truncated`` beside it holds the time limits. The file appears under its
    name only when it is whole, and HDF5 1.10 or later reads it. Everything in it has a checksum, which HDF5 compares
    whenever it is read.

    Args:
        path: File to write; an existing one is replaced.
        info: Spaces, environment and filters (written as masks).
        trajectories: What to write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with h5py.File(temporary, "w", libver=("v110", "v110")) as file:
            count = _write(file, info, trajectories)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _write(file: h5py.File, info: StoreInfo, trajectories: Iterable[Trajectory]) -> int:
    data = file.create_group("data")
    data.attrs["env_args"] = _text({"env_name": info.env_id, "type": 2, "env_kwargs": info.env_kwargs})
    data.attrs["observation_space"] = _text(space_to_json(info.observation_space))
    data.attrs["action_space"] = _text(space_to_json(info.action_space))
    count = total = 0
    for count, trajectory in enumerate(trajectories, start=1):
        demo = data.create_group(f"demo_{count - 1}")
        demo.attrs["num_samples"] = len(trajectory)
        demo.attrs["env_name"] = _text(trajectory.env_name)
        for key, values in trajectory.obs.items():
            _put(demo, f"obs/{key}", values[:-1])
            _put(demo, f"next_obs/{key}", values[1:])
        _put(demo, "actions", trajectory.actions)
        _put(demo, "rewards", trajectory.rewards)
        _put(demo, "dones", trajectory.terminated.astype("int64"))
        _put(demo, "truncated", trajectory.truncated.astype("int64"))
        _write_extras(demo, trajectory)
        total += len(trajectory)
    data.attrs["total"] = total
    for key, names in info.filters.items():
        _put(file, f"mask/{key}", np.array([name.encode() for name in names], "S"))
    return count


def _write_extras(demo: h5py.Group, trajectory: Trajectory) -> None:
    """Write what robomimic has no place for, where there is any."""
    for key, values in trajectory.goal.items():
        _put(demo, f"goal/{key}", values)
    if trajectory.action_mask is not None:
        _put(demo, "action_mask", trajectory.action_mask)
    if trajectory.start_step:
        demo.attrs["start_step"] = trajectory.start_step
        demo.attrs["prev_reward"] = trajectory.prev_reward
        if trajectory.prev_action is not None:
            _put(demo, "prev_action", np.asarray(trajectory.prev_action))


def _put(group: h5py.Group, name: str, values: np.ndarray) -> None:
    """Write a dataset in chunks that carry a checksum.

    That of the filter ``gzip`` is used, without compressing: HDF5's own (``fletcher32``) takes a block of zeros for
    whole. What has no values, or is a single number, has no chunks.
    """
    options: dict[str, Any] = {}
    if values.ndim and values.size:
        num_chunks = math.ceil(values.nbytes / CHUNK_BYTES)
        rows = math.ceil(len(values) / min(num_chunks, len(values)))
        options = {"chunks": (rows, *values.shape[1:]), "compression": "gzip", "compression_opts": 0}
    group.create_dataset(name, data=values, **options)


def _text(value: Any) -> np.ndarray:
    """Return text, or JSON, as an attribute of fixed length: HDF5 keeps others apart, without a checksum."""
    text = (value if isinstance(value, str) else json.dumps(value)).encode()
    return np.array(text, f"S{max(1, len(text))}")
