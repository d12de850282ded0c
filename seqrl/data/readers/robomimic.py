"""robomimic's HDF5 layout: ``data/demo_k/{obs,next_obs,actions,rewards,dones}``, ``env_args``, ``mask/<key>``."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError, did_you_mean
from seqrl.core.spaces import MASK_KEY, extremes, infer_action_space, infer_observation_space, space_from_json
from seqrl.core.strict_json import parse_json
from seqrl.core.text import TEXT_BYTES, encode_text
from seqrl.core.types import Trajectory
from seqrl.data.disk_space import LOG_LINE_BYTES, StoreSize
from seqrl.data.hdf5_file import foreign_file
from seqrl.data.readers.action_columns import ActionColumns
from seqrl.data.readers.base import NamedTrajectories, Opened, Reader
from seqrl.data.store_info import StoreInfo

logger = logging.getLogger(__name__)

SUFFIXES = (".hdf5", ".h5")
ACTION_DICT = "action_dict"
"""Group of an episode with other forms of its actions."""
ROBOSUITE = "robosuite/"
"""Prefix of the ids of robosuite's tasks; robomimic tells them by a type."""
_MOST_PER_BYTE = 2048
"""No compression of HDF5's makes more bytes than this out of one, so a larger dataset is a damaged size."""
_MOST_ENTRIES, _MOST_DEPTH = 1000, 16
"""Of the observations of an episode: links may form a circle."""
_REWARD_AND_ENDS_BYTES = 4 + 1 + 1


class Robomimic(Reader):
    """HDF5 files with a group ``data``, and whatever ends in .hdf5 or .h5: if it is damaged, this reader says how."""

    takes: ClassVar[frozenset[str]] = frozenset({"dones_mean", "action_keys", "action_rotations"})

    def can_read(self, path: Path) -> bool:
        """Tell by the suffix, else by the content."""
        return path.is_file() and (path.suffix in SUFFIXES or _has_data(path))

    def open(self, path: Path, options: dict[str, Any]) -> Opened:
        """Open a file."""
        return read_robomimic(path, options)

    def predicted_size(self, path: Path) -> StoreSize | None:
        """Return the size of the store, from shapes and dtypes; None where the file is damaged."""
        return predicted_size(path)


def _has_data(path: Path) -> bool:
    try:
        with foreign_file(path) as file:
            return "data" in list(file)
    except (OSError, RuntimeError, ValueError, DataError):
        return False


@contextmanager
def read_robomimic(path: Path, options: dict[str, Any]) -> Iterator[tuple[StoreInfo, NamedTrajectories]]:
    """Open a robomimic file.

    Args:
        path: HDF5 file.
        options: ``dones_mean``: ``terminated`` (default) or ``truncated``, what a 1 in ``dones`` says.
            ``action_keys``: columns that make up the action, in an episode or its ``action_dict``.
            ``action_rotations``: those that hold rotations -> ``axis_angle`` or ``6d``.

    Raises:
        DataError: If it is no HDF5 file, lacks a group or a dataset, or its lengths do not agree.
    """
    dones_mean = options.get("dones_mean", "terminated")
    with contextlib.ExitStack() as stack:
        with naming(path):
            file = stack.enter_context(foreign_file(path))
            names = _demo_names(file, path)
            columns = ActionColumns.of(options)
            info = _info(file, names, columns, path)
        yield info, _trajectories(file, names, info, columns, dones_mean, path)


@contextmanager
def naming(path: Path, kind: str = "robomimic HDF5 file", *, where: str = "") -> Iterator[None]:
    """Turn whatever goes wrong while reading into a DataError that names the file, and where in it."""
    try:
        yield
    except DataError as error:
        text = str(error)
        if where and where not in text:
            text = f"{where}: {text.removeprefix(f'{path}: ')}"
        raise error if str(path) in text else DataError(f"{path}: {text}") from error
    except (
        OSError,
        LookupError,
        RuntimeError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        AssertionError,
        MemoryError,
    ) as error:
        raise DataError(f"{path}: {f'{where}: ' if where else ''}not a readable {kind} ({error})") from error


def _trajectories(
    file: h5py.File, names: list[str], info: StoreInfo, columns: ActionColumns, dones_mean: str, path: Path
) -> NamedTrajectories:
    for name in names:
        with naming(path, where=f"/data/{name}"):
            trajectory = _trajectory(file["data"][name], info, columns, dones_mean, path).check()
        yield name, trajectory


def natural_order(name: str) -> list[int | str]:
    """Return a key that sorts ``demo_2`` before ``demo_10``."""
    return [int(p) if p.isdecimal() else p for p in re.split(r"(\d+)", name)]


def _demo_names(file: h5py.File, path: Path) -> list[str]:
    if not _has(file, "data"):
        hint = "Another format is read by the reader of a plug-in (--plugin)"
        if {"observations", "actions"} <= set(file):
            hint = "A file as D4RL's has observations, actions, rewards and terminals"
        raise DataError(f"{path}: has no group 'data'; it has {', '.join(file) or 'nothing'}. {hint}")
    names = sorted(own_names(file["data"]), key=natural_order)
    if not names:
        raise DataError(f"{path}: the group 'data' holds no episodes")
    for name in names:
        missing = [k for k in ("obs", "actions") if not _has(file["data"][name], k)]
        if missing:
            has_states = "obs" in missing and _has(file["data"][name], "states")
            hint = "; seqrl dataset-states-to-obs makes them from its states" if has_states else ""
            raise DataError(f"{path}: data/{name} lacks {', '.join(missing)}{hint}")
    return names


def _info(file: h5py.File, names: list[str], columns: ActionColumns, path: Path) -> StoreInfo:
    data = file["data"]
    env_args = _json_attribute(data, "env_args", path) or {}
    if not isinstance(env_args, dict):
        raise DataError(f"{path}: the attribute 'env_args' of 'data' is not a JSON object")
    first = data[names[0]]
    observation, action = (_json_attribute(data, f"{k}_space", path) for k in ("observation", "action"))
    if not columns.is_default:
        action = None  # speaks of the file's actions
    if action is not None:
        action_space = space_from_json(action)
    else:
        action_space = infer_action_space(extremes(_actions_of_each(data, names, columns)))
        action_space = columns.space(action_space, _columns(first, columns))
        if isinstance(action_space, spaces.Discrete) and (num := _masked_actions(first)) > action_space.n:
            action_space = spaces.Discrete(num)  # the mask knows actions that nobody took
    if observation is not None:
        observation_space = space_from_json(observation)
    else:
        observation_space = infer_observation_space(datasets(first["obs"]))
    masks = file["mask"] if _has(file, "mask") else {}
    without = [n for n in names if not _has(data[n], "next_obs")]
    if 0 < len(without) < len(names):
        logger.warning(
            "%s: data/%s has no next_obs, so those of the other episodes are not used, and only imitation without "
            "subgoals can use the data", path, without[0],
        )  # fmt: skip
    are_known = bool(_attribute(data, "spaces_are_known", True))
    has_units = not columns.is_default or (action is not None and observation is None and are_known)
    return StoreInfo(
        observation_space=observation_space,
        action_space=action_space,
        env_id=environment_id(env_args),
        env_kwargs=env_args.get("env_kwargs") or {},
        spaces_are_known=None not in (observation, action) and are_known,
        actions_are_scaled=bool(_attribute(data, "actions_are_scaled", not has_units)),
        has_next_obs=not without,
        has_rewards=any(_has(data[n], "rewards") for n in names),
        filters={k: [as_text(n) for n in _content(v, "SUO")] for k, v in masks.items()},
        source=str(path),
    )


def _actions_of_each(data: h5py.Group, names: list[str], columns: ActionColumns) -> Iterator[np.ndarray]:
    """Return the actions of all episodes.

    Raises:
        DataError: If they differ in shape.
    """
    shape = None
    for name in names:
        actions = columns.joined(_columns(data[name], columns))
        shape = actions.shape[1:] if shape is None else shape
        if actions.shape[1:] != shape:
            raise DataError(f"/data/{name}: actions are {list(actions.shape[1:])}, those before it {list(shape)}")
        yield actions


def _columns(demo: h5py.Group, columns: ActionColumns) -> dict[str, np.ndarray]:
    """Return the columns of an episode by name; a name is one in the episode, or in its ``action_dict``.

    Raises:
        DataError: If there is none of a name.
    """
    found = {}
    for key in columns.keys:
        folder, _, name = (key if _has(demo, key.split("/")[0]) else f"{ACTION_DICT}/{key}").rpartition("/")
        group = demo if not folder else demo[folder] if _has(demo, folder) else None
        if group is None or not _has(group, name):
            inner = own_names(demo[ACTION_DICT]) if _has(demo, ACTION_DICT) else []
            near = did_you_mean(name, [*inner, "actions"])
            raise DataError(f"{demo.name} has no column {key!r}{near}; it has {', '.join(['actions', *inner])}")
        found[key] = own_values(group, name)
    return found


def environment_id(env_args: dict[str, Any]) -> Any:
    """Return the id of the environment that the attribute ``env_args`` names: those of type 1 are robosuite's."""
    name = env_args.get("env_name")
    return f"{ROBOSUITE}{name}" if env_args.get("type") == 1 and isinstance(name, str) else name


def _masked_actions(demo: h5py.Group) -> int:
    """Return the width of an episode's action mask; 0 if there is none."""
    group = demo if _has(demo, MASK_KEY) else demo["obs"]
    mask = group[MASK_KEY] if _has(group, MASK_KEY) else None
    return int(mask.shape[-1]) if isinstance(mask, h5py.Dataset) and mask.ndim > 1 else 0


def _trajectory(demo: h5py.Group, info: StoreInfo, columns: ActionColumns, dones_mean: str, path: Path) -> Trajectory:
    obs = {k: _observed(v) for k, v in datasets(demo["obs"]).items()}
    actions = columns.joined(_columns(demo, columns))
    steps = len(actions)
    rewards = _one_each(demo["rewards"]) if _has(demo, "rewards") else np.zeros(steps, np.float32)
    terminated, truncated = _ends(demo, steps, dones_mean, path)
    after = {k: _observed(v) for k, v in datasets(demo["next_obs"]).items()} if _has(demo, "next_obs") else None
    expected = {"rewards": rewards, "terminated": terminated, "truncated": truncated} | obs
    wrong = [f"{k} has {len(v)} rows" for k, v in expected.items() if len(v) != steps]
    if wrong or (after is not None and after.keys() != obs.keys()):
        raise DataError(f"{path}: {demo.name} has {steps} actions, but {'; '.join(wrong) or 'other keys in next_obs'}")
    if after is not None:
        wrong = [f"next_obs/{k} is {v.shape}" for k, v in after.items() if v.shape != obs[k].shape]
        if wrong:
            raise DataError(f"{path}: {demo.name}: {'; '.join(wrong)}, unlike obs")
    last = {k: (v if after is None else after[k])[-1:] for k, v in obs.items()}
    return Trajectory(
        obs={k: np.concatenate([v, last[k]]) for k, v in obs.items()},
        actions=actions,
        rewards=rewards.astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        env_name=as_text(_attribute(demo, "env_name", info.env_id or "")),
        start_step=int(_attribute(demo, "start_step", 0)),
        prev_action=_numbers(demo["prev_action"]) if columns.is_default and _has(demo, "prev_action") else None,
        prev_reward=float(_attribute(demo, "prev_reward", 0.0)),
        goal={k: _observed(v) for k, v in datasets(demo["goal"]).items()} if _has(demo, "goal") else {},
        action_mask=_numbers(demo["action_mask"]) if _has(demo, "action_mask") else None,
    )


_WARNED: set[Path] = set()
"""Files whose ``dones`` were told of once, not for each episode."""


def _ends(demo: h5py.Group, steps: int, dones_mean: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return terminated and truncated; an episode that ends with neither was cut, so it is truncated."""
    dones = _one_each(demo["dones"]).astype(bool) if _has(demo, "dones") else np.zeros(steps, bool)
    if not (_has(demo, "dones") or _has(demo, "truncated") or path in _WARNED):
        _WARNED.add(path)
        logger.warning("%s: %s has no 'dones', so it is read as cut: values go on behind its end", path, demo.name)
    if _has(demo, "truncated"):
        return dones, _one_each(demo["truncated"]).astype(bool)
    if len(dones) != steps:
        return dones, dones
    if dones[:-1].any() and path not in _WARNED:
        _WARNED.add(path)
        logger.warning("%s: %s continues after 'dones'; only the last step of an episode counts", path, demo.name)
    terminated, truncated = np.zeros(steps, bool), np.zeros(steps, bool)
    terminated[-1:] = dones[-1:] if dones_mean == "terminated" else False
    truncated[-1:] = ~terminated[-1:]
    return terminated, truncated


def own_names(group: Any) -> list[str]:
    """Return what a group lists.

    Raises:
        DataError: If it is none, or something in it leads to another file.
    """
    if not isinstance(group, h5py.Group):
        raise DataError(f"{group.name} is a dataset, not a group")
    names = list(group)
    for name in names:
        if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
            raise DataError(f"{group.name}: {name} leads to another file, which is not read")
    return names


def _has(group: Any, name: str) -> bool:
    """Tell whether a group lists a name; h5py's ``in`` and ``get`` take what is there, but damaged, for absent."""
    return name in own_names(group)


def _attribute(item: h5py.Group, name: str, default: Any) -> Any:
    return item.attrs[name] if name in item.attrs else default  # noqa: SIM401  (as above)


def own_values(group: Any, name: str) -> np.ndarray:
    """Return the numbers of a dataset that lies in the file itself.

    Raises:
        DataError: If it lies elsewhere, is missing, or holds something else.
    """
    if name not in own_names(group):
        raise DataError(f"{group.name} lacks {name}")
    return _numbers(group[name])


def _numbers(item: Any) -> np.ndarray:
    """Return the content of a dataset of numbers.

    Raises:
        DataError: If it is something else, or the file is too small to hold it.
    """
    return _content(item, "biuf")


def _one_each(item: Any) -> np.ndarray:
    """Return a number for each step ``(T,)``, which may lie as ``(T, 1)``."""
    return one_each(_numbers(item))


def one_each(values: np.ndarray) -> np.ndarray:
    """Return rows of one number as numbers, and other arrays as they are."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def is_text(item: Any) -> bool:
    """Tell whether a dataset holds text."""
    return isinstance(item, h5py.Dataset) and h5py.check_string_dtype(item.dtype) is not None


def _observed(item: Any) -> np.ndarray:
    """Return an entry of the observations: numbers as they are, and text as its bytes (:mod:`seqrl.core.text`).

    Raises:
        DataError: If it is something else, or the file is too small to hold it.
    """
    return encode_text(_content(item, "OS")) if is_text(item) else _numbers(item)


def _content(item: Any, kinds: str) -> np.ndarray:
    """Return the content of a dataset whose dtype is of one of NumPy's ``kinds``."""
    if not isinstance(item, h5py.Dataset):
        raise DataError(f"{item.name} is a group, not a dataset")
    if item.size and item.dtype.kind not in kinds:
        raise DataError(f"{item.name} is of dtype {item.dtype}, not {'numbers' if kinds == 'biuf' else 'text'}")
    check_size(item)
    values: np.ndarray = item[()]
    return values


def check_size(item: h5py.Dataset) -> None:
    """Refuse a dataset that lies in other files, or whose size is a damaged number, before memory is asked for.

    Raises:
        DataError: If it does, or the file is too small to hold it.
    """
    if item.external or item.is_virtual:
        raise DataError(f"{item.name} keeps its values in other files, which are not read")
    if item.nbytes > _MOST_PER_BYTE * item.file.id.get_filesize():
        raise DataError(f"{item.name} claims {item.nbytes} bytes, more than the file can hold")


def datasets(group: h5py.Group) -> dict[str, h5py.Dataset]:
    """Return name -> dataset, nested names joined by ``/``."""
    own_names(group)
    found: dict[str, h5py.Dataset] = {}
    level: dict[str, h5py.Group] = {"": group}
    for _ in range(_MOST_DEPTH):
        items = {f"{prefix}{key}": item for prefix, parent in level.items() for key, item in parent.items()}
        found |= {name: item for name, item in items.items() if not isinstance(item, h5py.Group)}
        level = {f"{name}/": item for name, item in items.items() if isinstance(item, h5py.Group)}
        if not level or len(level) + len(found) > _MOST_ENTRIES:
            break
    if level:
        raise DataError(f"{group.name} is nested more than {_MOST_DEPTH} deep, or holds too many entries")
    for name in found:
        name.encode()  # a damaged name cannot be that of a column
    return dict(sorted(found.items()))


def _json_attribute(group: h5py.Group, name: str, path: Path) -> Any:
    if name not in group.attrs:
        return None
    try:
        return parse_json(as_text(group.attrs[name]))
    except ValueError as error:
        raise DataError(f"{path}: the attribute {name!r} of 'data' is not JSON ({error})") from error


def as_text(value: Any) -> str:
    """Return what an attribute or a name says, as h5py gives it."""
    return value.decode() if isinstance(value, bytes) else str(value)


def predicted_size(path: Path) -> StoreSize | None:
    """Return the size of the store of a robomimic file, from its shapes and dtypes: no data is read.

    None where the file is damaged, which reading explains better.
    """
    try:
        with foreign_file(path) as file:
            demos = list(file["data"].values())
            lengths = [demo["actions"].shape[0] for demo in demos]
            rows = sum((steps + 1) * _row_bytes(demo) for steps, demo in zip(lengths, demos, strict=True))
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, IndexError, DataError):
        return None
    return StoreSize(len(demos), sum(lengths), rows + LOG_LINE_BYTES * len(demos))


def _row_bytes(demo: h5py.Group) -> int:
    """Return the bytes of one row of all columns of the store."""
    columns = [*datasets(demo["obs"]).values(), demo["actions"]]
    if "goal" in demo:
        columns += datasets(demo["goal"]).values()
    total: int = _REWARD_AND_ENDS_BYTES + sum(_entry_bytes(column) for column in columns)
    mask = demo.get("action_mask", demo["obs"].get(MASK_KEY))
    return total + (0 if mask is None else _width(mask))


def _entry_bytes(column: Any) -> int:
    return TEXT_BYTES if column.dtype.kind in "OS" else int(column.dtype.itemsize * _width(column))


def _width(column: Any) -> int:
    return int(np.prod(column.shape[1:], dtype=np.int64))
