"""Look for problems in a dataset, even a damaged one; exit code 1 if there are any."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seqrl.scripts._script import add_dataset, parsed, script

if TYPE_CHECKING:
    from seqrl.data.validation import Finding, Report

_SHOWN = 5


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl validate-dataset", description=__doc__)
    add_dataset(p, "robomimic HDF5 file, or seqrl store")
    p.add_argument("--json", action="store_true", help="print JSON")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Look, print, and return the exit code."""
    args = parsed(parser(), argv)
    from seqrl.data.validation import validate

    report = validate(Path(args.dataset))
    print(json.dumps(report.to_json(), indent=2) if args.json else "\n".join(_lines(report)))
    return 0 if report.is_fine else 1


def _lines(report: Report) -> list[str]:
    lines = [f"{report.dataset}: {report.episodes} episodes, {report.transitions} transitions"]
    if report.length:
        lines.append("length    {min} to {max}, mean {mean:.4g}".format(**report.length))
    for name, values in report.actions.items():
        lines.append(f"actions   {name}: {', '.join(f'{v:.4g}' for v in values)}")
    lines += [_line(finding) for finding in report.findings]
    counts = [sum(finding.level == level for finding in report.findings) for level in ("problem", "warning")]
    return [*lines, "fine" if not any(counts) else f"problems: {counts[0]}, warnings: {counts[1]}"]


def _line(finding: Finding) -> str:
    places = ", ".join(finding.examples[:_SHOWN])
    more = f" and {finding.count - _SHOWN} more" if finding.count > _SHOWN else ""
    return f"{finding.level:<9} {finding.kind}: {finding.text}" + (f" ({places}{more})" if places else "")


if __name__ == "__main__":
    sys.exit(main())
