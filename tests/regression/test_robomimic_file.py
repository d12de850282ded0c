"""A file that robomimic itself wrote is read as it is meant, and trained on."""

import json
import math
from pathlib import Path

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from seqrl.data.ingest import open_store
from seqrl.scripts import get_dataset_info, train

FOLDER = Path(__file__).parents[1] / "data"
FILE = FOLDER / "robomimic_written.hdf5"


@pytest.fixture
def store():
    return open_store(str(FILE))


def test_every_array_is_the_files(store):
    with h5py.File(FILE) as file:
        data = file["data"]
        assert sorted(store.names) == sorted(data)
        for name, got in zip(store.names, store.trajectories(), strict=True):
            demo = data[name]
            np.testing.assert_array_equal(got.obs["flat"][:-1], demo["obs/flat"])
            np.testing.assert_array_equal(got.obs["flat"][-1], demo["next_obs/flat"][-1])
            np.testing.assert_array_equal(got.actions, demo["actions"])
            np.testing.assert_array_equal(got.rewards, demo["rewards"][()].astype(np.float32))
            np.testing.assert_array_equal(got.terminated, demo["dones"])
            assert got.terminated[-1] != got.truncated[-1]
            assert len(got) == demo.attrs["num_samples"]
        assert store.num_transitions == data.attrs["total"]


def test_what_holds_for_all_episodes_is_known(store):
    assert store.info.env_id == "PointMass-v0"
    assert store.info.action_space == spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert store.info.has_next_obs
    assert {k: len(v) for k, v in store.info.filters.items()} == {"train": 8, "valid": 2}
    assert sum(t.truncated[-1] for t in store.trajectories()) == 1  # the time limit of the rollout


@pytest.mark.parametrize("key", ["all", "train"])
def test_statistics_are_robomimics(store, key):
    """Of the inputs that an action follows, over the population; robomimic adds 0.001 to the deviation."""
    wanted = json.loads((FOLDER / "robomimic_written_stats.json").read_text())[key]
    chosen = store.names if key == "all" else store.info.filters[key]
    pairs = zip(store.names, store.trajectories(), strict=True)
    inputs = np.concatenate([t.obs["flat"][:-1] for name, t in pairs if name in chosen]).astype(np.float64)
    np.testing.assert_allclose(inputs.mean(0), wanted["mean"], atol=1e-6)
    np.testing.assert_allclose(inputs.std(0) + 1e-3, wanted["std"], atol=1e-6)


def test_it_is_described_and_trained_on(tmp_path, capsys):
    assert get_dataset_info.main(["--dataset", str(FILE), "--verify"]) == 0
    told = capsys.readouterr()
    assert "train: 8  valid: 2" in told.out
    assert told.err == "verified: all 10 trajectories are as they were converted\n"
    sections = [{"path": str(FILE), "filter_key": "train", "valid_filter_key": "valid"}]
    settings = {
        "train.data": json.dumps(sections),
        "train.num_epochs": 1,
        "train.steps_per_epoch": 1,
        "train.batch_size": 4,
        "train.window_steps": 5,
        "train.device": "cpu",
        "experiment.output_dir": str(tmp_path),
        "experiment.logging.tensorboard": "false",
        "experiment.logging.every_n_steps": 1,
        "experiment.report.enabled": "false",
        "algo.sequence_encoder.type": "gru",
    }
    arguments = [a for key, value in settings.items() for a in ("--set", f"{key}={value}")]
    assert train.main(["--algo", "bc", "--name", "r", *arguments]) == 0
    lines = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert math.isfinite(next(line["valid/nll"] for line in lines if "valid/nll" in line))
    assert math.isfinite(next(line["loss/nll"] for line in lines if "loss/nll" in line))
