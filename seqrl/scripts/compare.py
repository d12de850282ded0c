"""Compare methods over seeds and tasks, with intervals, as tables and pictures."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.core.errors import ConfigError
from seqrl.core.files import expanded
from seqrl.scripts._script import check_folder, check_seed, finite, script

AXIS_NAMES = ("env_steps", "gradient_steps", "epoch", "wall_s")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl compare", description=__doc__)
    p.add_argument(
        "runs", nargs="+", metavar="RUN_OR_FOLDER",
        help="runs, or folders that hold runs: those that differ only in seed and task are one method; "
        "NAME=GLOB groups all matching runs under one name",
    )  # fmt: skip
    p.add_argument(
        "--metric", default="eval/return_mean",
        help="eval/return_mean (default), eval/success_mean, or any metric for which higher is better",
    )  # fmt: skip
    p.add_argument("--x", choices=AXIS_NAMES, help="axis of the curves (default env_steps, if there were any)")
    p.add_argument("--at", type=finite, metavar="X", help="use the last evaluation up to this point")
    p.add_argument(
        "--range", action="append", default=[], metavar="[TASK=]LOW,HIGH",
        help="scores that count as 0 and 1, for one task or, without TASK, for all; may be repeated",
    )  # fmt: skip
    p.add_argument(
        "--target", type=finite,
        help="target of the optimality gap (default 1 for successes and scaled scores; without one there is no gap)",
    )  # fmt: skip
    p.add_argument("--resamples", type=int, default=10_000, help="bootstrap resamples (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="seed of the bootstrap (default %(default)s)")
    p.add_argument(
        "--output", type=expanded, default=Path("comparison"), metavar="DIR",
        help="folder for results.json, table.md and the pictures (default %(default)s)",
    )  # fmt: skip
    p.add_argument("--json", action="store_true", help="print results.json instead of the tables")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Compare, and return the exit code."""
    args = parser().parse_args(_with_ranges(sys.argv[1:] if argv is None else argv))
    check_seed(args.seed)
    if args.resamples < 100:
        raise ConfigError(f"--resamples must be at least 100, got {args.resamples}")
    ranges = dict(map(_range, args.range))
    check_folder(args.output)
    target = args.target
    if target is None and (args.metric.endswith("success_mean") or ranges):
        target = 1.0
    from seqrl.reports.comparison_figures import comparison_table, write_comparison
    from seqrl.reports.method_scores import Options, compare
    from seqrl.reports.runs import group_runs
    from seqrl.reports.series import AXES, default_axis

    methods = group_runs(args.runs)
    x = AXES[args.x] if args.x else default_axis([run.rows for method in methods for run in method.runs])
    options = Options(args.metric, x, args.at, ranges, target, args.resamples, args.seed)
    found = compare(methods, options)
    files = write_comparison(args.output, found)
    print(json.dumps(found.to_json(), indent=2) if args.json else comparison_table(found))
    print(f"wrote {', '.join(f.name for f in files)} to {args.output}", file=sys.stderr)
    return 0


def _with_ranges(words: Sequence[str]) -> list[str]:
    """Return the command line with each ``--range`` and what follows it as one word: a minus is no option there."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == "--range":
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _range(text: str) -> tuple[str, tuple[float, float]]:
    task, _, ends = text.rpartition("=")
    try:
        low, high = map(float, ends.split(","))
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"--range {text}: must be LOW,HIGH or TASK=LOW,HIGH with LOW below HIGH")
    return task, (low, high)


if __name__ == "__main__":
    sys.exit(main())
