"""A data format that is a folder: an .npz per episode, of obs (T + 1 rows), actions, rewards, terminated, truncated.

seqrl train --algo bc --plugin examples/npz_folder_plugin.py --dataset episodes/
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from seqrl.core.spaces import infer_action_space, infer_observation_space
from seqrl.core.types import Trajectory
from seqrl.data import StoreInfo
from seqrl.data.readers import READERS, NamedTrajectories, Reader


@READERS.register("npz_folder")
class NpzFolder(Reader):
    """Reads the files in the order of their names, one at a time."""

    def can_read(self, path: Path) -> bool:
        """Tell by what the folder holds."""
        return path.is_dir() and next(path.glob("*.npz"), None) is not None

    @contextmanager
    def open(self, path: Path, options: dict[str, str]) -> Iterator[tuple[StoreInfo, NamedTrajectories]]:
        """Take the observations' shape from the first episode, and the actions' range from all of them."""
        files = sorted(path.glob("*.npz"))
        actions = np.concatenate([np.load(file)["actions"] for file in files])
        space = infer_observation_space({"obs": np.load(files[0])["obs"]})
        info = StoreInfo(space, infer_action_space(actions), spaces_are_known=False)
        yield info, ((file.stem, _trajectory(np.load(file))) for file in files)


def _trajectory(e: Mapping[str, np.ndarray]) -> Trajectory:
    return Trajectory({"obs": e["obs"]}, e["actions"], e["rewards"], e["terminated"], e["truncated"])
