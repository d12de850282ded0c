"""Runs cases of the harness in other processes, and counts what comes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FINE = ("error", "equal", "torn", "other")
PER_PROCESS = 500


def run_cases(folder: Path, first: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield the cases from ``first`` to before ``end`` as they end; after one that ends its process comes another."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    while first < end:
        last = min(first + PER_PROCESS, end)
        command = [sys.executable, "-m", "tests.fuzz.harness", str(folder), str(first), str(last)]
        with (
            open(folder / "stderr.txt", "w+", encoding="utf-8") as said,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=said, text=True, cwd=ROOT, env=environment
            ) as process,
        ):
            assert process.stdout is not None
            try:
                begun: dict[str, Any] = {}
                for line in map(json.loads, process.stdout):
                    begun |= line
                    if "outcome" in line:
                        yield begun
                        first, begun = begun["case"] + 1, {}
            finally:
                process.kill()
            said.seek(0)
            text = said.read()[-500:]
            if begun:
                yield {**begun, "kind": "?", "damage": "?", "outcome": f"crashed, or did not come back: {text}"}
                first = begun["case"] + 1
            elif first < last:
                raise RuntimeError(f"the harness does not work: {text}")


def table(found: list[dict[str, Any]]) -> str:
    """Return how many cases of each kind had which outcome."""
    counts = Counter((f["kind"], f["outcome"] if f["outcome"] in FINE else "failure") for f in found)
    columns = (*FINE, "failure")
    rows = [f"{'':18}" + "".join(f"{name:>9}" for name in columns)]
    for kind in sorted({kind for kind, _ in counts}):
        rows.append(f"{kind:18}" + "".join(f"{counts[kind, name]:9}" for name in columns))
    return "\n".join(rows)


def failures(found: list[dict[str, Any]]) -> list[str]:
    """Return those that are no error of ours and not read rightly, one a line."""
    wrong = [f for f in found if f["outcome"] not in FINE]
    return [f"case {f['case']}, {f['kind']}, {f['damage']}: {f['outcome']}" for f in wrong]


def fuzz(folder: Path, first: int, num_cases: int | None, seconds: float) -> list[dict[str, Any]]:
    """Run so many cases, or as many as there is time for, and say what fails at once."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    for each in run_cases(folder, first, first + (num_cases or 10**9)):
        found.append(each)
        for line in failures([each]):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        if time.monotonic() > end:
            break
    return found
