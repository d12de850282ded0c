"""Runs that are killed at any moment: no half file, and going on gives what a run gives that nobody kills."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = {
    "algo_name": "bc",
    "experiment": {
        "report": {"enabled": False},
        "logging": {"every_n_steps": 2, "tensorboard": True},
        "save": {"every_n_epochs": 3},
        "evaluation": {"episodes": 4, "num_envs": 2},
    },
    "env": {"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 3}},
    "train": {
        "data": [{"scripted": "seqrl/TMazePassive-v0", "episodes": 12}],
        "window_steps": 4,
        "batch_size": 3,
        "num_epochs": 10,
        "steps_per_epoch": 5,
        "valid_batches": 1,
        "device": "cpu",
        "prefetch_batches": 2,
    },
    "algo": {
        "sequence_encoder": {"type": "gru", "d_hidden": 8, "num_layers": 2, "d_output": 8, "dropout": 0.3},
        "actor": {"d_hidden": 8},
    },
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked, to be quick")
@pytest.mark.parametrize(("num_kills", "seed"), [(2, 0), (int(os.environ.get("SEQRL_KILLS", "30")), 1)])
def test_a_run_survives_being_killed(num_kills, seed, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(CONFIG))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "SEQRL_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [sys.executable, str(ROOT / "tests/regression/kill_runs.py"), str(tmp_path / "run.json"),
               str(tmp_path / "runs"), str(num_kills), str(seed)]  # fmt: skip
    (tmp_path / "runs").mkdir()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["kills"] == num_kills
