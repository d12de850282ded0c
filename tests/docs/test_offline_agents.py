"""The table of offline learning: its results are of the settings that are there, and agents beat cloning."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import offline_agents  # noqa: E402
from offline_agents import ALGOS, SEEDS, TASKS, results  # noqa: E402
from record import table  # noqa: E402

FILES = sorted(offline_agents.FOLDER.glob("*.json"))
TABLED = [(task, algo) for task in TASKS for algo in ALGOS if results(task, algo)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_results_are_of_the_present_settings(file):
    result = json.loads(file.read_text())
    run = (result["task"], result["algorithm"], result["seed"])
    assert file == offline_agents.result_file(*run)
    assert offline_agents.has_result(*run), f"run benchmarks/offline_agents.py --algos {run[1]}"
    assert result["commit"]
    assert result["date"]


def test_the_table_is_that_of_the_results():
    assert table(offline_agents.rows_of_table()) in (ROOT / "docs/offline.md").read_text()


@pytest.mark.parametrize(("task", "algo"), TABLED)
def test_every_seed_of_an_agent_beats_every_seed_of_cloning(task, algo):
    ours, cloned = results(task, algo), results(task, "bc")
    assert [run["seed"] for run in ours] == list(SEEDS)
    if algo != "bc":
        assert min(run["successes"] for run in ours) > max(run["successes"] for run in cloned)


def test_a_run_is_repeated_only_after_its_settings_changed(tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(offline_agents, "FOLDER", tmp_path)
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(offline_agents, "write_demonstrations", lambda task, data: 7)
    monkeypatch.setattr(offline_agents, "successes", lambda *run: trained.append(run[:3]) or 150)
    monkeypatch.setitem(ALGOS, "mine", {task: {"algo.gamma": 0.9} for task in TASKS})
    queue = list(offline_agents.all_runs(["mine"]))
    assert len(queue) == len(set(queue)) == len(SEEDS) * len(TASKS)
    next(offline_agents.work(queue))  # and is stopped after one
    assert trained == queue[:1]
    files = list(offline_agents.work(queue))
    assert trained == queue
    assert [file.name for file in files] == [f"{task}-mine-{seed}.json" for task, _, seed in queue[1:]]
    assert list(offline_agents.work(queue)) == []
    assert offline_agents.rows_of_table()[0]["success, mean of the seeds"] == "0.750"
    monkeypatch.setitem(ALGOS["mine"], "grid", {"algo.gamma": 0.8})
    assert len(list(offline_agents.work(queue))) == len(SEEDS)
