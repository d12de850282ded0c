"""Soak test of the replay: transitions of 32 floats through a budget on disk, with windows drawn all the while.

Reports anonymous memory (RssAnon), size on disk and windows/s while the store turns over many times.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from record import record, table

from seqrl.core.host_memory import keep_freed_memory
from seqrl.core.types import Trajectory
from seqrl.data import Budget, SequenceDataset, Source, Store, StoreInfo, StoreWriter

FEATURES, LENGTH, WINDOW, BATCH = 32, 500, 128, 24
INFO = StoreInfo(spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32), spaces.Box(-1, 1, (4,), np.float32))


def anonymous_mb() -> float:
    """Return this process's anonymous memory in MB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def disk_mb(folder: Path) -> float:
    """Return the size of all files below a folder in MB."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6


def trajectory(rng: np.random.Generator) -> Trajectory:
    """Return one episode of random numbers."""
    return Trajectory(
        obs={"obs": rng.standard_normal((LENGTH + 1, FEATURES), np.float32)},
        actions=rng.uniform(-1, 1, (LENGTH, 4)).astype(np.float32),
        rewards=rng.standard_normal(LENGTH).astype(np.float32),
        terminated=np.zeros(LENGTH, bool),
        truncated=np.arange(LENGTH) == LENGTH - 1,
        env_name="soak",
    )


def report(args: argparse.Namespace, seen: list[dict[str, Any]], left: list[str]) -> None:
    """Print and record what was seen, and what was left behind."""
    shown = [seen[i] for i in np.linspace(0, len(seen) - 1, 6).astype(int)]
    print(table([{k: f"{v:,.4g}" for k, v in row.items()} for row in shown]))
    full = [row for row in seen if row["million transitions"] * 1e6 * 150 > 1.5 * args.gb * 1e9] or seen
    third = max(1, len(full) // 3)
    ratios = {
        key: statistics.median(r[key] for r in full[-third:]) / statistics.median(r[key] for r in full[:third])
        for key in ("windows/s", "RssAnon (MB)")
    }
    most = max(row["disk (MB)"] for row in seen)
    print(f"last third against first, once full: {ratios}; most on disk {most:.1f} MB; left behind: {left}")
    figures = {
        "transitions": args.transitions,
        "budget_gb": args.gb,
        "rounds": seen,
        "last_third_against_first": ratios,
        "most_on_disk_mb": most,
        "files_left_behind": left,
    }
    print("recorded in", record("replay", figures))


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transitions", type=float, default=20e6)
    parser.add_argument("--gb", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=40, help="measurements on the way")
    parser.add_argument("--windows", type=int, default=4800, help="drawn per round")
    args = parser.parse_args()
    keep_freed_memory()
    budget = Budget(num_bytes=int(args.gb * 1e9))
    rng = np.random.default_rng(0)
    pool = [trajectory(rng) for _ in range(16)]
    per_round = int(args.transitions / LENGTH / args.rounds)
    seen: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = StoreWriter(folder, INFO, "fifo", budget)
        store = Store(folder)
        dataset = SequenceDataset([Source(store, name="replay")], WINDOW, sample_by="transition")
        for number in range(args.rounds):
            begin = time.perf_counter()
            for k in range(per_round):
                writer.append(pool[k % len(pool)])
            written_s = time.perf_counter() - begin
            store.refresh()
            store.evict(budget)
            dataset.refresh(number)
            begin = time.perf_counter()
            for k in range(args.windows // BATCH):
                dataset.batch(BATCH, seed=0, path=("train", number, k))
            drawn_s = time.perf_counter() - begin
            seen.append(
                {
                    "million transitions": (number + 1) * per_round * LENGTH / 1e6,
                    "windows/s": args.windows / drawn_s,
                    "transitions written/s": per_round * LENGTH / written_s,
                    "RssAnon (MB)": anonymous_mb(),
                    "disk (MB)": disk_mb(folder),
                    "in the index (MB)": store.num_bytes / 1e6,
                    "shards": len(list((folder / "fifo").iterdir())),
                }
            )
        writer.close()
        store.refresh()
        store.evict(Budget(num_bytes=0))
        left = [p.name for p in (folder / "fifo").iterdir()]
    report(args, seen, left)


if __name__ == "__main__":
    main()
