"""Write filter keys that split a dataset into training and validation episodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.core.errors import ConfigError
from seqrl.scripts._script import add_dataset, check_seed, parsed, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl split-train-val", description=__doc__)
    add_dataset(p, "robomimic HDF5 file, or seqrl store")
    p.add_argument("--valid-fraction", "--ratio", type=float, default=0.1, help="share held out (default %(default)s)")
    p.add_argument("--seed", type=int, default=0, help="picks the episodes (default %(default)s)")
    p.add_argument("--filter-key", "--filter_key", help="split the episodes of this key, into KEY_train and KEY_valid")
    p.add_argument(
        "--names",
        nargs=2,
        default=["train", "valid"],
        metavar=("TRAIN", "VALID"),
        help="names of the new keys (default train valid)",
    )
    p.add_argument("--overwrite", action="store_true", help="replace keys that exist")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Split, and return the exit code."""
    args = parsed(parser(), argv)
    check_seed(args.seed)
    if not 0 < args.valid_fraction < 1:
        raise ConfigError(f"--valid-fraction must lie between 0 and 1, got {args.valid_fraction:g}")
    if args.names[0] == args.names[1]:
        raise ConfigError(f"--names must differ, got {args.names[0]!r} twice")
    from seqrl.data.filters import split_train_val, write_filters

    path, names = Path(args.dataset), (args.names[0], args.names[1])
    filters = split_train_val(path, args.valid_fraction, seed=args.seed, key=args.filter_key, names=names)
    write_filters(path, filters, overwrite=args.overwrite)
    print(f"{args.dataset}: " + ", ".join(f"{key} has {len(names)} episodes" for key, names in filters.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
