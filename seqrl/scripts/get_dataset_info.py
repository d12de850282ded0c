"""Describe a dataset: episodes, lengths, returns, observations, actions, filters."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from seqrl.core.files import expanded
from seqrl.scripts._script import add_dataset, add_reader_options, check_output, parsed, reader_options, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl get-dataset-info", description=__doc__)
    add_dataset(p, "file, folder, store, or id in Minari's local store")
    add_reader_options(p)
    p.add_argument("--verify", action="store_true", help="compare every trajectory with its checksum")
    p.add_argument("--filter-key", "--filter_key", help="only the episodes that this filter names")
    p.add_argument("--verbose", action="store_true", help="list every episode with its length and return")
    p.add_argument("--html", type=expanded, metavar="PAGE", help="write a page with histograms, images and episodes")
    p.add_argument("--overwrite", action="store_true", help="replace the page if it exists")
    p.add_argument("--json", action="store_true", help="print JSON")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Describe, and return the exit code."""
    args = parsed(parser(), argv)
    from seqrl.core.errors import DataError
    from seqrl.core.plugins import load_plugins
    from seqrl.data.convert import is_store
    from seqrl.data.episodes import select_episodes
    from seqrl.data.ingest import open_store
    from seqrl.rollout.dataset_page import describe_dataset, write_page_of

    check_output(args.html, (".html",), overwrite=args.overwrite)
    load_plugins(args.plugin)
    store = open_store(args.dataset, reader_options(args), format=args.format)
    if not len(store):
        raise DataError(f"{args.dataset} holds no trajectories")
    if args.verify:
        if altered := store.verify():
            raise DataError(f"{args.dataset}: {len(altered)} altered trajectories\n  " + "\n  ".join(altered[:10]))
        made = "written" if is_store(Path(args.dataset)) else "converted"
        print(f"verified: all {len(store)} trajectories are as they were {made}", file=sys.stderr)
    numbers = select_episodes(store, args.filter_key)
    info = describe_dataset(args.dataset, store, numbers)
    if args.html is not None:
        write_page_of(args.html, args.dataset, store, numbers)
        print(f"wrote {args.html}", file=sys.stderr)
    if args.verbose:
        rows = {store.name_of(n): n for n in numbers.tolist()}
        info["episodes"] = {
            k: {"length": int(store.length[n]), "return": float(store.total_reward[n])} for k, n in rows.items()
        }
    if args.json:
        print(json.dumps(info, indent=2))
        return 0
    episodes = info.pop("episodes", {})
    width = max(map(len, info))
    for name, value in info.items():
        text = "  ".join(f"{k}: {v:.6g}" if isinstance(v, float) else f"{k}: {v}" for k, v in value.items()) \
            if isinstance(value, dict) else (f"{value:.4g}" if isinstance(value, float) else str(value))  # fmt: skip
        print(f"{name:<{width}}  {text or '-'}")
    for name, values in episodes.items():
        print(f"  {name}: {values['length']} steps, return {values['return']:.6g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
