"""What the page of sweeps says of Optuna's search is what was recorded."""

import csv
import json
import re
from pathlib import Path

import numpy as np

from seqrl.reports.intervals import compare_means
from seqrl.sweeps.planning import Plan
from seqrl.sweeps.sweep_file import read_sweep

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "sweep"
PAGE = (ROOT / "docs" / "sweeps.md").read_text()


def rows(name):
    with open(RESULTS / name) as file:
        return list(csv.DictReader(file))


def told(row):
    return f"{float(row['mean']):.3g} ({float(row['min']):.3g} to {float(row['max']):.3g})"


def scores(row):
    return np.array([float(value) for key, value in row.items() if key.startswith("seed ")])


def test_the_search():
    search = rows("search.csv")
    complete = [row for row in search if row["mean"]]
    base, best = search[0], max(complete, key=lambda row: float(row["mean"]))
    assert f"| in the search | 2 | {told(base)} | {told(best)} |" in PAGE
    assert len(search) == 16
    assert sum(float(row["mean"]) == 1.0 for row in complete) == 9
    assert [row["note"] for row in search].count("pruned") == 4
    base, again = rows("new_seeds.csv")
    assert again["setting"] == best["setting"]
    assert f"| with new seeds | 5 | {told(base)} | {told(again)} |" in PAGE
    difference = compare_means(scores(again), scores(base))
    assert re.search(rf"by {difference.value:.3f} with seeds .*\n?.*\(p {difference.p_value:.1g} ", PAGE)


def test_what_was_run_can_be_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    about = json.loads((RESULTS / "about.json").read_text())
    for command, name in zip(about["commands"], about["files"], strict=True):
        file = command.split()[2]
        plan = Plan(*read_sweep(file), file)
        assert set(plan.labels) <= set(rows(name)[0])
        assert {s.name for s in plan.settings} <= {row["setting"] for row in rows(name)}
