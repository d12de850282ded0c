"""The tables beside other libraries are those of the recorded results."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "offline")]

import learning_peers  # noqa: E402
import run  # noqa: E402
from record import table  # noqa: E402

RESULTS = [*learning_peers.FOLDER.glob("*.json"), *run.FOLDER.glob("*.json")]


def test_the_pages_show_what_was_recorded():
    assert table(learning_peers.rows_of_table()) in (ROOT / "docs/learning.md").read_text()
    assert table(run.rows_of_table()) in run.PAGE.read_text()
    assert table(run.rows_of_speed()) in run.PAGE.read_text()


@pytest.mark.parametrize("file", RESULTS, ids=lambda f: f.stem)
def test_a_result_says_where_it_comes_from(file):
    found = json.loads(file.read_text())
    assert {"commit", "hardware", "seed", "return"} <= found.keys()
