"""Statistics of the training data against NumPy over everything at once."""

import numpy as np
import pytest
from gymnasium import spaces

import seqrl.data.statistics as statistics
from seqrl.core.errors import DataError
from seqrl.core.spaces import ActionCodec
from seqrl.core.types import Trajectory
from seqrl.data.mixture import Source
from seqrl.data.statistics import column_stats
from seqrl.data.store import Store, StoreWriter
from seqrl.data.store_info import StoreInfo

SPACE = spaces.Box(-2.0, 6.0, (2,))


def make(tmp_path, lengths=(5, 1, 9, 30)):
    rng = np.random.default_rng(0)
    info = StoreInfo(spaces.Dict({"state": spaces.Box(-np.inf, np.inf, (3,))}), SPACE)
    trajectories = []
    for n in lengths:
        obs = (1e4 + rng.normal(size=(n + 1, 3)) * [1, 10, 0]).astype(np.float32)
        trajectories.append(
            Trajectory(
                obs={"state": obs},
                actions=rng.uniform(-2, 6, (n, 2)).astype(np.float32),
                rewards=np.zeros(n, np.float32),
                terminated=np.arange(n) == n - 1,
                truncated=np.zeros(n, bool),
            )
        )
    with StoreWriter(tmp_path, info) as writer:
        for t in trajectories:
            writer.append(t)
    return Store(tmp_path), trajectories


@pytest.mark.parametrize("block", [4, 7, 1 << 16])
def test_they_are_those_of_numpy(tmp_path, monkeypatch, block):
    monkeypatch.setattr(statistics, "BLOCK_ROWS", block)
    store, trajectories = make(tmp_path)
    chosen = np.array([0, 2, 3])
    source = Source(store, chosen)
    whole = np.concatenate([trajectories[i].obs["state"][:-1] for i in chosen]).astype(np.float64)
    found = column_stats([source], "obs/state")
    for name in ("mean", "std", "min", "max"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name)(0), rtol=1e-12, atol=1e-9)
    codec = ActionCodec(SPACE)
    actions = codec.encode(np.concatenate([trajectories[i].actions for i in chosen])).astype(np.float64)
    found = column_stats([Source(store, chosen[:1]), Source(store, chosen[1:])], "prev_action", convert=codec.encode)
    for name in ("mean", "std", "min", "max"):
        np.testing.assert_allclose(getattr(found, name), getattr(actions, name)(0), rtol=1e-12, atol=1e-9)


def test_no_data_is_refused(tmp_path):
    store, _ = make(tmp_path)
    with pytest.raises(DataError, match="no data"):
        column_stats([Source(store, np.zeros(0, np.int64))], "obs/state")
