"""The ten dearest tests, wall time and coverage of a run of the tests, kept under a name beside those of other runs.

make test PYTEST_FLAGS="--durations=0" > tests.log
make test PYTEST_FLAGS="--cov=seqrl --cov-report=json:coverage.json"  # tracing takes its time: not for durations
python benchmarks/test_durations.py after tests.log --coverage coverage.json

Times are the wall's, so they count on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from record import RESULTS, provenance, record

LINE = re.compile(r"^([\d.]+)s (?:setup|call|teardown) +(\S.*)$", re.MULTILINE)
END = re.compile(r"^(?:=+ )?(.*\d+ (?:passed|failed).*) in ([\d.]+)s", re.MULTILINE)


def summary(log: str, num: int = 10) -> dict[str, Any]:
    """Return what a log tells.

    Args:
        log: What pytest writes with ``--durations=0``: set-up, call and teardown of a test are added.
        num: How many of the dearest tests.

    Raises:
        SystemExit: If it has no durations or no last line.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for spent, test in LINE.findall(log):
        seconds[test] += float(spent)
    end = END.search(log)
    if not seconds or not end:
        raise SystemExit("not the log of a whole run with --durations=0")
    dearest = sorted(seconds, key=lambda test: -seconds[test])[:num]
    figures = {"outcome": end[1], "wall_s": float(end[2]), "sum_s": round(sum(seconds.values()), 1)}
    return {**figures, "dearest_s": {test: round(seconds[test], 2) for test in dearest}}


def main() -> None:
    """Read a log, and record it."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name", help="what the run is called, such as before or after")
    p.add_argument("log", type=Path, help="what pytest wrote")
    p.add_argument("--coverage", type=Path, help="what --cov-report=json wrote")
    p.add_argument("--commit", help="what was tested, if it is not what is checked out")
    p.add_argument("--note", help="what else to know of the run")
    arguments = p.parse_args()
    found = summary(arguments.log.read_text())
    if arguments.coverage:
        found["coverage_percent"] = round(json.loads(arguments.coverage.read_text())["totals"]["percent_covered"], 2)
    file = RESULTS / "test_durations.json"
    runs = json.loads(file.read_text())["runs"] if file.exists() else {}
    found = {"commit": arguments.commit or provenance()["commit"], "note": arguments.note or "", **found}
    print(json.dumps(found, indent=2))
    print("recorded in", record("test_durations", {"runs": {**runs, arguments.name: found}}))


if __name__ == "__main__":
    main()
