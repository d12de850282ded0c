"""The table of rlpd.json in docs/offline.md is that of the results, and old data helps."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import rlpd  # noqa: E402
from record import table  # noqa: E402


def test_the_table_is_that_of_the_results():
    assert table(rlpd.rows_of_table()) in (ROOT / "docs" / "offline.md").read_text()
    assert all(json.loads(file.read_text())["commit"] for file in rlpd.FOLDER.glob("*.json"))


def test_runs_with_old_data_learn_sooner():
    curves = {row: rlpd.curves(row)[:, 1:, 1] for row in rlpd.DATA}
    assert all(len(curve) == 5 for curve in curves.values()), "five seeds"
    assert curves["with the data"].mean() > curves["without"].mean() + 0.2
    assert (curves["with the data"][:, -1] >= 0.95).all()
