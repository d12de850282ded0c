"""What a robomimic file holds that a store has no place for: kept beside a converted store, and written back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py

from seqrl.core.errors import DataError
from seqrl.core.strict_json import parse_json
from seqrl.data.hdf5_file import foreign_file, own_file
from seqrl.data.readers.robomimic import SUFFIXES, as_text, check_size, environment_id, naming, own_names, own_values
from seqrl.data.store_info import StoreInfo

FILE = "robomimic_rest.hdf5"
"""In the folder of a store: states, models, action dictionaries, attributes."""

_READ = {
    "": ("data", "mask"),
    "data": ("observation_space", "action_space", "spaces_are_known", "actions_are_scaled", "total"),
    "demo": (
        "obs", "next_obs", "actions", "rewards", "dones", "truncated", "goal", "action_mask", "prev_action",
        "prev_reward", "start_step", "env_name", "num_samples",
    ),
}  # fmt: skip
"""Level -> names of datasets, groups and attributes that the reader reads, and the writer writes."""

_ATTRIBUTES, _DONES = "seqrl:attributes", "seqrl:dones"
"""In the file: attributes of what the reader reads, under its names; ``dones`` that go on after a 1."""
_OF_HDF5 = ("DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME")
"""Attributes that lead to places in their file."""


def keep_rest(source: Path, folder: Path) -> None:
    """Write what a robomimic file holds beyond what the reader reads into the folder of its store.

    Raises:
        DataError: If the file is damaged there.
    """
    with naming(source), foreign_file(source) as file, own_file(folder / FILE, "w") as rest:
        copy_missing(file, rest, _READ[""])
        _keep_attributes(file, rest, ("mask",))
        copy_missing(file["data"], rest.create_group("data"), _READ["data"])
        for name, demo in file["data"].items():
            kept = rest.create_group(f"data/{name}")
            copy_missing(demo, kept, _READ["demo"])
            _keep_attributes(demo, kept, _READ["demo"])
            if "dones" in demo and demo["dones"][:-1].any():
                demo.copy("dones", kept, _DONES)


def _keep_attributes(source: h5py.Group, rest: h5py.Group, names: Sequence[str]) -> None:
    """Keep the attributes of entries that the reader reads, and of all in them, without their values."""

    def keep(path: str, item: Any) -> None:
        for attribute in set(item.attrs) - {*_OF_HDF5}:
            _copy_attribute(item, rest.require_group(f"{_ATTRIBUTES}/{path}"), attribute)

    for name in names:
        if isinstance(source.get(name, getlink=True), h5py.HardLink):
            keep(name, source[name])
            if isinstance(source[name], h5py.Group):
                source[name].visititems(lambda path, item, name=name: keep(f"{name}/{path}", item))


def _give_back(rest: h5py.Group, target: h5py.Group) -> None:
    """Write what :func:`keep_rest` keeps of entries that are there again."""

    def give(path: str, item: Any) -> None:
        if path in target:
            for attribute in set(item.attrs) - set(target[path].attrs):
                _copy_attribute(item, target[path], attribute)

    if _ATTRIBUTES in rest:
        rest[_ATTRIBUTES].visititems(give)
    if _DONES in rest and "dones" in target:
        old, new = rest[_DONES], target["dones"]
        if old.shape == new.shape and bool(old[-1]) == bool(new[-1]):
            del target["dones"]
            rest.copy(_DONES, target, "dones")


def carry_rest(source: Path, folder: Path, names: Mapping[str, str]) -> None:
    """Write what the folder of a store keeps into that of a copy of it.

    Args:
        source: Folder of the store.
        folder: Of the copy.
        names: Old name of each episode -> its new one.
    """
    if (source / FILE).is_file():
        with naming(source / FILE), own_file(folder / FILE, "w") as rest:
            _merge(source / FILE, rest, names, is_file=False)


def write_rest(folder: Path, file: Path, info: StoreInfo, old: Sequence[str], new: Sequence[str]) -> None:
    """Add what the folder of a store keeps to the robomimic file that was made of it; nothing in it is replaced.

    Only ``env_args`` are: by the old ones, if these are still those of the store; and ``dones``, by those that went on
    after a 1.

    Args:
        folder: Of the store.
        file: That was written.
        info: Of the store.
        old: Names of its episodes.
        new: Their names in the file.
    """
    if not (folder / FILE).is_file():
        return
    with naming(folder / FILE), own_file(file, "r+") as target:
        _merge(folder / FILE, target, dict(zip(old, new, strict=True)), is_file=True)
        with foreign_file(folder / FILE) as rest:
            if "env_args" in rest["data"].attrs and _names_same(rest["data"].attrs["env_args"], info):
                _copy_attribute(rest["data"], target["data"], "env_args")


def _names_same(env_args: object, info: StoreInfo) -> bool:
    """Tell whether a file's attribute names the environment of a store."""
    found = parse_json(as_text(env_args))
    if not isinstance(found, dict):
        return False
    return (environment_id(found), found.get("env_kwargs") or {}) == (info.env_id, info.env_kwargs)


def stored_states(path: Path, name: str) -> dict[str, Any] | None:
    """Return the simulator's states of an episode: ``states`` ``(T, S)``, and ``model``, its XML or None.

    Args:
        path: A robomimic file, or a store that was converted from one.
        name: Of the episode.

    Returns:
        None where there are none.

    Raises:
        DataError: If the file is damaged there.
    """
    file = path / FILE if path.is_dir() else path
    if not file.is_file() or file.suffix not in SUFFIXES:
        return None
    with naming(file), foreign_file(file) as opened:
        demo = opened["data"][name] if "data" in opened and name in opened["data"] else {}
        if not isinstance(demo, h5py.Group) or "states" not in demo:
            return None
        model = demo.attrs.get("model_file")
        return {"states": own_values(demo, "states"), "model": None if model is None else as_text(model)}


def _merge(path: Path, target: h5py.File, names: Mapping[str, str], *, is_file: bool) -> None:
    """Copy what is kept into a robomimic file, or into what is kept for a copy of the store."""
    own = (_ATTRIBUTES, _DONES) if is_file else ()
    with foreign_file(path) as rest:
        copy_missing(rest, target, ("data", *own))
        data = target.require_group("data")
        copy_missing(rest["data"], data, tuple(rest["data"]))
        pairs = [(rest["data"][old], data.require_group(new)) for old, new in names.items() if old in rest["data"]]
        for kept, demo in pairs:
            copy_missing(kept, demo, own)
        for kept, group in [(rest, target), *pairs] if is_file else ():
            _give_back(kept, group)


def copy_missing(source: h5py.Group, target: h5py.Group, but: Sequence[str]) -> None:
    """Copy the entries and attributes of a group that the target lacks; links that lead elsewhere are left out."""
    if not isinstance(source, h5py.Group):
        raise DataError(f"{source.name} is a dataset, not a group")
    episodes = set(source) if source.name == "/data" else set()  # each by itself
    for name in source:
        is_here = isinstance(source.get(name, getlink=True), h5py.HardLink)
        if name not in but and name not in episodes and name not in target and is_here:
            _check_own(source[name])
            source.copy(name, target)
    for name in source.attrs:
        if name not in but and name not in target.attrs:
            _copy_attribute(source, target, name)


def _check_own(item: Any) -> None:
    """Refuse what keeps its values in other files, here or further down."""
    if isinstance(item, h5py.Dataset):
        check_size(item)
    else:
        for name in own_names(item):
            if isinstance(item.get(name, getlink=True), h5py.HardLink):
                _check_own(item[name])


def _copy_attribute(source: h5py.Group, target: h5py.Group, name: str) -> None:
    target.attrs.create(name, source.attrs[name], dtype=source.attrs.get_id(name).dtype)
