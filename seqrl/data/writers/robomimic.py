"""Writes robomimic's HDF5 layout, with attributes more: the spaces as JSON, and whether they are known."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from seqrl.core.files import new_file
from seqrl.core.spaces import space_to_json
from seqrl.core.types import Trajectory
from seqrl.data.disk_space import check_space
from seqrl.data.hdf5_file import own_file
from seqrl.data.readers.robomimic import ROBOSUITE
from seqrl.data.robomimic_rest import write_rest
from seqrl.data.store_info import StoreInfo

CHUNK_BYTES = 2**18
RESERVE = 2_000_000
"""Bytes of the disk that HDF5's own entries may need."""


def write_robomimic(
    path: Path,
    info: StoreInfo,
    trajectories: Iterable[Trajectory],
    names: Sequence[str] | None = None,
    *,
    kept: Path | None = None,
) -> int:
    """Write trajectories as ``data/demo_<k>`` and return their number.

    ``dones`` holds *terminated*; a dataset ``truncated`` beside it holds the time limits. ``next_obs`` is written where
    the last observation is a true one. The file appears under its name only when it is whole, and HDF5 1.10 or later
    reads it. Everything in it has a checksum, which HDF5 compares whenever it is read.

    Args:
        path: File to write; an existing one is replaced.
        info: Spaces, environment and filters (written as masks).
        trajectories: What to write.
        names: Of the trajectories, by which the filters name them; None is ``demo_0``, ``demo_1``, ... Names that
            robomimic cannot read are replaced by these, in the filters too.
        kept: Folder of a store that may keep what another robomimic file held, which is written too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new_names = None if names is None else episode_names(names)
    filters = info.filters
    if names is not None and new_names is not None:
        filters = renamed_filters(filters, names, new_names)
    with new_file(path) as temporary:
        with own_file(temporary, "w", libver=("v110", "v110")) as file:
            count = _write(file, info, _that_fit(path, trajectories), new_names)
            for key, chosen in filters.items():
                _put(file, f"mask/{key}", np.array([name.encode() for name in chosen], "S"))
        if kept is not None and names is not None and new_names is not None:
            write_rest(kept, temporary, info, names, new_names)
    return count


def _that_fit(path: Path, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """Yield trajectories for which there is room on the disk: HDF5 may crash the process where there is none."""
    for trajectory in trajectories:
        parts = (*trajectory.obs.values(), *trajectory.goal.values(), trajectory.actions)
        check_space(path.parent, 2 * sum(v.nbytes for v in parts) + RESERVE, f"{path}: the next episode")
        yield trajectory


def episode_names(names: Sequence[str]) -> list[str]:
    """Return names that robomimic can read: those given if all are ``demo_<k>`` and differ, else new ones in order."""
    are_legal = all(re.fullmatch(r"demo_\d+", name) for name in names) and len(set(names)) == len(names)
    return list(names) if are_legal else [f"demo_{i}" for i in range(len(names))]


def renamed_filters(filters: Mapping[str, list[str]], old: Sequence[str], new: Sequence[str]) -> dict[str, list[str]]:
    """Return the filters with each episode's old name replaced by its new one."""
    if list(old) == list(new):
        return dict(filters)
    chosen = {key: set(names) for key, names in filters.items()}
    return {key: [n for o, n in zip(old, new, strict=True) if o in chosen[key]] for key in filters}


def _write(file: h5py.File, info: StoreInfo, trajectories: Iterable[Trajectory], names: Sequence[str] | None) -> int:
    data = file.create_group("data")
    is_robosuite = (info.env_id or "").startswith(ROBOSUITE)
    name = info.env_id.removeprefix(ROBOSUITE) if info.env_id else None
    data.attrs["env_args"] = _text({"env_name": name, "type": 1 if is_robosuite else 2, "env_kwargs": info.env_kwargs})
    data.attrs["observation_space"] = _text(space_to_json(info.observation_space))
    data.attrs["action_space"] = _text(space_to_json(info.action_space))
    if not info.spaces_are_known:
        data.attrs["spaces_are_known"] = False
    if not info.actions_are_scaled:
        data.attrs["actions_are_scaled"] = False
    count = total = 0
    for count, trajectory in enumerate(trajectories, start=1):
        demo = data.create_group(f"demo_{count - 1}" if names is None else names[count - 1])
        demo.attrs["num_samples"] = len(trajectory)
        demo.attrs["env_name"] = _text(trajectory.env_name)
        for key, values in trajectory.obs.items():
            _put(demo, f"obs/{key}", values[:-1])
            if info.has_next_obs:
                _put(demo, f"next_obs/{key}", values[1:])
        _put(demo, "actions", trajectory.actions)
        _put(demo, "rewards", trajectory.rewards)
        _put(demo, "dones", trajectory.terminated.astype("int64"))
        _put(demo, "truncated", trajectory.truncated.astype("int64"))
        _write_extras(demo, trajectory)
        total += len(trajectory)
    data.attrs["total"] = total
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
