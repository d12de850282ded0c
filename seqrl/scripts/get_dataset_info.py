"""Describe a dataset: episodes, lengths, returns, observations, actions, filters."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from seqrl.scripts._script import add_reader_options, script


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl get-dataset-info", description=__doc__)
    p.add_argument("--dataset", required=True, help="robomimic file, seqrl store, or what a plug-in's reader reads")
    add_reader_options(p)
    p.add_argument("--verify", action="store_true", help="compare every trajectory with its checksum")
    p.add_argument("--json", action="store_true", help="print JSON")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Describe, and return the exit code."""
    args = parser().parse_args(argv)
    import numpy as np

    from seqrl.core.errors import DataError
    from seqrl.core.plugins import load_plugins
    from seqrl.data.ingest import open_store

    load_plugins(args.plugin)
    store = open_store(args.dataset, format=args.format)
    if not len(store):
        raise DataError(f"{args.dataset} holds no trajectory")
    if args.verify and (altered := store.verify()):
        raise DataError(f"{args.dataset}: {len(altered)} altered trajectories\n  " + "\n  ".join(altered[:10]))

    def spread(values: np.ndarray) -> dict[str, float]:
        return {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}

    info: dict[str, Any] = {
        "dataset": args.dataset,
        "environment": store.info.env_id,
        "environment arguments": store.info.env_kwargs,
        "trajectories": len(store),
        "transitions": store.num_transitions,
        "size (MB)": store.num_bytes / 1e6,
        "length": spread(store.length),
        "return": spread(store.total_reward),
        "observations": {k: f"{d} {list(s)}" for k, (d, s) in store.schema.items() if k.startswith("obs/")},
        "actions": str(store.info.action_space),
        "true next observations": store.info.has_next_obs,
        "filter keys": {k: len(v) for k, v in store.info.filters.items()},
    }
    if args.json:
        print(json.dumps(info, indent=2))
        return 0
    width = max(map(len, info))
    for name, value in info.items():
        text = "  ".join(f"{k}: {v:.6g}" if isinstance(v, float) else f"{k}: {v}" for k, v in value.items()) \
            if isinstance(value, dict) else (f"{value:.4g}" if isinstance(value, float) else str(value))  # fmt: skip
        print(f"{name:<{width}}  {text or '-'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
