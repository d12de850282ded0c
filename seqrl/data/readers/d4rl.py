"""D4RL's layout (Fu et al., 2020, arXiv 2004.07219): one flat HDF5 file of steps, cut where episodes end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.spaces import OBS_KEY, extremes, infer_action_space, infer_observation_space
from seqrl.core.types import Trajectory
from seqrl.data.hdf5_file import foreign_file
from seqrl.data.readers.arrays import differing
from seqrl.data.readers.base import NamedTrajectories, Opened, Reader
from seqrl.data.readers.robomimic import check_size, naming, own_names
from seqrl.data.store_info import StoreInfo

NEEDED = ("observations", "actions", "rewards", "terminals")
TELLING = ("timeouts", "next_observations")
"""Of these one has to be there: they tell where an episode ended that was not terminal."""
_CHUNK = 100_000


class D4RL(Reader):
    """HDF5 files with ``observations``, ``actions``, ``rewards`` and ``terminals`` of equal length at the top."""

    def can_read(self, path: Path) -> bool:
        """Tell by the names of the arrays."""
        with suppress(OSError, RuntimeError, ValueError, LookupError, DataError):
            if path.is_file():
                with foreign_file(path) as file:
                    return set(NEEDED) <= set(file)
        return False

    def open(self, path: Path, options: dict[str, Any]) -> Opened:
        """Open a file."""
        return read_d4rl(path, **options)


@contextmanager
def read_d4rl(path: Path, dones_mean: str = "terminated") -> Iterator[tuple[StoreInfo, NamedTrajectories]]:
    """Open a file of D4RL; one episode is read at a time.

    Episodes end at ``terminals`` and ``timeouts``, and where ``next_observations`` do not go on in the next row. If
    those are missing, the last observation of an episode that was not terminal is unknown: its last step is left out.

    Args:
        path: The file.
        dones_mean: What ``terminals`` mean: ``terminated`` or ``truncated``.

    Raises:
        DataError: If an array is missing, or the lengths differ.
    """
    with ExitStack() as stack:
        with naming(path, "D4RL file"):
            file = stack.enter_context(foreign_file(path))
            if missing := sorted(set(NEEDED) - set(own_names(file))):
                raise DataError(f"{path} lacks {', '.join(missing)}")
            columns = {name: file[name] for name in (*NEEDED, *TELLING) if name in file}
            if not columns.keys() & set(TELLING):
                raise DataError(
                    f"{path} has neither timeouts nor next_observations, so an episode that ended at a time limit "
                    "would run into the next; add an array timeouts (zeros if all episodes end at terminals)"
                )
            _check(columns, path)
            ends = _ends(columns, path)
            actions = columns["actions"]
            sample = {OBS_KEY: columns["observations"]}
            info = StoreInfo(
                infer_observation_space(sample),
                infer_action_space(extremes(actions[i : i + _CHUNK] for i in range(0, len(actions), _CHUNK))),
                spaces_are_known=False,
                actions_are_scaled=False,
                source=str(path),
            )
        yield info, _trajectories(columns, ends, path, are_limits=dones_mean == "truncated")


def _check(columns: dict[str, Any], path: Path) -> None:
    for name, column in columns.items():
        if not isinstance(column, h5py.Dataset) or column.dtype.kind not in "biuf" or not column.ndim:
            raise DataError(f"{path}: {name} is not an array of numbers")
        check_size(column)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or not lengths["actions"]:
        raise DataError(f"{path}: arrays of different or no length: {lengths}")
    if "next_observations" in columns and columns["next_observations"].shape != columns["observations"].shape:
        raise DataError(f"{path}: next_observations and observations differ in shape")


def _flags(column: Any) -> np.ndarray:
    return np.asarray(column[()], bool).reshape(len(column), -1)[:, 0]


def _ends(columns: dict[str, Any], path: Path) -> np.ndarray:
    """Return, for each step, whether it is the last of an episode."""
    ends = _flags(columns["terminals"])
    if "timeouts" in columns:
        ends |= _flags(columns["timeouts"])
    if "next_observations" in columns:
        before, after, told = columns["next_observations"], columns["observations"], ends.copy()
        for i in range(0, len(ends) - 1, _CHUNK):
            stop = min(i + _CHUNK, len(ends) - 1)
            ends[i + differing(before[i:stop], after[i + 1 : stop + 1])] = True
        if (ends & ~told).sum() > max(len(ends) // 2, 2):
            raise DataError(
                f"{path}: in {(ends & ~told).sum()} of {len(ends)} steps, next_observations is not the next row of "
                "observations: shuffled transitions cannot be read as episodes"
            )
    ends[-1] = True
    return ends


def _trajectories(columns: dict[str, Any], ends: np.ndarray, path: Path, *, are_limits: bool) -> NamedTrajectories:
    begin = 0
    for number, stop in enumerate(np.flatnonzero(ends) + 1):
        with naming(path, "D4RL file", where=f"episode {number}, rows {begin} to {int(stop) - 1}"):
            trajectory = _trajectory(columns, begin, int(stop), are_limits=are_limits)
            trajectory = None if trajectory is None else trajectory.check()
        begin = int(stop)
        if trajectory is not None:
            yield f"episode_{number}", trajectory


def _trajectory(columns: dict[str, Any], begin: int, stop: int, *, are_limits: bool) -> Trajectory | None:
    is_terminal = bool(np.ravel(columns["terminals"][stop - 1])[0]) and not are_limits
    obs = columns["observations"][begin:stop]
    if "next_observations" in columns:
        obs = np.concatenate([obs, columns["next_observations"][stop - 1 : stop]])
    elif is_terminal:
        obs = np.concatenate([obs, obs[-1:]])  # nothing is made of what follows a terminal step
    elif (stop := stop - 1) == begin:
        return None
    is_last = np.arange(begin, stop) == stop - 1
    return Trajectory(
        obs={OBS_KEY: obs},
        actions=columns["actions"][begin:stop],
        rewards=np.asarray(columns["rewards"][begin:stop], np.float32).reshape(-1),
        terminated=is_last & is_terminal,
        truncated=is_last & (not is_terminal),
    )
