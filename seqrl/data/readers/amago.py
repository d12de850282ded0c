"""AMAGO's trajectories in ``.npz``: a folder of them, or the folder ``buffer`` with ``fifo`` and ``protected``."""

from __future__ import annotations

import logging
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.spaces import extremes, infer_action_space, infer_observation_space
from seqrl.core.types import Trajectory
from seqrl.data.readers.base import NamedTrajectories, Opened, Reader
from seqrl.data.readers.robomimic import naming
from seqrl.data.store_info import StoreInfo

logger = logging.getLogger(__name__)

OBS_PREFIX = "_OBS_KEY_"
_NEEDED = {"rews", "dones", "actions", "time_idxs"}


class Amago(Reader):
    """A folder of trajectories; those pickled as ``.traj`` are refused, as a pickle can execute code."""

    def can_read(self, path: Path) -> bool:
        """Tell by the arrays in the first file, or by pickles, whose refusal says what to do."""
        files = _files(path, most=1)
        if not files:
            return bool(_folders(path, "*.traj"))
        with suppress(OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
            return _names(files[0]) >= _NEEDED
        return False

    def open(self, path: Path, options: dict[str, Any]) -> Opened:
        """Open a folder."""
        return read_amago(path, options)


def _files(path: Path, most: int | None = None) -> list[Path]:
    """Return the trajectories of a folder, or of the buffers in it."""
    files: list[Path] = []
    for folder in _folders(path, "*.npz"):
        files += sorted(folder.glob("*.npz"))[:most]
    return files


def _folders(path: Path, pattern: str) -> list[Path]:
    """Return the folders that hold such files: of the path itself, and of what AMAGO writes below it."""
    roots = [path, path / "buffer"]
    places = [root / part for root in roots for part in ("protected", "fifo")] + roots
    found = [place for place in places if place.is_dir() and any(place.glob(pattern))]
    return [place for place in found if place.name in ("protected", "fifo")] or found[:1]


def _names(file: Path) -> set[str]:
    with zipfile.ZipFile(file) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist()}


@contextmanager
def read_amago(path: Path, options: dict[str, Any]) -> Iterator[tuple[StoreInfo, NamedTrajectories]]:
    """Open a folder of trajectories; one is read at a time, and all once before for the range of the actions.

    Args:
        path: The folder.
        options: ``dones_mean``: ``terminated`` (default) or ``truncated``, as the files do not tell the two apart.

    Raises:
        DataError: If a file is damaged or lacks an array.
    """
    dones_mean = options.get("dones_mean", "terminated")
    files = _files(path)
    if files and (pickles := [file for place in _folders(path, "*.traj") for file in place.glob("*.traj")]):
        logger.warning(
            "%s: %d trajectories in .traj are left out: they are pickles, which can execute code", path, len(pickles)
        )
    if not files:
        raise DataError(
            f"{path} holds no .npz; trajectories in .traj are pickles, which can execute code: save them as npz"
        )
    first = _read(files[0])
    is_discrete, width = True, first["actions"].shape[-1]

    def actions() -> Iterator[np.ndarray]:
        nonlocal is_discrete
        for file in files:
            found = _read(file)["actions"]
            is_discrete = is_discrete and _is_one_hot(found)
            yield found.astype(np.float32)

    with naming(path, "folder of AMAGO"):
        reached = extremes(actions())
        space = spaces.Discrete(width) if is_discrete else infer_action_space(reached)
    obs = {key.removeprefix(OBS_PREFIX): value for key, value in first.items() if key.startswith(OBS_PREFIX)}
    info = StoreInfo(infer_observation_space(obs), space, spaces_are_known=False, source=str(path))
    yield info, ((file.stem, _trajectory(file, dones_mean, is_discrete=is_discrete)) for file in files)


def _is_one_hot(actions: np.ndarray) -> bool:
    return actions.shape[-1] > 1 and bool(((actions == 0) | (actions == 1)).all() and (actions.sum(-1) == 1).all())


def _read(file: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except (OSError, EOFError, KeyError, ValueError, MemoryError, zipfile.BadZipFile, zlib.error, NotImplementedError,
            RuntimeError) as error:  # fmt: skip
        raise DataError(f"{file}: not a readable AMAGO trajectory ({error})") from error
    if missing := sorted(_NEEDED - arrays.keys()):
        raise DataError(f"{file} lacks {', '.join(missing)}")
    if any(value.dtype.kind not in "biuf" or value.ndim < 2 for value in arrays.values()):
        raise DataError(f"{file} holds an array that is not a table of numbers")
    return arrays


def _trajectory(file: Path, dones_mean: str, *, is_discrete: bool) -> Trajectory:
    arrays = _read(file)
    with naming(file, "trajectory of AMAGO"):
        num = len(arrays["actions"])
        ended = arrays["dones"].reshape(num, -1)[:, 0] > 0.5
        none = np.zeros(num, bool)
        start = int(arrays["time_idxs"].ravel()[0])
        actions = arrays["actions"].argmax(-1) if is_discrete else arrays["actions"].astype(np.float32)
        before = _before(arrays, is_discrete=is_discrete) if start else {}
        return Trajectory(
            obs={key.removeprefix(OBS_PREFIX): value for key, value in arrays.items() if key.startswith(OBS_PREFIX)},
            actions=actions,
            rewards=arrays["rews"].reshape(num, -1)[:, 0].astype(np.float32),
            terminated=ended if dones_mean == "terminated" else none,
            truncated=ended if dones_mean == "truncated" else none,
            start_step=start,
            **before,
        ).check()


def _before(arrays: dict[str, np.ndarray], *, is_discrete: bool) -> dict[str, Any]:
    """Return the action and the reward before the first step of a piece, if the file has them."""
    if "rl2s" not in arrays:
        return {}
    reward, *action = arrays["rl2s"][0]
    prev_action = np.asarray(np.argmax(action)) if is_discrete else np.asarray(action, np.float32)
    return {"prev_action": prev_action, "prev_reward": float(reward)}
