"""Draw metrics of runs as a PNG."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqrl.core.errors import ConfigError, did_you_mean
from seqrl.core.files import expanded
from seqrl.scripts._script import check_output, script
from seqrl.scripts.compare import AXIS_NAMES

DEFAULT_KEYS = ("eval/success_mean", "eval/return_mean", "loss/total", "valid/total")
MAX_PANELS = 24


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl plot", description=__doc__)
    p.add_argument("runs", nargs="+", metavar="RUN", help="runs, or folders that hold runs")
    p.add_argument(
        "--keys", metavar="A,B", help="metrics, one panel each; * is a wildcard (default: success, return and losses)"
    )
    p.add_argument("--x", choices=AXIS_NAMES, help="horizontal axis (default env_steps, if there were any)")
    p.add_argument(
        "--smooth", type=float, default=0.0, metavar="W",
        help="weight of the past in a moving average, in [0, 1) as in TensorBoard (default 0: as logged)",
    )  # fmt: skip
    p.add_argument("--output", type=expanded, default=Path("plot.png"), help="PNG to write (default %(default)s)")
    p.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Draw, and return the exit code."""
    args, keys = draw(argv)
    print(f"wrote {', '.join(keys)} to {args.output}", file=sys.stderr)
    return 0


def draw(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """Write the picture that a command line asks for, and return what it said and the metrics that were drawn.

    Raises:
        ConfigError: If it asks for what was never logged.
    """
    args = parser().parse_args(argv)
    if not 0 <= args.smooth < 1:
        raise ConfigError(f"--smooth must lie in [0, 1), got {args.smooth:g}")
    check_output(args.output, (".png",), overwrite=args.overwrite)
    from seqrl.reports.plots import plot_metrics
    from seqrl.reports.runs import find_runs
    from seqrl.reports.series import AXES, default_axis, points_of, range_end, read_metrics

    paths = list(dict.fromkeys(path.resolve() for given in args.runs for path in find_runs(given)))
    runs = dict(zip(_names(paths), (read_metrics(path / "metrics.jsonl") for path in paths), strict=True))
    x = AXES[args.x] if args.x else default_axis(list(runs.values()))
    if args.x == "env_steps" and not any(range_end(rows, x.key) for rows in runs.values()):
        raise ConfigError("--x env_steps: the runs took no environment steps")
    keys = _keys(args.keys, {k for rows in runs.values() for row in rows for k in row})
    empty = [k for k in keys if not any(np.isfinite(points_of(rows, k, x)[:, 1]).any() for rows in runs.values())]
    keys = [key for key in keys if key not in empty]
    if not keys:
        raise ConfigError(f"{empty[0]}: no run has a finite value along the {x.label}")
    if empty:
        print(f"left out, as no run has a finite value along the {x.label}: {', '.join(empty)}", file=sys.stderr)
    plot_metrics(args.output, runs, keys, x, weight=args.smooth)
    return args, keys


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the folders' names, with as many of their parents as it takes to tell them apart."""
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(paths):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def _keys(text: str | None, known: set[str]) -> list[str]:
    """Return the metrics that are asked for.

    Raises:
        ConfigError: If one was never logged.
    """
    if text is None:
        found = [key for key in DEFAULT_KEYS if key in known]
        if not found:
            raise ConfigError(f"give --keys; the runs have {_listed(known)}")
        return found
    keys: list[str] = []
    for pattern in filter(None, (part.strip() for part in text.split(","))):
        matching = fnmatch.filter(known, pattern.replace("[", "[[]"))  # names of metrics have brackets
        found = sorted(k for k in matching if k == pattern or not k.endswith(("_low", "_high")))
        if not found:
            raise ConfigError(
                f"--keys {pattern}: no run has it{did_you_mean(pattern, known)}; the runs have {_listed(known)}"
            )
        keys += [k for k in found if k not in keys]
    if not 1 <= len(keys) <= MAX_PANELS:
        raise ConfigError(f"--keys {text}: finds {len(keys)} metrics, and 1 to {MAX_PANELS} can be drawn at once")
    return keys


def _listed(known: set[Any]) -> str:
    shown = sorted(k for k in known if not k.endswith(("_low", "_high")))
    return ", ".join(shown[:20]) + (f" and {len(shown) - 20} more" if len(shown) > 20 else "")


if __name__ == "__main__":
    sys.exit(main())
