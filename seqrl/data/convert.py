"""From foreign files to stores, and from a store to a robomimic file, with nothing lost, or to a dataset of Minari."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from seqrl.core.errors import DataError
from seqrl.core.files import new_folder
from seqrl.data.disk_space import check_space
from seqrl.data.ingest import ingest, located, open_store
from seqrl.data.readers import choose_reader
from seqrl.data.readers.robomimic import SUFFIXES
from seqrl.data.robomimic_rest import carry_rest, keep_rest
from seqrl.data.robosuite_raw import is_raw, write_robomimic_of_raw
from seqrl.data.store import Store, StoreWriter
from seqrl.data.writers.minari import minari_folder, write_minari
from seqrl.data.writers.robomimic import episode_names, renamed_filters, write_robomimic

logger = logging.getLogger(__name__)


def is_store(path: Path) -> bool:
    """Tell whether a path is the folder of a store."""
    return (path / "store.json").exists()


def convert(
    source: Path,
    target: Path,
    *,
    overwrite: bool = False,
    options: dict[str, Any] | None = None,
    format: str | None = None,
    to: Literal["robomimic", "store", "minari"] | None = None,
) -> int:
    """Write a dataset in another format, and return its number of episodes.

    A ``target`` that ends in .hdf5 or .h5 becomes a robomimic file, any other a store, unless ``to`` says otherwise.
    Episodes of a store keep the names ``demo_<k>`` if all have such, else they are numbered; filters follow. What a
    robomimic file holds beyond that (``states``, ``model_file``, ``action_dict``, attributes) is kept with the store,
    and written back. What robosuite collected becomes a robomimic file, still without observations. The target appears
    when it is whole.

    Args:
        source: A store, or a foreign file or folder.
        target: File, or folder, to write; of Minari also an id (:func:`~seqrl.data.writers.minari.minari_folder`).
        overwrite: Replace a target that exists.
        options: Of the reader.
        format: Name of the reader; None asks the readers.
        to: Format of the target; None goes by its name.

    Raises:
        DataError: If the source cannot be read, the target is there or would not fit, or is not of another format.
    """
    if to == "minari":
        return _to_minari(source, target, overwrite=overwrite, options=options, format=format)
    is_file = target.suffix in SUFFIXES
    if to is not None and is_file != (to == "robomimic"):
        raise DataError(f"{target}: a robomimic file ends in {' or '.join(SUFFIXES)}, a store does not")
    _check_target(source, target, is_file=is_file, overwrite=overwrite)
    if is_raw(located(source)):
        return _of_raw(located(source), target, is_file=is_file)
    is_robomimic = not is_store(source) and choose_reader(located(source), format)[0] == "robomimic"
    if is_robomimic and is_file:
        raise DataError(f"{source} is already a robomimic file; give a folder to write a store")
    if not is_store(source) and not is_file:
        with new_folder(target) as temporary:
            ingest(source, temporary, options, format=format)
            if is_robomimic:
                keep_rest(located(source), temporary)
        return len(Store(target))
    if is_store(source) and (options or {}).get("dones_mean") == "truncated":
        raise DataError(f"{source} is a store, which knows its time limits: dones_mean is for files")
    store = open_store(str(source), options, format=format)
    if not len(store):
        raise DataError(f"{source} holds no trajectories")
    copies = 2 if is_file and store.info.has_next_obs else 1  # obs and next_obs
    check_space(target.parent, copies * store.num_bytes, str(target))
    if is_file:
        return write_robomimic(target, store.info, store.trajectories(), store.names, kept=store.path)
    _copy(store, target)
    return len(store)


def _of_raw(source: Path, target: Path, *, is_file: bool) -> int:
    if not is_file:
        raise DataError(
            f"{source} holds states of a simulator and no observations: convert it to a file (.hdf5), then run "
            "seqrl dataset-states-to-obs"
        )
    return write_robomimic_of_raw(source, target)


def _to_minari(
    source: Path, target: Path, *, overwrite: bool, options: dict[str, Any] | None, format: str | None
) -> int:
    folder, name = minari_folder(target)
    given = located(source).resolve()
    if folder.resolve() in (given, *given.parents):
        raise DataError(f"{folder} is, or contains, the data to convert; give another id")
    if folder.exists() and not (overwrite and (folder / "data" / "metadata.json").is_file()):
        raise DataError(
            f"{folder} exists" + ("; pass --overwrite to replace it" if not overwrite else ", and is not a dataset")
        )
    store = open_store(str(source), options, format=format)
    if not len(store):
        raise DataError(f"{source} holds no trajectories")
    if not store.info.has_next_obs:
        logger.warning("%s lacks the last observations, which Minari stores: the one before it is repeated", source)
    check_space(folder.parent, store.num_bytes, str(folder))
    with new_folder(folder) as temporary:
        return write_minari(temporary, name, store.info, store.trajectories())


def _copy(store: Store, target: Path) -> None:
    """Write a store again: in one piece, protected, each episode with a name."""
    names = episode_names(store.names)
    info = replace(store.info, filters=renamed_filters(store.info.filters, store.names, names))
    with new_folder(target) as temporary, StoreWriter(temporary, info) as writer:
        for name, trajectory in zip(names, store.trajectories(), strict=True):
            writer.append(trajectory, name)
        carry_rest(store.path, temporary, dict(zip(store.names, names, strict=True)))


def _check_target(source: Path, target: Path, *, is_file: bool, overwrite: bool) -> None:
    if target.resolve() in (source.resolve(), *source.resolve().parents):
        raise DataError(f"{target} is, or contains, the data to convert; give another target")
    if not target.exists():
        return
    if is_file != target.is_file() or (not is_file and not is_store(target)):
        raise DataError(f"{target} exists and is not a {'file' if is_file else 'store'}, so it is not replaced")
    if not overwrite:
        raise DataError(f"{target} exists; pass --overwrite to replace it")
