"""Write a filter key of a random subset of a dataset's episodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.core.errors import ConfigError
from seqrl.scripts._script import add_dataset, check_seed, parsed, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl filter-dataset-size", description=__doc__)
    add_dataset(p, "robomimic HDF5 file, or seqrl store")
    num = ("--num-episodes", "--num_demos")
    p.add_argument(*num, type=int, required=True, help="episodes of the subset; its key is <n>_demos")
    p.add_argument(
        "--seed",
        type=int,
        default=0,
        help="picks the episodes; with one seed, smaller subsets are part of larger ones (default %(default)s)",
    )
    p.add_argument(
        "--filter-key",
        "--filter_key",
        "--input_filter_key",
        help="take episodes of this key only; the new key is KEY_<n>_demos",
    )
    p.add_argument("--output-filter-key", "--output_filter_key", help="another name for the new key")
    p.add_argument("--overwrite", action="store_true", help="replace the key if it exists")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Choose, and return the exit code."""
    args = parsed(parser(), argv)
    check_seed(args.seed)
    if args.num_episodes < 1:
        raise ConfigError(f"--num-episodes must be at least 1, got {args.num_episodes}")
    from seqrl.data.filters import random_subset, write_filters

    path = Path(args.dataset)
    filters = random_subset(path, args.num_episodes, seed=args.seed, key=args.filter_key)
    if args.output_filter_key is not None:
        filters = {args.output_filter_key: next(iter(filters.values()))}
    write_filters(path, filters, overwrite=args.overwrite)
    print(f"{args.dataset}: {', '.join(filters)} has {args.num_episodes} episodes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
