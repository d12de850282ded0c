"""A sweep whose runs are stand-ins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import seqrl.sweeps.pool as pool

ROOT = Path(__file__).parents[3]
STAND_IN = str(Path(__file__).with_name("stand_in.py"))
WITH_STAND_IN = f"""
import sys
import seqrl.sweeps.pool as pool
train = pool.train_command
pool.train_command = lambda *arguments: [sys.executable, {STAND_IN!r}, *train(*arguments)[3:]]
from seqrl.scripts.sweep import main
sys.exit(main(sys.argv[1:]))
"""
BASE = {"algo_name": "bc", "train": {"num_epochs": 3}, "experiment": {"report": {"enabled": False}}}


class Sweep:
    """A sweep file in a folder of its own, and what has become of it."""

    def __init__(self, folder, **values):
        self.folder, self.path = folder, folder / "sweeps" / "mine"
        (folder / "mine.json").write_text(json.dumps({"base": BASE, **values}))

    def begin(self, *options):
        """Start the sweep in a process of its own."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        command = [sys.executable, "-c", WITH_STAND_IN, "mine.json", *options]
        return subprocess.Popen(command, cwd=self.folder, env=environment, stderr=subprocess.PIPE, text=True)

    @property
    def epochs(self):
        """Name of a run -> epochs that it logged."""
        files = (self.path / "runs").glob("*/metrics.jsonl")
        return {f.parent.name: [json.loads(line)["step"] for line in f.read_text().splitlines()] for f in files}

    @property
    def starts(self):
        """Name of a run -> the processes in which it ran."""
        files = (self.path / "runs").glob("*/starts.txt")
        return {f.parent.name: [int(line) for line in f.read_text().split()] for f in files}

    def read(self, name):
        return (self.path / name).read_text()


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Let sweeps of this process start stand-ins, in a folder of their own."""
    train = pool.train_command
    monkeypatch.setattr(pool, "train_command", lambda *a: [sys.executable, STAND_IN, *train(*a)[3:]])
    monkeypatch.chdir(tmp_path)
    return lambda **values: Sweep(tmp_path, **values)
