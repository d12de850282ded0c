"""Windows per second out of thousands of shards at the usual limit of 1,024 open files, beside an older commit.

The older commit, whose maps hold a descriptor each, reads the same store with the limit raised as far as it goes: where
that is not far enough for all shards, both are compared on as many as it can map. All take turns in every
repeat; the median is reported, after a first pass that reads everything once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from record import record, table
from replay import INFO, LENGTH, WINDOW, trajectory

import seqrl
from seqrl.data import Budget, SequenceDataset, Source, Store, StoreWriter

ROOT = Path(__file__).parents[1]
BATCH, COLUMNS, USUAL = 24, 5, 1024
CHILD = "--child"


def make(folder: Path, num: int) -> None:
    """Write a store of ``num`` shards of one trajectory each; nothing is synced, which would take minutes."""
    os.fsync = lambda handle: None
    rng = np.random.default_rng(0)
    pool = [trajectory(rng) for _ in range(16)]
    with StoreWriter(folder, INFO, "fifo", Budget(trajectories=16)) as writer:
        for k in range(num):
            writer.append(pool[k % len(pool)])


def rate(draw: Callable[[int], Any], seconds: float) -> float:
    """Return the windows per second that are drawn."""
    begin, k = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        draw(k)
        k += 1
    return k * BATCH / (time.perf_counter() - begin)


def child(folder: str, num: str, limit: str) -> None:
    """Read the first shards of a store under a limit of open files; answer every line of input with two rates."""
    if not seqrl.__file__.startswith(os.environ["PYTHONPATH"]):
        raise SystemExit(f"{seqrl.__file__} is read instead of {os.environ['PYTHONPATH']}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(limit), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    begin = time.perf_counter()
    store, numbers = Store(Path(folder)), np.arange(int(num))
    opened = time.perf_counter()
    dataset = SequenceDataset([Source(store, numbers)], WINDOW)
    for number in numbers:
        store.trajectory(int(number))
    seconds = {"open_s": opened - begin, "first_pass_s": time.perf_counter() - opened}
    print(json.dumps(seconds), flush=True)
    rng = np.random.default_rng(0)

    def gather(k: int) -> None:
        starts = rng.integers(0, LENGTH - WINDOW, BATCH)
        store.gather(rng.choice(numbers, BATCH), starts[:, None] + np.arange(WINDOW + 1))

    for round_number, line in enumerate(sys.stdin):
        batches = rate(lambda k, r=round_number: dataset.batch(BATCH, seed=0, path=("bench", r, k)), float(line))
        print(json.dumps([batches, rate(gather, float(line))]), flush=True)


class Reader:
    """A process that reads with the code of some folder."""

    def __init__(self, code: Path, folder: Path, num: int, limit: int) -> None:
        self.num, self.limit = num, limit
        self.rates: list[list[float]] = []
        self._process = subprocess.Popen(
            [sys.executable, __file__, CHILD, str(folder), str(num), str(limit)],
            env={**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.first = json.loads(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"a reader of {self.num} shards under a limit of {self.limit} open files failed")
        return line

    def measure(self, seconds: float) -> None:
        """Add one pair of rates."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        self.rates.append(json.loads(self._answer()))

    def row(self) -> dict[str, Any]:
        """Return what was measured."""
        self._process.communicate()
        batches, gathered = (statistics.median(r) for r in zip(*self.rates, strict=True))
        limits = {"shards": self.num, "limit_of_open_files": self.limit}
        return {**limits, "windows_per_s": batches, "gathered_windows_per_s": gathered, **self.first}


def main() -> None:
    """Measure, print, record."""
    if CHILD in sys.argv:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=5000)
    parser.add_argument("--before", default="af94ec2", help="commit to compare with")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    args = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    compared = min(args.shards, (most - 100) // COLUMNS)
    with tempfile.TemporaryDirectory() as name:
        old, folder = Path(name) / "old", Path(name) / "store"
        old.mkdir()
        archive = subprocess.run(["git", "archive", args.before, "seqrl"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "x"], cwd=old, input=archive.stdout, check=True)
        make(folder, args.shards)
        readers = {
            "before": Reader(old, folder, compared, most),
            "after": Reader(ROOT, folder, compared, USUAL),
            "after, all": Reader(ROOT, folder, args.shards, USUAL),
        }
        for _ in range(args.repeats):
            for reader in readers.values():
                reader.measure(args.seconds)
        ratios = [
            statistics.median(a[i] / b[i] for a, b in zip(readers["after"].rates, readers["before"].rates, strict=True))
            for i in (0, 1)
        ]
        rows = [{"code": key, **reader.row()} for key, reader in readers.items()]
    print(table([{k: f"{v:,.0f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows]))
    print(f"after / before, in one round: {ratios[0]:.2f} of windows in batches, {ratios[1]:.2f} of windows gathered")
    figures = {"compared_with": args.before, "columns": COLUMNS, "rows": rows}
    print("recorded in", record("shards", {**figures, "ratio": ratios[0], "gathered_ratio": ratios[1]}))


if __name__ == "__main__":
    main()
