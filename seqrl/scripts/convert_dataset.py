"""Convert data of any format to a seqrl store, a robomimic file, or a dataset of Minari."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from seqrl.core.files import expanded
from seqrl.scripts._script import add_reader_options, reader_options, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl convert-dataset", description=__doc__)
    p.add_argument("source", type=expanded, help="file, folder, store, or id in Minari's local store")
    p.add_argument("target", type=expanded, help="what to write: a name in .hdf5 or .h5 is a file, any other a store")
    p.add_argument(
        "--to",
        choices=("robomimic", "store", "minari"),
        help="format of the target (default: by its name); for minari, it is an id such as robot/lift-v0, or a path",
    )
    add_reader_options(p)
    p.add_argument("--overwrite", action="store_true", help="replace the target if it exists")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Convert, and return the exit code."""
    args = parser().parse_args(argv)
    import seqrl.envs  # noqa: F401  (registers the built-in environments, whose description Minari stores)
    from seqrl.core.plugins import load_plugins
    from seqrl.data.convert import convert
    from seqrl.data.writers.minari import minari_folder

    load_plugins(args.plugin)
    options = reader_options(args)
    number = convert(
        args.source, args.target, overwrite=args.overwrite, options=options, format=args.format, to=args.to
    )
    target = args.target if args.to != "minari" else minari_folder(args.target)[0]
    print(f"wrote {number} episodes to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
