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


def test_at_the_end_runs_with_old_data_are_ahead():
    ends = {row: rlpd.curves(row)[:, -1, 1].mean() for row in rlpd.DATA}
    assert ends["with the data"] > ends["without"] + 0.3
