"""Rank checkpoints by what their policies would earn, from data alone (fitted Q evaluation)."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqrl.core.errors import ConfigError
from seqrl.scripts._script import add_acting_options, add_reader_options, check_seed, reader_options, script

HEAD = ["rank", "checkpoint", "algorithm", "estimated value", "unlike the data", "measured return"]


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="seqrl select", description=__doc__)
    p.add_argument("runs", nargs="+", metavar="RUN", help="runs' folders (their last checkpoint), or checkpoints")
    p.add_argument("--dataset", required=True, help="whole episodes with rewards, of any policy: a file or a store")
    add_reader_options(p)
    p.add_argument("--every", action="store_true", help="evaluate every kept checkpoint, not only the last")
    p.add_argument(
        "--steps", type=int, help="gradient steps of each fit (default: set by --gamma and the longest episode)"
    )
    p.add_argument("--gamma", type=float, default=0.99, help="discount of the value (default %(default)s)")
    add_acting_options(p)
    p.add_argument("--seed", type=int, default=0, help="seed of the fits (default %(default)s)")
    p.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return p


@script
def main(argv: Sequence[str] | None = None) -> int:
    """Judge, print the ranking, and return the exit code."""
    args = parser().parse_args(argv)
    check_seed(args.seed)
    if (args.steps is not None and args.steps < 1) or not 0.0 <= args.gamma < 1.0:
        raise ConfigError("--steps must be at least 1, and --gamma from 0 to less than 1")
    from seqrl.core.plugins import load_plugins
    from seqrl.data.ingest import open_store
    from seqrl.reports.comparison_figures import markdown_table

    load_plugins(args.plugin)
    store = open_store(args.dataset, reader_options(args), format=args.format)
    rows = []
    for path in _checkpoints(args.runs, is_every=args.every):
        rows.append(_judged(path, store, args))
        if not args.json:
            print(f"{rows[-1]['checkpoint']}: {rows[-1]['value']:.4g}", file=sys.stderr)
    rows.sort(key=lambda row: -row["value"])
    found = {"dataset": args.dataset, "gamma": args.gamma, "checkpoints": rows, "rank_correlation": _correlation(rows)}
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    print(markdown_table(HEAD, [_shown(i, row) for i, row in enumerate(rows, 1)]))
    if found["rank_correlation"] is not None:
        print(f"\nrank correlation with the returns that were measured in training: {found['rank_correlation']:.2f}")
    print(f"\nhighest estimate: {rows[0]['checkpoint']}")
    return 0


def _checkpoints(runs: Sequence[str], *, is_every: bool) -> list[Path]:
    """Return the folders of the checkpoints, each once, in the order given."""
    from seqrl.core.checkpoint_card import CARD, find_checkpoint
    from seqrl.core.files import is_temporary

    found: list[Path] = []
    for run in runs:
        folder = Path(run) / "checkpoints"
        every = sorted(path.parent for path in folder.glob(f"*/{CARD}")) if is_every else []
        found += [path for path in every if not is_temporary(path.name)] or [find_checkpoint(run)]
    return list(dict.fromkeys(found))


def _judged(path: Path, store: Any, args: argparse.Namespace) -> dict[str, Any]:
    """Return what is known and estimated of a checkpoint."""
    from seqrl.algo.checkpoint import load_algo, read_checkpoint
    from seqrl.rollout import selection

    checkpoint = read_checkpoint(path)
    algo, _, action_space = load_algo(checkpoint, "cpu")
    config = selection.fit_config(store, like=algo.config, num_steps=args.steps, gamma=args.gamma, seed=args.seed)
    found = selection.policy_value(algo, store, action_space, config=config, deterministic=args.deterministic)
    measured = (checkpoint.card.get("metrics") or {}).get("eval/return_mean")
    return {
        "checkpoint": str(path),
        "algo": algo.config.algo_name,
        "value": found.value.value,
        "low": found.value.low,
        "high": found.value.high,
        "disagreement": found.disagreement,
        "measured_return": measured,
    }


def _correlation(rows: Sequence[dict[str, Any]]) -> float | None:
    """Return the rank correlation of estimates and measured returns, where there are three or more that differ."""
    from seqrl.rollout.selection import rank_correlation

    pairs = [(row["value"], row["measured_return"]) for row in rows if row["measured_return"] is not None]
    found = rank_correlation(*zip(*pairs, strict=True)) if len(pairs) >= 3 else math.nan
    return found if math.isfinite(found) else None


def _shown(rank: int, row: dict[str, Any]) -> list[str]:
    ends = "" if row["low"] is None else f" [{row['low']:.4g}, {row['high']:.4g}]"
    measured = "" if row["measured_return"] is None else f"{row['measured_return']:.4g}"
    value = f"{row['value']:.4g}{ends}"
    return [str(rank), row["checkpoint"], row["algo"], value, f"{row['disagreement']:.3g}", measured]


if __name__ == "__main__":
    sys.exit(main())
