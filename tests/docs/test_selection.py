"""The table of docs/choosing.md: estimates rank the policies as their returns do, and controls do not."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import selection  # noqa: E402
from record import table  # noqa: E402

RESULTS = json.loads((ROOT / "benchmarks" / "results" / "selection.json").read_text())


def test_the_table_is_that_of_the_results():
    assert table(selection.rows_of_table(RESULTS["policies"])) in selection.PAGE.read_text()
    assert RESULTS["commit"]


@pytest.mark.parametrize("task", RESULTS["policies"])
def test_estimates_rank_policies_and_what_tells_nothing_does_not(task):
    found = RESULTS["policies"][task]
    assert found.keys() == selection.POLICIES.keys()
    correlations = selection.correlations(found)
    assert correlations["estimate"] >= 0.8
    assert correlations["estimate from rewards of others"] < 0.5
