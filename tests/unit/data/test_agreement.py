"""Sources whose action spaces are guessed go together if the environment's space says that they do."""

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.types import Trajectory
from seqrl.data import Store, StoreInfo, StoreWriter
from seqrl.data.mixture import Source
from seqrl.data.sequence_dataset import SequenceDataset

OBS = spaces.Box(-1.0, 1.0, (2,), np.float32)


def source(path, space, actions, **facts):
    ends = np.arange(len(actions)) == len(actions) - 1
    zeros = np.zeros(len(actions), np.float32)
    with StoreWriter(path, StoreInfo(OBS, space, spaces_are_known=False, **facts)) as writer:
        writer.append(
            Trajectory({"obs": np.zeros((len(actions) + 1, 2), np.float32)}, actions, zeros, ends, ends & False)
        )
    return Source(Store(path), np.arange(1), name=path.name)


def test_choices_that_one_source_never_shows_are_those_of_the_environment(tmp_path):
    few = source(tmp_path / "few", spaces.Discrete(3), np.array([0, 2]))
    all_four = source(tmp_path / "all", spaces.Discrete(4), np.array([3, 3]))
    dataset = SequenceDataset([few, all_four], 2)
    with pytest.raises(DataError, match=r"all .* and few .* have different action spaces: .*is guessed"):
        dataset.batch(2, seed=0, path=("train", 0))
    dataset.use_categories(spaces.Discrete(4))
    seen = {tuple(row) for row in dataset.batch(20, seed=0, path=("train", 0)).actions.flatten(0, 1).int().tolist()}
    assert seen == {(1, 0, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)}
    with pytest.raises(DataError, match="have different action spaces"):
        SequenceDataset([few, all_four], 2).batch(2, seed=0, path=("train", 0))


def test_actions_in_units_do_not_go_with_scaled_ones(tmp_path):
    """Both look alike if none exceeds 1, and the second would be read as the first is."""
    unit, values = spaces.Box(-1.0, 1.0, (1,), np.float32), np.full((2, 1), 0.9, np.float32)
    raw = source(tmp_path / "raw", unit, values, actions_are_scaled=False)
    scaled = source(tmp_path / "scaled", unit, values)
    dataset = SequenceDataset([raw, scaled], 2)
    with pytest.raises(DataError, match=r"scaled .* and raw .* one is in its units, and one is scaled already"):
        dataset.use_categories(spaces.Box(-2.0, 2.0, (1,), np.float32))
    dataset.use_categories(spaces.Box(-1.0, 1.0, (1,), np.float32))
