"""seqrl sweep with real runs: T-Maze, a corridor of 3 steps."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqrl.core.host import read_starts
from seqrl.scripts import compare, sweep, train
from seqrl.sweeps.planning import Plan
from seqrl.sweeps.sweep_file import read_sweep
from seqrl.sweeps.sweep_folder import SweepFolder

ROOT = Path(__file__).parents[2]
BASE = {
    "algo_name": "bc",
    "experiment": {
        "evaluation": {"episodes": 8, "num_envs": 4},
        "logging": {"tensorboard": False},
        "report": {"enabled": False},
    },
    "env": {"kwargs": {"corridor_length": 3}},
    "train": {
        "data": [{"scripted": "seqrl/TMazePassive-v0", "episodes": 20}],
        "window_steps": 4, "batch_size": 8, "num_epochs": 2, "steps_per_epoch": 10,
    },
    "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 16, "num_layers": 1}},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name, **values):
    Path(name).write_text(json.dumps({"base": BASE, **values}))


def begin(file):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "seqrl", "sweep", file, "--jobs", "2"], env=environment)


def rows(name, run):
    """Return what a run logged, without the clock."""
    lines = Path(f"sweeps/{name}/runs/{run}/metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith(("time/", "system/"))} for line in lines
    ]  # fmt: skip


@pytest.mark.slow
def test_the_folder_can_be_compared_and_its_best_run_file_trained(capsys):
    write("mine.json", grid={"algo.optimizer.learning_rate": [1e-2]}, metric="eval/success_mean")
    assert sweep.main(["mine.json"]) == 0
    assert compare.main(["sweeps/mine", "--metric", "eval/success_mean", "--resamples", "100"]) == 0
    out = capsys.readouterr().out
    assert "| bc gru | 1" in out
    (best,) = csv.DictReader(Path("sweeps/mine/sweep.csv").read_text().splitlines())
    assert train.main(["--config", "sweeps/mine/best.json"]) == 0
    again = json.loads(Path("runs/mine_best/metrics.jsonl").read_text().splitlines()[-1])
    assert repr(again["eval/success_mean"]) == best["mean"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_sweep_of_12_runs_that_is_killed_twice_equals_the_unbroken_one():
    """The unbroken one is trained here, run by run, in one process."""
    grid = {"algo.optimizer.learning_rate": [1e-3, 1e-2], "algo.sequence_encoder.d_hidden": [8, 16]}
    changes = {"train.num_epochs": 5, "train.steps_per_epoch": 12}
    for name in ("broken", "whole"):
        write(f"{name}.json", grid=grid, seeds=3, set=changes, metric="valid/total", direction="min")
    plan = Plan(*read_sweep("broken.json"), "broken.json")
    folder = SweepFolder(plan)
    was_finished = []  # at each kill
    for num, number in ((2, signal.SIGKILL), (6, signal.SIGTERM)):
        process = begin("broken.json")
        while sum(map(folder.is_finished, plan.runs())) < num or not any(
            (folder.run_path(run) / "metrics.jsonl").exists() and not folder.is_finished(run) for run in plan.runs()
        ):
            assert process.poll() is None
            time.sleep(0.02)
        was_finished.append({run.name for run in plan.runs() if folder.is_finished(run)})
        process.send_signal(number)
        assert process.wait(timeout=120) == (-9 if number == signal.SIGKILL else 143)
        assert len(was_finished[-1]) < 12
    assert begin("broken.json").wait(timeout=900) == 0

    whole = Plan(*read_sweep("whole.json"), "whole.json")
    with SweepFolder(whole).opened():
        SweepFolder(whole).write_run_files(whole.runs())
        for run in whole.runs():
            assert train.main(["--config", str(SweepFolder(whole).run_file(run))]) == 0
        SweepFolder(whole).write_results(whole.settings, {})
    assert Path("sweeps/broken/sweep.csv").read_bytes() == Path("sweeps/whole/sweep.csv").read_bytes()
    with open("sweeps/broken/sweep.csv") as file:
        assert len({row["mean"] for row in csv.DictReader(file)}) == 4
    for run in plan.runs():
        assert rows("broken", run.name) == rows("whole", run.name)
    starts = {run.name: len(read_starts(folder.run_path(run) / "provenance.json")) for run in plan.runs()}
    assert all(starts[name] == 1 for name in was_finished[0])
    assert all(starts[name] <= 2 for name in was_finished[1])  # a run the first kill met has begun twice
    assert sum(starts.values()) <= 12 + 4  # two runs under way at each kill
