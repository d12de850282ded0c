"""Episodes as they lie in a dataset, read one by one, whatever is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.spaces import space_from_json
from seqrl.core.strict_json import parse_json
from seqrl.core.text import encode_text
from seqrl.data.convert import is_store
from seqrl.data.hdf5_file import foreign_file
from seqrl.data.readers.d4rl import D4RL
from seqrl.data.readers.robomimic import SUFFIXES, as_text, check_size, datasets, is_text, natural_order, one_each
from seqrl.data.store import Store

_READ_ERRORS = (
    DataError,
    OSError,
    KeyError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    IndexError,
    MemoryError,
)
_GROUPS = ("obs", "next_obs", "goal")
FLAT = ("rewards", "dones", "truncated")
"""What has one number for each step."""
_PLAIN = ("actions", "rewards", "dones", "truncated", "action_mask", "prev_action")


@dataclass
class RawEpisode:
    """One episode, unchecked.

    Attributes:
        name: In the dataset.
        arrays: ``obs/<k>``, ``next_obs/<k>``, ``actions``, ``rewards``, ``dones``, ``truncated`` should have T rows,
            ``goal/<k>`` and ``action_mask`` T + 1.
        faults: What cannot be read -> why.
    """

    name: str
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> int | None:
        """T, the number of actions; None where they cannot be counted."""
        actions = self.arrays.get("actions")
        return None if actions is None or actions.ndim == 0 else len(actions)

    def entries(self, group: str) -> dict[str, np.ndarray]:
        """Return name -> array of ``obs``, ``next_obs`` or ``goal``."""
        return {k[len(group) + 1 :]: v for k, v in self.arrays.items() if k.startswith(f"{group}/")}


@dataclass
class RawDataset:
    """What a dataset says of itself, and its episodes.

    Attributes:
        names: Of the episodes.
        filters: Filter key -> names.
        action_space: None where it says none.
        observation_space: None where it says none.
        faults: What is wrong beside the episodes.
        episodes: Read one by one, each once.
    """

    names: list[str] = field(default_factory=list)
    filters: dict[str, list[str]] = field(default_factory=dict)
    action_space: spaces.Space[Any] | None = None
    observation_space: spaces.Space[Any] | None = None
    faults: list[str] = field(default_factory=list)
    episodes: Iterator[RawEpisode] = field(default_factory=lambda: iter(()))


@contextmanager
def open_raw(path: Path) -> Iterator[RawDataset]:
    """Open a robomimic file, or a store.

    Raises:
        DataError: If there is neither.
    """
    if is_store(path):
        yield _of_store(path)
        return
    if not path.exists():
        raise DataError(f"{path} is neither a seqrl store nor a file")
    if not path.is_file() or not (path.suffix in SUFFIXES or h5py.is_hdf5(path)) or D4RL().can_read(path):
        raise DataError(
            f"{path} is neither a seqrl store nor a robomimic file; convert it: seqrl convert-dataset {path} STORE"
        )
    try:
        file = foreign_file(path)
    except (OSError, DataError) as error:
        yield RawDataset(faults=[f"not an HDF5 file, or damaged ({error})"])
        return
    with file:
        yield _of_file(file)


# ----------------------------------------------------------------------------------------------- stores
def _of_store(path: Path) -> RawDataset:
    try:
        store = Store(path)
    except DataError as error:
        return RawDataset(faults=[str(error)])
    try:
        faults = store.verify()
    except DataError as error:
        faults = [str(error)]
    info, names = store.info, [name or f"#{i}" for i, name in enumerate(store.names)]
    return RawDataset(
        names, info.filters, info.action_space, info.observation_space, faults, _store_episodes(store, names)
    )


def _store_episodes(store: Store, names: list[str]) -> Iterator[RawEpisode]:
    for number, name in enumerate(names):
        try:
            trajectory = store.trajectory(number)
        except DataError as error:
            yield RawEpisode(name, faults={"it": str(error)})
            continue
        arrays = {f"obs/{k}": v[:-1] for k, v in trajectory.obs.items()}
        if store.info.has_next_obs:
            arrays |= {f"next_obs/{k}": v[1:] for k, v in trajectory.obs.items()}
        arrays |= {f"goal/{k}": v for k, v in trajectory.goal.items()}
        arrays |= {"actions": trajectory.actions, "rewards": trajectory.rewards}
        arrays |= {"dones": trajectory.terminated, "truncated": trajectory.truncated}
        if trajectory.action_mask is not None:
            arrays["action_mask"] = trajectory.action_mask
        yield RawEpisode(name, arrays)


# ------------------------------------------------------------------------------------------------ files
def _of_file(file: h5py.File) -> RawDataset:
    raw = RawDataset()
    data = _group(file, "data", raw.faults)
    if data is None:
        raw.faults = raw.faults or [f"has no group 'data'; it has {', '.join(_listed(file, [])) or 'nothing'}"]
        return raw
    raw.names = sorted(_listed(data, raw.faults), key=natural_order)
    if not (raw.names or raw.faults):
        raw.faults.append("the group 'data' holds no episodes")
    raw.action_space = _space(data, "action_space", raw.faults)
    raw.observation_space = _space(data, "observation_space", raw.faults)
    _check_environment(data, raw.faults)
    raw.filters = _filters(file, raw.faults)
    raw.episodes = (_file_episode(data, name) for name in raw.names)
    return raw


def _group(parent: h5py.Group, name: str, faults: list[str]) -> h5py.Group | None:
    try:
        if name not in parent:
            return None
        item = parent[name]
    except _READ_ERRORS as error:
        faults.append(f"{name!r} cannot be read ({error})")
        return None
    if not isinstance(item, h5py.Group):
        faults.append(f"{name!r} is not a group")
        return None
    return item


def _listed(group: h5py.Group, faults: list[str]) -> list[str]:
    try:
        return list(group)
    except _READ_ERRORS as error:
        faults.append(f"{group.name!r} cannot be listed ({error})")
        return []


def _check_environment(data: h5py.Group, faults: list[str]) -> None:
    value = _json(data, "env_args", faults) or {}
    name, kwargs = value.get("env_name"), value.get("env_kwargs") or {}
    if not (name is None or isinstance(name, str)) or not isinstance(kwargs, dict):
        faults.append("the attribute 'env_args' of 'data' needs a text 'env_name' and an object 'env_kwargs'")


def _json(data: h5py.Group, name: str, faults: list[str]) -> dict[str, Any] | None:
    try:
        value = parse_json(as_text(data.attrs[name])) if name in data.attrs else None
    except _READ_ERRORS as error:
        faults.append(f"the attribute {name!r} of 'data' is not JSON ({error})")
        return None
    if value is None or isinstance(value, dict):
        return value
    faults.append(f"the attribute {name!r} of 'data' is not a JSON object")
    return None


def _space(data: h5py.Group, name: str, faults: list[str]) -> spaces.Space[Any] | None:
    value = _json(data, name, faults)
    if value is None:
        return None
    try:
        return space_from_json(value)
    except DataError as error:
        faults.append(f"the attribute {name!r} of 'data': {error}")
        return None


def _filters(file: h5py.File, faults: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    masks = _group(file, "mask", faults)
    if masks is None:
        return found
    for key in _listed(masks, faults):
        try:
            found[key] = [as_text(n) for n in masks[key][()]]
        except _READ_ERRORS as error:
            faults.append(f"mask/{key} cannot be read ({error})")
    return found


def _file_episode(data: h5py.Group, name: str) -> RawEpisode:
    episode = RawEpisode(name)
    problems: list[str] = []
    demo = _group(data, name, problems)
    if demo is None:
        episode.faults["it"] = "; ".join(problems) or "it is not there"
        return episode
    found: dict[str, Any] = {}
    for prefix in _GROUPS:
        try:
            if prefix in demo:
                found |= {f"{prefix}/{k}": v for k, v in datasets(demo[prefix]).items()}
        except _READ_ERRORS as error:
            episode.faults[prefix] = str(error)
    there = _listed(demo, problems)
    if problems:
        episode.faults["it"] = "; ".join(problems)
    found |= {key: demo.get(key) for key in _PLAIN if key in there}
    for key, item in found.items():
        try:
            if item is None:
                raise KeyError("there is nothing readable under its name")
            check_size(item)
            values = encode_text(item[()]) if "/" in key and is_text(item) else np.asarray(item[()])
            episode.arrays[key] = one_each(values) if key in FLAT else values
        except _READ_ERRORS as error:
            episode.faults[key] = str(error)
    return episode
