"""Runs of a sweep: all of them, each once, whatever comes in between."""

import csv
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest

from seqrl.configs import config_factory
from seqrl.core.files import FileLock
from seqrl.reports.runs import group_runs
from seqrl.scripts import sweep

RATE = "algo.optimizer.learning_rate"
GRID = {RATE: [1e-4, 1e-3, 1e-2]}


def until(holds, timeout_s=60):
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_amid(epochs, num):
    """Tell whether so many runs are finished, and another is under way."""
    lengths = list(map(len, epochs.values()))
    return lengths.count(3) >= num and {1, 2} & set(lengths)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_all_runs_once_and_what_they_came_to(stand_in, capsys):
    mine = stand_in(grid=GRID, seeds=2)
    assert sweep.main(["mine.json", "--jobs", "2"]) == 0
    out, err = capsys.readouterr()
    assert mine.epochs == {f"learning_rate={r}_seed{s}": [1, 2, 3] for r in ("0.0001", "0.001", "0.01") for s in (0, 1)}
    assert "6/6  learning_rate=0.01_seed1  eval/return_mean 0.9844" in err
    assert out.strip() == mine.read("sweep.md").strip()
    assert "| 0.01          | 2     | 0.992 | 0.984 to 1        | 1 0.984" in out
    assert "best: learning_rate=0.01, 0.992; the base run's own values: 0.492 (+0.5)" in out
    rows = list(csv.DictReader(mine.read("sweep.csv").splitlines()))
    assert [row["seed 1"] for row in rows] == ["0.484375", "0.734375", "0.984375"]
    assert np.ptp(imageio.imread(mine.path / "sweep.png")) > 200
    best = json.loads(mine.read("best.json"))
    assert config_factory("bc", best).algo.optimizer.learning_rate == 0.01
    assert next((m.name, len(m.runs)) for m in group_runs([str(mine.path)])) == (
        "bc transformer learning_rate=0.0001",
        2,
    )
    starts = mine.starts
    assert sweep.main(["mine.json"]) == 0
    assert "6 of 6 runs are finished already" in capsys.readouterr().err
    assert mine.starts == starts


def test_more_seeds_and_values_are_added_to_a_sweep(stand_in):
    stand_in(grid={RATE: [1e-3]})
    assert sweep.main(["mine.json"]) == 0
    mine = stand_in(grid={RATE: [1e-3, 1e-2]}, seeds=2)
    assert sweep.main(["mine.json"]) == 0
    assert {name: len(pids) for name, pids in mine.starts.items()} == {
        f"learning_rate={r}_seed{s}": 1 for r in ("0.001", "0.01") for s in (0, 1)
    }


def test_a_run_that_fails_stops_no_other_and_is_tried_again(stand_in, capsys):
    cases = [{"env.kwargs.fail": "broken"}, {"env.kwargs.fail": "nothing"}]
    mine = stand_in(cases=cases)
    Path("broken").touch()
    assert sweep.main(["mine.json", "--jobs", "1"]) == 1
    out, err = capsys.readouterr()
    assert "fail=broken_seed0 failed (exit code 3): the end of it; see sweeps/mine/logs/fail=broken_seed0.txt" in err
    assert "1 runs failed" in err
    assert "1 failed" in out
    told = json.loads(mine.read("failed.json"))
    assert told == {"fail=broken_seed0": {"exit_code": 3, "last_lines": ["first line", "second line", "the end of it"]}}
    assert list(mine.epochs) == ["fail=nothing_seed0"]
    Path("broken").unlink()
    assert sweep.main(["mine.json"]) == 0
    assert json.loads(mine.read("failed.json")) == {}
    assert {name: len(pids) for name, pids in mine.starts.items()} == {"fail=broken_seed0": 2, "fail=nothing_seed0": 1}


def test_a_metric_that_is_not_there_is_told_after_the_first_run(stand_in, capsys):
    mine = stand_in(grid=GRID, metric="eval/return_men")
    assert sweep.main(["mine.json", "--jobs", "1"]) == 2
    assert "has no 'eval/return_men'; did you mean 'eval/return_mean'?" in capsys.readouterr().err
    assert len(mine.epochs) == 1


def test_a_metric_misspelt_afterwards_spoils_no_table(stand_in, capsys):
    mine = stand_in(grid=GRID, seeds=1)
    assert sweep.main(["mine.json", "--jobs", "2"]) == 0
    before = mine.read("sweep.csv"), mine.read("best.json")
    stand_in(grid=GRID, seeds=1, metric="eval/return_men")
    assert sweep.main(["mine.json"]) == 2
    assert "has no 'eval/return_men'; did you mean 'eval/return_mean'?" in capsys.readouterr().err
    assert (mine.read("sweep.csv"), mine.read("best.json")) == before


def test_another_base_is_another_sweep(stand_in, capsys):
    stand_in(seeds=1)
    assert sweep.main(["mine.json"]) == 0
    stand_in(seeds=1, set={"train.batch_size": 7})
    assert sweep.main(["mine.json"]) == 2
    assert "was begun with other settings; give the sweep another 'name'" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["train.init_from", "experiment.evaluation.deterministic"])
def test_what_a_resumed_run_may_change_is_another_sweep_too(change, stand_in, capsys):
    """Or seeds of different settings would be averaged."""
    stand_in(seeds=1)
    assert sweep.main(["mine.json"]) == 0
    stand_in(seeds=2, set={change: False if change.endswith("deterministic") else "elsewhere"})
    assert sweep.main(["mine.json"]) == 2
    assert "was begun with other settings; give the sweep another 'name'" in capsys.readouterr().err


def test_a_dry_run_starts_nothing(stand_in, capsys):
    mine = stand_in(grid=GRID)
    assert sweep.main(["mine.json", "--dry-run"]) == 0
    assert "learning_rate=0.01_seed0\n3 runs of 3 settings in sweeps/mine" in capsys.readouterr().out
    assert not mine.path.exists()
    assert sweep.main(["mine.json", "--jobs", "0"]) == 2


def test_a_run_that_another_process_has_is_waited_for(stand_in, capsys):
    mine = stand_in(seeds=2)
    (mine.path / "runs/base_seed0").mkdir(parents=True)
    lock = FileLock(mine.path / "runs/base_seed0/lock")
    timer = threading.Timer(2.0, lock.release)
    timer.start()
    assert sweep.main(["mine.json"]) == 0
    assert "base_seed0 waits" in capsys.readouterr().err
    assert mine.epochs == {"base_seed0": [1, 2, 3], "base_seed1": [1, 2, 3]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_run_outlives_its_sweep(number, stand_in):
    """After SIGKILL the runs are told by the system."""
    if number == signal.SIGKILL and sys.platform != "linux":
        pytest.skip("runs outlive a kill here; the next sweep waits for them")
    mine = stand_in(set={"env.kwargs.hangs_at": 1}, seeds=3)
    process = mine.begin("--jobs", "2")
    until(lambda: len(mine.epochs) == 2)
    other = mine.begin()
    assert "another process runs the sweep" in other.communicate(timeout=60)[1]
    assert other.returncode == 2
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number), err
    assert "Traceback" not in err
    until(lambda: not any(is_alive(pid) for pids in mine.starts.values() for pid in pids), timeout_s=10)
    assert mine.epochs == {"base_seed0": [1], "base_seed1": [1]}
    assert not (mine.path / "failed.json").exists()


def test_a_second_signal_does_not_wait(stand_in):
    mine = stand_in(set={"env.kwargs.epoch_s": 30})
    process = mine.begin()
    until(lambda: mine.starts)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143
    assert not any(is_alive(pid) for pids in mine.starts.values() for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize("num_seeds", [2, 6])
def test_a_sweep_that_is_killed_twice_equals_the_unbroken_one(num_seeds, stand_in, tmp_path, monkeypatch):
    """With real runs, in tests/regression/test_sweep.py."""
    num_runs = 4 * num_seeds
    values = {"grid": {RATE: [1e-5, 1e-4, 1e-3, 1e-2]}, "seeds": num_seeds, "set": {"env.kwargs.epoch_s": 0.1}}
    mine = stand_in(**values)
    for num, number in ((num_runs // 4, signal.SIGKILL), (num_runs // 2, signal.SIGTERM)):
        process = mine.begin("--jobs", "2")
        until(lambda num=num: is_amid(mine.epochs, num))
        process.send_signal(number)
        process.communicate(timeout=60)
    assert len(mine.epochs) < num_runs
    assert mine.begin("--jobs", "2").wait(timeout=60) == 0
    assert list(map(tuple, mine.epochs.values())) == [(1, 2, 3)] * num_runs
    assert sum(map(len, mine.starts.values())) <= num_runs + 4
    (tmp_path / "other").mkdir()
    whole = type(mine)(tmp_path / "other", **values)
    monkeypatch.chdir(tmp_path / "other")
    assert sweep.main(["mine.json", "--jobs", "2"]) == 0
    for name in ("sweep.csv", "sweep.md"):
        assert mine.read(name) == whole.read(name)
