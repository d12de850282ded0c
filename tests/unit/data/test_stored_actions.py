"""What a store takes as an action."""

import numpy as np
import pytest
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.types import Trajectory
from seqrl.data import Store, StoreInfo, StoreWriter

INFO = StoreInfo(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))


def episode(*actions):
    steps, flags = len(actions), np.zeros(len(actions), bool)
    obs = {"obs": np.zeros((steps + 1, 2), np.float32)}
    return Trajectory(obs, np.array(actions), np.zeros(steps, np.float32), flags, flags)


def test_an_action_outside_the_space_is_refused_before_it_is_written(tmp_path):
    writer = StoreWriter(tmp_path / "s", INFO)
    writer.append(episode(0, 1, 1))
    with pytest.raises(DataError, match=r"trajectory 'bad' of unknown environment: an action is outside .*: \[2\]"):
        writer.append(episode(0, 2, 1), "bad")
    writer.close()
    assert len(Store(tmp_path / "s")) == 1
