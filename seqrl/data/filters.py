"""Filter keys: named lists of episodes, under ``mask/`` of a robomimic file or in a store's ``store.json``."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np

from seqrl.core.errors import DataError, did_you_mean
from seqrl.core.files import new_folder, write_json
from seqrl.core.seeding import generator
from seqrl.core.strict_json import parse_json, sealed, unsealed
from seqrl.data.convert import is_store
from seqrl.data.hdf5_file import foreign_file
from seqrl.data.in_place import changed_in_place
from seqrl.data.ingest import content_of, path_of_cached
from seqrl.data.readers.robomimic import SUFFIXES, as_text, naming, natural_order
from seqrl.data.sampling import split_numbers
from seqrl.data.store import Store

Filters = dict[str, list[str]]


def split_train_val(
    path: Path, valid_fraction: float, *, seed: int, key: str | None, names: tuple[str, str]
) -> Filters:
    """Return filters that split a dataset as ``train.valid_fraction`` with ``train.seed`` would.

    Args:
        path: robomimic file, or store.
        valid_fraction: Share of the episodes that is held out.
        seed: Decides which.
        key: Split the episodes of this filter; the new filters are ``<key>_<name>``. None splits all.
        names: Of the two filters.

    Raises:
        DataError: If the dataset cannot be read, has no such filter, or fewer than two episodes to split.
    """
    chosen = _episodes(path, key)
    if len(chosen) < 2:
        raise DataError(f"{path}: a split needs at least two episodes, but there is {len(chosen)}")
    prefix = "" if key is None else f"{key}_"
    parts = split_numbers(np.arange(len(chosen)), valid_fraction, seed)
    return {f"{prefix}{name}": [chosen[i] for i in part] for name, part in zip(names, parts, strict=True)}


def random_subset(path: Path, num_episodes: int, *, seed: int, key: str | None) -> Filters:
    """Return the filter ``<num_episodes>_demos`` (of a key: ``<key>_<num_episodes>_demos``) of random episodes.

    Of the same seed, a smaller subset is part of a larger one.

    Raises:
        DataError: As :func:`split_train_val`, or if there are not so many episodes.
    """
    chosen = _episodes(path, key)
    if num_episodes > len(chosen):
        raise DataError(f"{path}: {num_episodes} episodes were asked for, but there are {len(chosen)}")
    order = generator(seed, "subset").permutation(len(chosen))[:num_episodes]
    name = f"{num_episodes}_demos" if key is None else f"{key}_{num_episodes}_demos"
    return {name: [chosen[i] for i in sorted(order)]}


def read_filters(path: Path) -> tuple[list[str], Filters]:
    """Return the names of a dataset's episodes in their order, and its filters.

    Raises:
        DataError: If it is neither a readable robomimic file nor a store.
    """
    if is_store(path):
        store = Store(path)
        return store.names, store.info.filters
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if not path.is_file() or path.suffix not in SUFFIXES:
        raise DataError(f"{path} is neither a seqrl store nor a robomimic file ({', '.join(SUFFIXES)})")
    with naming(path), foreign_file(path) as file:
        masks = {k: [as_text(n) for n in v[()]] for k, v in file.get("mask", {}).items()}
        return sorted(file["data"], key=natural_order), masks


def write_filters(path: Path, filters: Filters, *, overwrite: bool = False) -> None:
    """Add filters to a dataset.

    A file is copied, changed and renamed over the old one, and ``store.json`` is replaced at once, so that nothing that
    happens meanwhile can damage the dataset.

    Raises:
        DataError: If a filter is there already and ``overwrite`` is not set, a name is not legal, or the file cannot be
            written, does not fit on the disk twice, or is changed meanwhile.
    """
    _, there = read_filters(path)
    if taken := sorted(filters.keys() & there.keys() if not overwrite else ()):
        raise DataError(f"{path} already has {' and '.join(taken)} among its filters; pass --overwrite to replace")
    if wrong := [key for key in filters if not re.fullmatch(r"[\w.+=-]+", key)]:
        raise DataError(f"a filter's name may contain letters, digits and _.+=-, got {wrong[0]!r}")
    if is_store(path):
        file = path / "store.json"
        value = unsealed(parse_json(file.read_text(encoding="utf-8")))
        write_json(file, sealed({**value, "filters": {**value["filters"], **filters}}))
    else:
        _write_masks(path.resolve(), filters)


def _write_masks(path: Path, filters: Filters) -> None:
    before = content_of(path)
    with changed_in_place(path, "the filters") as file:
        for key, names in filters.items():
            if f"mask/{key}" in file:
                del file[f"mask/{key}"]
            file[f"mask/{key}"] = [name.encode() for name in names]
    after = content_of(path)
    for dones_mean in ("terminated", "truncated"):
        old, new = (path_of_cached(path, content, {"dones_mean": dones_mean}) for content in (before, after))
        if old.exists() and not new.exists():
            with new_folder(new, keep_existing=True) as folder:
                _carry_cache(old, folder, filters)


def _carry_cache(old: Path, folder: Path, filters: Filters) -> None:
    """Let the store that a file was read into serve the file with more filters too: its data are linked, not copied."""
    shutil.copytree(old, folder, copy_function=_link, dirs_exist_ok=True)
    write_filters(folder, filters, overwrite=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def _episodes(path: Path, key: str | None) -> list[str]:
    """Return the names of the episodes of a filter, or all, in the order of the dataset."""
    names, filters = read_filters(path)
    again = [name for name, count in Counter(names).items() if count > 1 or not name]
    if again:
        raise DataError(
            f"{path}: filters name episodes, but {'some have no name' if not all(names) else f'two are {again[0]!r}'}; "
            "'seqrl convert-dataset' writes a copy in which each has a name of its own"
        )
    if key is None:
        return names
    if key not in filters:
        legal = ", ".join(sorted(filters)) or "none"
        raise DataError(f"{path}: no filter key {key!r}{did_you_mean(key, filters)}; it has: {legal}")
    chosen = set(filters[key])
    return [name for name in names if name in chosen]
