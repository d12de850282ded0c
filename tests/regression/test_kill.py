"""Runs that are killed at any moment: no half file, and going on gives what a run gives that nobody kills."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs are forked, to be quick")
@pytest.mark.parametrize(("offline", "online", "seed"), [(2, 2, 0), (int(os.environ.get("SEQRL_KILLS", "30")), 0, 1)])
def test_a_run_survives_being_killed(offline, online, seed, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "tests/regression/kill_many.py"), "--folder", str(tmp_path),
               "--offline", str(offline), "--online", str(online), "--seed", str(seed)]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert [counts[kind]["kills"] for kind in ("offline", "online")] == [offline, online]
