"""A data format in one file: a flat HDF5 of states, actions, rewards, ends and cuts.

seqrl train --algo bc --plugin examples/flat_hdf5_plugin.py --dataset maze.hdf5
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import numpy as np

from seqrl.core.spaces import infer_action_space, infer_observation_space
from seqrl.core.types import Trajectory
from seqrl.data import StoreInfo
from seqrl.data.readers import READERS, NamedTrajectories, Reader

NAMES = ("states", "actions", "rewards", "ended", "cut")


@READERS.register("flat")
class Flat(Reader):
    """Cuts the arrays where an episode ends; what follows the last end is left out. Last observations are repeated."""

    def can_read(self, path: Path) -> bool:
        """Tell by the names of the arrays."""
        with suppress(OSError, RuntimeError), h5py.File(path, "r") as file:  # not a folder, another format, or damaged
            return set(NAMES) <= set(file)
        return False

    @contextmanager
    def open(self, path: Path, options: dict[str, str]) -> Iterator[tuple[StoreInfo, NamedTrajectories]]:
        """Read everything at once."""
        with h5py.File(path, "r") as file:
            obs, actions, rewards, ended, cut = (file[name][()] for name in NAMES)
        space = infer_observation_space({"obs": obs})
        info = StoreInfo(space, infer_action_space(actions), has_next_obs=False, spaces_are_known=False)
        columns = (actions, rewards, ended.astype(bool), cut.astype(bool))
        episodes = np.split(np.arange(len(obs)), np.flatnonzero(columns[2] | columns[3]) + 1)[:-1]
        yield info, (("", Trajectory({"obs": obs[[*t, t[-1]]]}, *(column[t] for column in columns))) for t in episodes)
