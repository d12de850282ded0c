"""Arrays of one's own in ``.npz`` or ``.npy`` files: what is what is declared in ``columns``."""

from __future__ import annotations

import json
import logging
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, ClassVar

import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.spaces import extremes, infer_action_space, infer_observation_space
from seqrl.core.types import Trajectory
from seqrl.data.readers.base import NamedTrajectories, Opened, Reader, narrowed
from seqrl.data.readers.robomimic import naming, natural_order
from seqrl.data.store_info import StoreInfo

logger = logging.getLogger(__name__)

_ENDS = ("episode", "episode_ends", "terminated", "truncated")
_PLAIN = ("actions", "rewards", "action_mask", *_ENDS)
_BY_NAME = ("obs/", "next_obs/", "goal/")
_EXAMPLE = (
    '{"obs/obs": "states", "next_obs/obs": "next_states", "actions": "acts", "rewards": "rews", "terminated": "dones"}'
    " (obs/NAME: the key of the environment's Dict, or obs/obs for a plain Box)"
)
_OF_D4RL = {
    "obs/obs": "observations",
    "next_obs/obs": "next_observations",
    "actions": "actions",
    "rewards": "rewards",
    "terminated": "terminals",
    "truncated": "timeouts",
}
_DAMAGES = (OSError, ValueError, SyntaxError, TypeError, LookupError, TokenError, RecursionError, MemoryError)
"""What NumPy raises for damaged headers, which it reads as Python literals."""
_READ_BYTES = 1 << 22
_BLOCK_ROWS = 1 << 14


class Arrays(Reader):
    """A ``.npz`` with the steps of all episodes; a folder of ``.npz``, an episode each, or of ``.npy``."""

    takes: ClassVar[frozenset[str]] = frozenset({"dones_mean", "columns"})

    def can_read(self, path: Path) -> bool:
        """Tell by the suffixes."""
        return path.suffix == ".npz" if path.is_file() else path.is_dir() and bool(_files(path))

    def open(self, path: Path, options: dict[str, Any]) -> Opened:
        """Open it."""
        return read_arrays(path, options)


def _files(path: Path) -> list[Path]:
    """Return the episodes of a folder, or its arrays."""
    if not path.is_dir():
        return [path]
    found = [sorted(path.glob(f"*{suffix}"), key=lambda f: natural_order(f.name)) for suffix in (".npz", ".npy")]
    return found[0] or found[1]


class _Array:
    """An array in a file, read from its beginning to its end, some rows at a time.

    Attributes:
        shape: Of it.
        dtype: Of it.
    """

    def __init__(self, stream: IO[bytes], name: str) -> None:
        try:
            version = np.lib.format.read_magic(stream)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, is_fortran, self.dtype = header(stream)
        except _DAMAGES as error:
            raise DataError(f"{name} has a damaged header ({error})") from error
        if any(size < 0 for size in self.shape):
            raise DataError(f"{name} has a damaged header (its shape is {self.shape})")
        if self.dtype.hasobject:
            raise DataError(f"{name} holds Python objects, which are pickled and can execute code: save numbers")
        if is_fortran and len(self.shape) > 1:
            raise DataError(
                f"{name} is in Fortran order, in which rows are not contiguous: save np.ascontiguousarray of it"
            )
        if self.dtype.kind not in "biuf":
            raise DataError(f"{name} is of dtype {self.dtype}, not numbers")
        if not self.shape:
            raise DataError(f"{name} is a single number, not an array with a row for each step")
        self._stream, self._name, self._left = stream, name, self.shape[0]

    def rows(self, num: int) -> np.ndarray:
        """Return the next rows ``(num, ...)``."""
        shape = (num, *self.shape[1:])
        wanted = self.dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        parts, missing = [], wanted
        while missing and (part := self._stream.read(min(missing, _READ_BYTES))):
            parts.append(part)
            missing -= len(part)
        if missing:
            raise DataError(f"{self._name} ends before its {self.shape[0]} rows do")
        self._left -= num
        if not self._left and self._stream.read(1):  # a member of a zip compares its checksum at its end
            raise DataError(f"{self._name} has data after its {self.shape[0]} rows")
        return np.frombuffer(b"".join(parts), self.dtype).reshape(shape)

    def all(self) -> np.ndarray:
        """Return all rows; only of what is small."""
        return self.rows(self.shape[0])


class _Source:
    """The arrays of one ``.npz``, or of a folder of ``.npy``, by name."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._zip = None if path.is_dir() else stack.enter_context(zipfile.ZipFile(path))
        names = [f.name for f in _files(path)] if self._zip is None else self._zip.namelist()
        self.names = {name.removesuffix(".npy") for name in names}

    def array(self, name: str) -> _Array:
        """Return an array at its beginning."""
        if name not in self.names:
            raise DataError(f"{self._path} has no array {name!r}; it has {', '.join(sorted(self.names))}")
        file = f"{name}.npy"
        stream: Any = (self._path / file).open("rb") if self._zip is None else self._zip.open(file)
        return _Array(self._stack.enter_context(stream), name)


@contextmanager
def read_arrays(path: Path, options: dict[str, Any]) -> Iterator[tuple[StoreInfo, NamedTrajectories]]:
    """Open arrays; what belongs to one episode is read at a time.

    In a file of many episodes these end where ``episode`` changes, at ``episode_ends`` (numbers of rows, cumulated), or
    where ``terminated`` or ``truncated`` is set. Within an episode ``next_obs`` has to be the observation of the next
    row. Without it the last observation is repeated, unless an episode with a file of its own has one observation more
    than actions.

    Args:
        path: See :class:`Arrays`.
        options: ``columns``: our name (``obs/<name>``, ``next_obs/<name>``, ``goal/<name>``, ``actions``, ``rewards``,
            ``terminated``, ``truncated``, ``action_mask``, ``episode``, ``episode_ends``) -> name of an array.
            ``dones_mean``: ``truncated`` reads ``terminated`` as time limits.

    Raises:
        DataError: If the declaration does not fit, or a file is damaged.
    """
    files = _files(path)
    has_one_each = path.is_dir() and bool(files) and files[0].suffix == ".npz"
    sources = files if has_one_each else [path]
    columns = _checked(options.get("columns"), sources[0])
    with _naming(path):
        info = _info(path, sources, columns)
    truncates = options.get("dones_mean") == "truncated"
    if has_one_each:
        yield info, _one_each(sources, columns, truncates, knows_last=info.has_next_obs)
    else:
        yield info, _one_after_another(sources, columns, truncates)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    with naming(path, "file of arrays"):
        try:
            yield
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise DataError(f"{path}: damaged ({error})") from error


def _checked(columns: Mapping[str, str] | None, path: Path) -> dict[str, str]:
    with _naming(path), ExitStack() as stack:
        names = _Source(path, stack).names
    there = ", ".join(sorted(names))
    if not columns:
        usual = {key: name for key, name in _OF_D4RL.items() if name in names}
        is_usual = {"obs/obs", "actions"} <= usual.keys() and usual.keys() & set(_ENDS)
        example = json.dumps(usual) if is_usual else _EXAMPLE
        raise DataError(
            f"{path} has the arrays {there}; say in columns what they are, or add a reader (--plugin); for instance "
            f"columns = {example}"
        )
    unknown = [k for k in columns if k not in _PLAIN and not k.startswith(_BY_NAME)]
    if unknown:
        legal = ", ".join([*_PLAIN, *(f"{n}NAME" for n in _BY_NAME)])
        raise DataError(f"{path}: columns: unknown key {unknown[0]!r}; known: {legal}")
    if "actions" not in columns or not any(k.startswith("obs/") for k in columns):
        raise DataError(f"{path}: columns needs actions, and an obs/NAME; the file has {there}")
    obs, after = ({k.split("/", 1)[1] for k in columns if k.startswith(p)} for p in ("obs/", "next_obs/"))
    if after and after != obs:
        raise DataError(
            f"{path}: columns: every obs/NAME needs a next_obs/NAME; names of obs: {', '.join(sorted(obs))}; of "
            f"next_obs: {', '.join(sorted(after))}"
        )
    if unread := sorted(names - set(columns.values())):
        some = ", ".join(unread[:5]) + (f" and {len(unread) - 5} more" if len(unread) > 5 else "")
        logger.warning("%s: not in columns, so not read: %s", path, some)
    return dict(columns)


def _info(path: Path, files: list[Path], columns: Mapping[str, str]) -> StoreInfo:
    with ExitStack() as stack:
        source = _Source(files[0], stack)
        arrays = {k[4:]: source.array(v) for k, v in columns.items() if k.startswith("obs/")}
        num = source.array(columns["actions"]).shape[0]
    has_last = files != [path] and all(a.shape[0] == num + 1 for a in arrays.values())
    has_next = has_last or any(k.startswith("next_obs/") for k in columns)
    space = infer_observation_space(arrays)
    action_space = infer_action_space(extremes(_all_actions(files, columns["actions"])))
    return StoreInfo(
        space,
        action_space,
        has_next_obs=has_next,
        has_rewards="rewards" in columns,
        spaces_are_known=False,
        actions_are_scaled=False,
        source=str(path),
    )


def _all_actions(files: list[Path], name: str) -> Iterator[np.ndarray]:
    for file in files:
        with _naming(file), ExitStack() as stack:
            array = _Source(file, stack).array(name)
            for begin in range(0, array.shape[0], _BLOCK_ROWS):
                yield narrowed(array.rows(min(_BLOCK_ROWS, array.shape[0] - begin)))


def _one_each(files: list[Path], columns: Mapping[str, str], truncates: bool, *, knows_last: bool) -> NamedTrajectories:
    for file in files:
        with _naming(file), ExitStack() as stack:
            source = _Source(file, stack)
            values = {k: source.array(v).all() for k, v in columns.items() if k not in ("episode", "episode_ends")}
            has_last = all(len(v) == len(values["actions"]) + 1 for k, v in values.items() if k.startswith("obs/"))
            if has_last != knows_last and not any(k.startswith("next_obs/") for k in columns):
                raise DataError(f"{file} {'has' if has_last else 'lacks'} a last observation, unlike {files[0].name}")
            trajectory = _sound(values, columns, truncates)
        yield file.stem, trajectory


def _one_after_another(files: list[Path], columns: Mapping[str, str], truncates: bool) -> NamedTrajectories:
    (path,) = files
    with ExitStack() as stack:
        with _naming(path):
            source = _Source(path, stack)
            ends = _ends(source, columns)
            arrays = {k: source.array(v) for k, v in columns.items() if k not in ("episode", "episode_ends")}
            if wrong := next((k for k, a in arrays.items() if a.shape[0] != ends[-1]), None):
                raise DataError(
                    f"{columns[wrong]} has {arrays[wrong].shape[0]} rows, but all episodes together have {ends[-1]}: "
                    "each array needs one row for each step"
                )
        begin = 0
        for number, end in enumerate(ends):
            name = f"episode_{number}"
            with _naming(path):
                values = {k: array.rows(int(end) - begin) for k, array in arrays.items()}
                trajectory = _sound(values, columns, truncates, name, begin)
            begin = int(end)
            yield name, trajectory


def _ends(source: _Source, columns: Mapping[str, str]) -> np.ndarray:
    """Return the number of the row behind the last of each episode."""
    if "episode_ends" in columns:
        ends = source.array(columns["episode_ends"]).all().astype(np.int64).ravel()
        if not len(ends) or (np.diff(ends, prepend=0) <= 0).any():
            raise DataError(f"{columns['episode_ends']} must be increasing row numbers, such as [10, 25, 31]")
        return ends
    num = source.array(columns["actions"]).shape[0]
    if "episode" in columns:
        numbers = source.array(columns["episode"]).all().ravel()
        last = numbers[1:] != numbers[:-1]
    else:
        flags = [source.array(columns[k]).all().reshape(num) for k in ("terminated", "truncated") if k in columns]
        if not flags:
            raise DataError(f"columns needs one of {', '.join(_ENDS)}, which say where episodes end")
        last = np.any([f.astype(bool) for f in flags], axis=0)[:-1]
    return np.append(np.flatnonzero(last) + 1, num)


def _sound(
    values: Mapping[str, np.ndarray], columns: Mapping[str, str], truncates: bool, name: str = "", begin: int = 0
) -> Trajectory:
    """Return the trajectory of an episode's arrays.

    Args:
        values: Our name -> rows.
        columns: Our name -> name of the array, for messages.
        truncates: Whether ``terminated`` is a time limit.
        name: Of the episode, where its file has others too.
        begin: Its first row in the file.

    Raises:
        DataError: That names episode and row, if a number is not finite, or ``next_obs`` is not what follows.
    """
    where = f"{name}, " if name else ""
    for k, rows in values.items():
        if rows.dtype.kind == "f" and not (is_finite := np.isfinite(rows)).all():
            row = int(np.argwhere(~is_finite)[0][0])
            raise DataError(f"{where}row {begin + row} of {columns[k]} ({k}): a value is not finite")
    try:
        trajectory = _trajectory(values, truncates).check()
    except DataError as error:
        told = f"{name} (rows {begin} to {begin + len(values['actions']) - 1}): " if name else ""
        raise DataError(f"{told}{error}") from error
    for k in (k for k in values if k.startswith("next_obs/")):
        after, following = values[k], values[k.removeprefix("next_")][1:]
        num = min(len(after), len(following))  # the last has nothing to be compared with
        if len(wrong := differing(after[:num], following[:num])):
            row = begin + int(wrong[0])
            raise DataError(
                f"{where}row {row}: {columns[k]} ({k}) is not the observation of row {row + 1} (so in "
                f"{len(wrong)} of {num} rows of the episode): shuffled transitions cannot be read as episodes, and "
                "episodes must end where columns say"
            )
    return trajectory


def differing(after: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Return the rows in which two arrays ``(N, ...)`` differ by more than the rounding of floats."""
    rows = np.flatnonzero((after != following).any(axis=tuple(range(1, after.ndim))))
    floats = [values.dtype for values in (after, following) if values.dtype.kind == "f"]
    if not floats or not len(rows):
        return rows
    eps = max(float(np.finfo(dtype).eps) for dtype in (np.dtype(np.float32), *floats))  # policies read float32
    gap = np.abs(after[rows].astype(np.float64) - following[rows]).reshape(len(rows), -1)
    size = np.abs(following).max(axis=0).reshape(-1)
    far: np.ndarray = rows[(gap > 8 * eps * size).any(-1)]
    return far


def _per_step(values: np.ndarray, name: str) -> np.ndarray:
    """Return ``(T,)`` of ``(T,)`` or ``(T, 1)``."""
    if values.shape not in ((len(values),), (len(values), 1)):
        raise DataError(f"{name} has rows of shape {values.shape[1:]}, not one number per step")
    return values.reshape(-1)


def _trajectory(values: Mapping[str, np.ndarray], truncates: bool) -> Trajectory:
    num = len(values["actions"])

    def flag(name: str) -> np.ndarray:
        given = values.get(name)
        return np.zeros(num, bool) if given is None else _per_step(given, name).astype(bool)

    def named(prefix: str) -> dict[str, np.ndarray]:
        return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}

    terminated, truncated = flag("terminated"), flag("truncated")
    if truncates:
        terminated, truncated = np.zeros(num, bool), terminated | truncated
    if num and not (terminated | truncated).any():
        truncated[-1] = True  # it ends here, and the file does not say why
    obs, after = named("obs/"), named("next_obs/")
    last = {k: after[k][-1:] if after else v[-1:] for k, v in obs.items()}
    rewards = values.get("rewards", np.zeros(num, np.float32))
    mask = values.get("action_mask")
    return Trajectory(
        obs={k: v if len(v) == num + 1 else np.concatenate([v, last[k]]) for k, v in obs.items()},
        actions=narrowed(values["actions"]),
        rewards=_per_step(rewards, "rewards").astype(np.float32),
        terminated=terminated,
        truncated=truncated & ~terminated,
        goal={k: v if len(v) == num + 1 else np.concatenate([v, v[-1:]]) for k, v in named("goal/").items()},
        action_mask=None if mask is None else np.concatenate([mask, mask[-1:]] if len(mask) == num else [mask]) > 0,
    )
