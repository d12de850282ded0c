"""A thousand damaged stores, HDF5 files, checkpoints and run files: an error of ours, or the right data; never more."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.regression.damaging import KINDS, SECONDS_PER_CASE, Case, foreign_contents, make_good_files, outcome

ROOT = Path(__file__).parents[2]
FINE = ("error", "equal", "torn", "other")


def run_cases(folder: Path, first: int, end: int) -> list[dict]:
    """Run cases in another process, and in a third one the rest where a case ends that."""
    found: list[dict] = []
    while first < end:
        command = [sys.executable, "-m", "tests.regression.damaging", str(folder), str(first), str(end)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr
        pairs = list(zip(lines[::2], lines[1::2], strict=False))
        found += [{**a, **b} for a, b in pairs]
        if len(lines) % 2:
            crash = f"crashed, or took more than {SECONDS_PER_CASE} s: {done.stderr[-500:]}"
            found.append({**lines[-1], "kind": "?", "damage": "?", "outcome": crash})
        else:
            assert done.returncode == 0, done.stderr
        first = found[-1]["case"] + 1
    return found


@pytest.mark.parametrize("num_cases", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_damaged_inputs_are_errors_or_are_read_rightly(num_cases, tmp_path):
    found = run_cases(tmp_path, 0, num_cases)
    assert len(found) == num_cases
    wrong = [f"case {f['case']}, {f['kind']}, {f['damage']}: {f['outcome']}" for f in found if f["outcome"] not in FINE]
    assert not wrong, "\n".join(wrong)
    counts = Counter((f["kind"], f["outcome"]) for f in found)
    for kind in KINDS:
        assert counts[kind, "error"] >= num_cases / len(KINDS) / 4, counts
    assert counts["store", "torn"] < 15, counts  # only the end of a log may be lost
    seen = " ".join(f["damage"] for f in found)
    assert num_cases < 1000 or all(
        name in seen for name in ("pickle", "zip", "npy", "python", "deep list", "NaN", "huge", "circle", "flip")
    )


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
def test_the_judge_tells_right_from_wrong(tmp_path, read, expected):
    make_good_files(tmp_path / "good")
    case = Case(0, tmp_path / "good", tmp_path)
    case.read, case.path = read, tmp_path
    assert case.kind == "store"
    assert outcome(case, {"store": [1]}, tmp_path / "executed") == expected


def test_the_bombs_are_armed(tmp_path):
    import pickle

    marker = tmp_path / "executed"
    with pickle.loads(foreign_contents(marker)["pickle"]):
        assert marker.exists()
