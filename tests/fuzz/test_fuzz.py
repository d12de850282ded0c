"""Damaged stores, HDF5 files, checkpoints, run files and runs: an error of ours, or the right data; never more.

``make fuzz`` does the same for an hour.
"""

import sys
from collections import Counter

import pytest

from tests.fuzz.damages import foreign_contents
from tests.fuzz.driver import failures, fuzz
from tests.fuzz.good_files import make_good_files
from tests.fuzz.harness import KINDS, Case, outcome


@pytest.mark.parametrize("num_cases", [30, pytest.param(400, marks=pytest.mark.slow)])
def test_damaged_inputs_are_errors_or_are_read_rightly(num_cases, tmp_path):
    found = fuzz(tmp_path, 0, num_cases, float("inf"))
    assert len(found) == num_cases
    assert not failures(found)
    counts = Counter((f["kind"], f["outcome"]) for f in found)
    for kind in KINDS:
        assert counts[kind, "error"] >= num_cases / len(KINDS) / 5, counts
    assert counts["store", "torn"] < 15, counts  # only the end of a log may be lost
    seen = " ".join(f["damage"] for f in found)
    assert num_cases < 400 or all(
        name in seen for name in ("pickle", "zip", "npy", "python", "deep list", "NaN", "huge", "circle", "flip")
    )


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    make_good_files(folder)
    return folder


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda path: [1], "equal"),
        (lambda path: [2], "loaded wrong data"),
        (lambda path: 1 // 0, "raised ZeroDivisionError: integer division or modulo by zero"),
        (lambda path: open(path / "executed", "w").close(), "executed code"),
        (lambda path: sys.exit(0), "raised SystemExit: 0"),
    ],
)
def test_the_judge_tells_right_from_wrong(tmp_path, good, read, expected):
    case = Case(0, good, tmp_path)
    case.read, case.path = read, tmp_path
    assert case.kind == "store"
    assert outcome(case, {"store": [1]}, tmp_path / "executed") == expected


def test_the_bombs_are_armed(tmp_path):
    import pickle

    marker = tmp_path / "executed"
    with pickle.loads(foreign_contents(marker)["pickle"]):
        assert marker.exists()
