"""Convert data of any format to a seqrl store; or data of any other format to a robomimic file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.scripts._script import add_reader_options, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl convert-dataset", description=__doc__)
    p.add_argument("source", type=Path, help="file, folder, store, or id in Minari's local store")
    p.add_argument("target", type=Path, help="what to write: a name in .hdf5 or .h5 is a file, any other a store")
    p.add_argument(
        "--dones-mean",
        choices=("terminated", "truncated"),
        default="terminated",
        help="what a 1 in 'dones' of a file says (default %(default)s)",
    )
    add_reader_options(p)
    p.add_argument("--overwrite", action="store_true", help="replace the target if it exists")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Convert, and return the exit code."""
    args = parser().parse_args(argv)
    from seqrl.core.plugins import load_plugins
    from seqrl.data.convert import convert

    load_plugins(args.plugin)
    options = {"dones_mean": args.dones_mean}
    number = convert(args.source, args.target, overwrite=args.overwrite, options=options, format=args.format)
    print(f"wrote {number} episodes to {args.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
