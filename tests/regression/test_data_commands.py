"""The commands of datasets as a user types them, and training on what robots record."""

import json

import h5py
import numpy as np
import pytest
import torch

from seqrl.__main__ import main
from seqrl.data.ingest import open_store
from seqrl.scripts import train

STEPS = 12


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def robot(folder):
    """A file as robomimic writes it: doubles, pixels, depth and a scan, ten episodes."""
    with h5py.File(folder / "robot.hdf5", "w") as file:
        for i in range(10):
            rng, demo = np.random.default_rng(i), file.create_group(f"data/demo_{i}")
            entries = {
                "eef_pos": rng.normal(size=(STEPS + 1, 3)),
                "camera": rng.integers(0, 256, (STEPS + 1, 36, 36, 3), dtype=np.uint8),
                "depth": rng.random((STEPS + 1, 36, 36, 1), np.float32),
                "lidar": rng.random((STEPS + 1, 1, 32), np.float32),
            }
            for key, values in entries.items():
                demo[f"obs/{key}"], demo[f"next_obs/{key}"] = values[:-1], values[1:]
            demo["actions"] = rng.uniform(-1, 1, (STEPS, 2))
            demo["rewards"], demo["dones"] = np.zeros(STEPS), (np.arange(STEPS) == STEPS - 1) & (i > 0)
    return "robot.hdf5"


def run(capsys, *arguments):
    """Return exit code, stdout and stderr of a command."""
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return code, captured.out, captured.err


def masks(path):
    with h5py.File(path) as file:
        return {k: [n.decode() for n in v] for k, v in file["mask"].items()}


def test_filters_from_the_command_line(robot, capsys):
    code, out, _ = run(capsys, "split-train-val", robot, "--valid-fraction", "0.2")
    assert (code, out) == (0, "robot.hdf5: train has 8 episodes, valid has 2 episodes\n")
    code, out, _ = run(capsys, "filter-dataset-size", robot, "--num-episodes", 4, "--filter-key", "train")
    assert (code, out) == (0, "robot.hdf5: train_4_demos has 4 episodes\n")
    run(capsys, "filter-dataset-size", robot, "--num-episodes", 2, "--filter-key", "train")
    found = masks(robot)
    assert set(found["train_2_demos"]) < set(found["train_4_demos"]) < set(found["train"])
    code, _, err = run(capsys, "split-train-val", robot)
    assert (code, err.count("pass --overwrite")) == (2, 1)
    assert run(capsys, "split-train-val", robot, "--overwrite", "--seed", 1)[0] == 0
    assert run(capsys, "split-train-val", robot, "--filter-key", "train", "--names", "a", "b")[0] == 0
    assert {"train_a", "train_b"} < masks(robot).keys()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["split-train-val", "--valid-fraction", "1"], "--valid-fraction must lie between 0 and 1, got 1"),
        (["split-train-val", "--names", "a", "a"], "--names must differ, got 'a' twice"),
        (["split-train-val", "--seed", "-1"], "--seed must be at least 0, got -1"),
        (["split-train-val", "--filter-key", "no"], "no filter key 'no'; it has: none"),
        (["filter-dataset-size", "--num-episodes", "0"], "--num-episodes must be at least 1, got 0"),
        (["filter-dataset-size", "--num-episodes", "11"], "11 episodes were asked for, but there are 10"),
    ],
)
def test_mistakes_are_named_and_change_nothing(robot, capsys, arguments, expected):
    code, _, err = run(capsys, arguments[0], robot, *arguments[1:])
    assert code == 2
    assert expected in err
    with h5py.File(robot) as file:
        assert "mask" not in file


def test_a_dataset_is_judged(robot, capsys):
    code, out, _ = run(capsys, "validate-dataset", robot)
    assert code == 0
    assert out.splitlines()[0] == "robot.hdf5: 10 episodes, 120 transitions"
    assert out.splitlines()[-1] == "fine"
    with h5py.File(robot, "r+") as file:
        for i in range(7):
            file[f"data/demo_{i}/obs/eef_pos"][3, 0] = np.nan
    code, out, _ = run(capsys, "validate-dataset", robot)
    assert code == 1
    wanted = "problem   not finite: obs/eef_pos holds NaN (demo_0 step 3, demo_1 step 3, demo_2 step 3, demo_3 step 3, "
    assert wanted + "demo_4 step 3 and 2 more)" in out
    code, out, _ = run(capsys, "validate-dataset", robot, "--json")
    report = json.loads(out)
    assert (code, report["is_fine"], report["findings"][0]["count"]) == (1, False, 7)
    assert run(capsys, "validate-dataset", "no.hdf5")[0] == 2


def test_a_dataset_is_converted_there_and_back(robot, capsys):
    run(capsys, "split-train-val", robot)
    assert run(capsys, "convert-dataset", robot, "store")[1] == "wrote 10 episodes to store\n"
    assert run(capsys, "convert-dataset", "store", "back.hdf5")[0] == 0
    assert run(capsys, "convert-dataset", "store", "back.hdf5")[0] == 2
    assert masks("back.hdf5") == masks(robot)
    with h5py.File(robot) as a, h5py.File("back.hdf5") as b:
        names = []
        a["data"].visititems(lambda n, item: names.append(n) if isinstance(item, h5py.Dataset) else None)
        for name in names:
            x, y = a["data"][name], b["data"][name]
            assert x.dtype == y.dtype or name.endswith(("rewards", "dones"))
            if not name.endswith("dones"):
                np.testing.assert_array_equal(x[()], y[()])
    assert run(capsys, "validate-dataset", "store")[0] == 0


# ------------------------------------------------------------------------------------------- modalities
MULTIMODAL = {
    "type": "multimodal",
    "modalities": {
        "camera": {"type": "image", "d_output": 8},
        "depth": {"type": "depth", "max_depth": 1.0, "d_output": 8},
        "lidar": {"type": "scan", "max_range": 1.0, "d_output": 8},
    },
}


@pytest.mark.parametrize(
    ("keys", "encoder"),
    [
        (["eef_pos", "camera", "depth", "lidar"], MULTIMODAL),
        (["eef_pos", "lidar"], {"type": "mlp"}),
        (["camera"], {"type": "cnn"}),
    ],
    ids=["multimodal", "mlp", "cnn"],
)
def test_a_run_on_every_modality(robot, folder, capsys, keys, encoder):
    """What robots record is kept as it is on disk, and one step of training is taken on it."""
    schema = open_store(robot).schema
    assert {k[4:]: v for k, v in schema.items() if k.startswith("obs/")} == {
        "eef_pos": ("float64", (3,)),
        "camera": ("uint8", (36, 36, 3)),
        "depth": ("float32", (36, 36, 1)),
        "lidar": ("float32", (1, 32)),
    }
    run_file = {
        "algo_name": "bc",
        "observation": {"keys": keys, "timestep_encoder": encoder},
        "train": {
            "data": [{"path": robot, "name": "arm", "max_episodes": 6}],
            "num_epochs": 1,
            "steps_per_epoch": 1,
            "window_steps": 4,
            "batch_size": 2,
            "valid_batches": 1,
        },
        "experiment": {"report": {"enabled": False}, "logging": {"every_n_steps": 1, "tensorboard": False}},
    }
    (folder / "run.json").write_text(json.dumps(run_file))
    assert train.main(["--config", "run.json", "--name", "r"]) == 0
    rows = [json.loads(line) for line in (folder / "runs" / "r" / "metrics.jsonl").read_text().splitlines()]
    assert any(np.isfinite(row.get("loss/total", np.nan)) for row in rows)


def test_a_batch_has_the_dtypes_that_encoders_expect(robot):
    from seqrl.data import SequenceDataset, Source

    store = open_store(robot)
    batch = SequenceDataset([Source(store, np.arange(len(store)))], 4).batch(3, seed=0, path=())
    assert {k: v.dtype for k, v in batch.inputs.obs.items()} == {
        "camera": torch.uint8,
        "depth": torch.float32,
        "eef_pos": torch.float32,
        "lidar": torch.float32,
    }
