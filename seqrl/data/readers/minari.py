"""Minari's datasets (Farama): a folder ``data`` with ``metadata.json``, and HDF5, Arrow or Parquet files."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
from gymnasium import spaces

from seqrl.core.errors import ConfigError, DataError, EnvError
from seqrl.core.files import expanded
from seqrl.core.spaces import ActionCodec, flatten_obs
from seqrl.core.text import encode_text, readable_space
from seqrl.core.types import Trajectory
from seqrl.data.hdf5_file import foreign_file
from seqrl.data.readers.arrow import images_of, numbers_of, pyarrow_for
from seqrl.data.readers.base import NamedTrajectories, Opened, Reader
from seqrl.data.readers.robomimic import as_text, check_size, naming, natural_order, own_names
from seqrl.data.store_info import StoreInfo

DATA, METADATA = "main_data.hdf5", "metadata.json"
_EPISODE, _INDEX = "episode_", "_index_"
_MOST_DEPTH = 16
_PER_STEP = ("rewards", "terminations", "truncations")


def local_store() -> Path:
    """Return the folder of Minari's local store: ``MINARI_DATASETS_PATH``, else ``~/.minari/datasets``.

    Raises:
        ConfigError: If that needs a home, and there is none.
    """
    return expanded(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets")


def local_dataset(name: str) -> Path | None:
    """Return the folder of a dataset of Minari's local store by its id, such as ``D4RL/pen/human-v2``; None without."""
    try:
        folder = local_store() / name
    except ConfigError:  # there is no home
        return None
    return folder if not Path(name).is_absolute() and os.path.isfile(folder / "data" / METADATA) else None


class Minari(Reader):
    """The folder of a dataset, the folder ``data`` in it, or its HDF5 file."""

    takes: ClassVar[frozenset[str]] = frozenset()

    def can_read(self, path: Path) -> bool:
        """Tell by the names of the files."""
        return _folder(path) is not None

    def open(self, path: Path, options: dict[str, Any]) -> Opened:
        """Open a dataset."""
        return read_minari(path)


def _folder(path: Path) -> Path | None:
    """Return the folder that holds the metadata."""
    found = [path / "data", path] if path.is_dir() else [path.parent] if path.name == DATA else []
    return next((folder for folder in found if (folder / METADATA).is_file()), None)


@contextmanager
def read_minari(path: Path) -> Iterator[tuple[StoreInfo, NamedTrajectories]]:
    """Open a dataset of Minari; one episode is read at a time.

    Raises:
        DataError: If it is damaged, of spaces that seqrl does not know, or needs a package that is not installed.
    """
    with ExitStack() as stack:
        with naming(path, "Minari dataset"):
            folder = _folder(path)
            if folder is None:
                raise DataError(f"{path} has no {METADATA}")
            metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
            info, space = _info(metadata, path)
            format = metadata.get("data_format", "hdf5")
            if format == "hdf5":
                file = stack.enter_context(foreign_file(folder / DATA))
                names = sorted((name for name in own_names(file) if name.startswith(_EPISODE)), key=natural_order)
                read = functools.partial(_hdf5_episode, file, space, info.action_space)
            elif format in ("arrow", "parquet"):
                names = sorted((f.name for f in folder.iterdir() if f.is_dir() and f.name.isdecimal()), key=int)
                read = functools.partial(_arrow_episode, folder, format, space, info.action_space)
            else:
                raise DataError(f"{path}: Minari's format {format!r} is not known; only hdf5, arrow and parquet are")
            if not names:
                raise DataError(f"{path} holds no episodes")
        yield info, _trajectories(names, read, info, path)


def _info(metadata: dict[str, Any], path: Path) -> tuple[StoreInfo, spaces.Space[Any]]:
    space, action = (_space(json.loads(str(metadata[f"{kind}_space"])), 0) for kind in ("observation", "action"))
    try:
        ActionCodec(action)
    except EnvError as error:
        raise DataError(f"{path}: {error}") from error
    spec = json.loads(str(metadata["env_spec"])) if metadata.get("env_spec") else {}
    info = StoreInfo(
        observation_space=readable_space(space),
        action_space=action,
        env_id=spec.get("id"),
        env_kwargs=spec.get("kwargs") or {},
        source=str(path),
    )
    return info, space


def _trajectories(
    names: list[str], read: Callable[[str], dict[str, Any]], info: StoreInfo, path: Path
) -> NamedTrajectories:
    for name in names:
        with naming(path, "Minari dataset"):
            episode = read(name)
            terminated, truncated = (episode[key].astype(bool) for key in ("terminations", "truncations"))
            trajectory = Trajectory(
                obs=flatten_obs(info.observation_space, episode["observations"]),
                actions=ActionCodec(info.action_space).flat(episode["actions"], len(terminated)),
                rewards=episode["rewards"].astype(np.float32),
                terminated=terminated,
                truncated=truncated & ~terminated,
                env_name=str(info.env_id or ""),
            ).check()
        yield name if name.startswith(_EPISODE) else f"{_EPISODE}{name}", trajectory


def _hdf5_episode(
    file: h5py.File, space: spaces.Space[Any], action_space: spaces.Space[Any], name: str
) -> dict[str, Any]:
    """Return name -> values of an episode, nested as the spaces are."""
    episode = file[name]
    own_names(episode)
    seen, actions = (_values(s, episode[k], 0) for s, k in ((space, "observations"), (action_space, "actions")))
    return {"observations": seen, "actions": actions, **{key: _array(episode[key]) for key in _PER_STEP}}


def _arrow_episode(
    folder: Path, format: str, space: spaces.Space[Any], action_space: spaces.Space[Any], name: str
) -> dict[str, Any]:
    """Return the same; in Arrow, what belongs to a step has one row more, which says nothing."""
    pyarrow = pyarrow_for(folder, "minari")
    files = sorted(str(file) for file in (folder / name).glob(f"*.{format}"))
    table = pyarrow.dataset.dataset(files, format=format).to_table().combine_chunks()
    table.validate(full=True)
    columns = {key: table.column(key).combine_chunks() for key in ("observations", "actions", *_PER_STEP)}
    seen = _column_values(space, columns["observations"])
    actions = _column_values(action_space, columns["actions"][:-1])
    steps = {key: numbers_of(columns[key][:-1], ()) for key in _PER_STEP}
    return {"observations": seen, "actions": actions, **steps}


def _column_values(space: spaces.Space[Any], column: Any) -> Any:
    """Return the values of a space in an Arrow array, nested as the space is."""
    if isinstance(space, spaces.Dict):
        return {name: _column_values(sub, column.field(name)) for name, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_column_values(sub, column.field(str(i))) for i, sub in enumerate(space.spaces))
    if isinstance(space, spaces.Text):
        return encode_text([str(text) for text in column.to_pylist()])
    shape = space.shape or ()
    is_image = str(column.type) in ("binary", "large_binary")
    values = images_of(column.to_pylist(), shape) if is_image else numbers_of(column, shape)
    with suppress(TypeError):
        values = values.astype(space.dtype, casting="same_kind", copy=False)
    return values


def _space(found: Any, depth: int) -> spaces.Space[Any]:
    """Return the space that Minari's JSON describes."""
    kind = found.get("type")
    if depth > _MOST_DEPTH:
        raise DataError(f"spaces are nested more than {_MOST_DEPTH} deep")
    if kind == "Dict":
        return spaces.Dict({name: _space(sub, depth + 1) for name, sub in found["subspaces"].items()})
    if kind == "Tuple":
        return spaces.Tuple([_space(sub, depth + 1) for sub in found["subspaces"]])
    if kind == "Box":
        dtype = np.dtype(found["dtype"])
        shape = tuple(found["shape"])
        low, high = (np.broadcast_to(np.asarray(found[bound], dtype), shape) for bound in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(int(found["n"]), start=int(found.get("start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(
            np.asarray(found["nvec"]), start=np.asarray(found["start"]) if "start" in found else None
        )
    if kind == "MultiBinary":
        return spaces.MultiBinary(found["n"])
    if kind == "Text":
        return spaces.Text(int(found["max_length"]))
    raise DataError(f"a space of type {kind!r} is not known")


def _values(space: spaces.Space[Any], item: Any, depth: int) -> Any:
    """Return the values of a space over an episode, nested as the space is."""
    if isinstance(item, h5py.Group):
        own_names(item)
    if isinstance(space, spaces.Dict):
        return {name: _values(sub, item[name], depth + 1) for name, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_values(sub, item[f"{_INDEX}{i}"], depth + 1) for i, sub in enumerate(space.spaces))
    if isinstance(space, spaces.Text):
        return encode_text([as_text(value) for value in _array(item, "SUO")])
    shape = space.shape or ()
    is_jpeg = len(shape) == 3 and item.dtype == np.uint8 and item.ndim == 2  # all files of one length
    if is_jpeg or h5py.check_vlen_dtype(item.dtype) is not None:
        values = images_of([bytes(row) for row in _array(item, "uO")], shape)
    else:
        values = _array(item)
    if values.shape[1:] != space.shape:
        raise DataError(f"{item.name} has rows of shape {values.shape[1:]}, but its space is {space}")
    with suppress(TypeError):
        values = values.astype(space.dtype, casting="same_kind", copy=False)
    return values


def _array(item: Any, kinds: str = "biuf") -> np.ndarray:
    """Return what a dataset holds, if it is of one of NumPy's ``kinds``, and the file is large enough for it."""
    if not isinstance(item, h5py.Dataset) or (item.size and item.dtype.kind not in kinds):
        raise DataError(f"{item.name} is not a dataset of {'numbers' if kinds == 'biuf' else 'text or images'}")
    check_size(item)
    values: np.ndarray = item[()]
    return values
