"""What the tests cost is recorded, and stays within what CONTRIBUTING says."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "benchmarks/results/test_durations.json"
RUNS = json.loads(RECORDED.read_text())["runs"]
sys.path.insert(0, str(ROOT / "benchmarks"))

import test_durations  # noqa: E402

LOG = """
....                                                                     [100%]
============================= slowest durations ==============================
4.00s call     tests/unit/test_a.py::test_one[x y-3.00s]
2.50s setup    tests/unit/test_b.py::test_two
0.75s teardown tests/unit/test_b.py::test_two
1.00s call     tests/unit/test_b.py::test_two
0.01s call     tests/unit/test_c.py::test_three
(8 durations < 0.005s hidden.  Use -vv to show these durations.)
4 passed, 1 skipped in 12.34s
"""


def test_a_log_is_read():
    found = test_durations.summary(LOG, num=2)
    assert found["dearest_s"] == {
        "tests/unit/test_b.py::test_two": 4.25,
        "tests/unit/test_a.py::test_one[x y-3.00s]": 4,
    }
    assert list(found["dearest_s"])[1].endswith("y-3.00s]")
    assert (found["outcome"], found["wall_s"], found["sum_s"]) == ("4 passed, 1 skipped", 12.34, 8.3)
    long = LOG.replace("4 passed, 1 skipped in 12.34s", "==== 4 passed in 1234.56s (0:20:34) ====")
    assert test_durations.summary(long)["wall_s"] == 1234.56
    with pytest.raises(SystemExit, match="not the log of a whole run"):
        test_durations.summary("4 passed in 3.00s")


@pytest.mark.skipif("after" not in RUNS, reason="not recorded yet")
def test_the_tests_are_within_five_minutes_and_cover_what_they_did():
    assert RUNS["after"]["wall_s"] <= 300
    assert RUNS["after"]["coverage_percent"] >= RUNS["before"]["coverage_percent"] - 1
