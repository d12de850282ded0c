"""What old data is worth to an agent that learns online: ``rlpd.json`` with its 300 mixed episodes, and without any.

python benchmarks/rlpd.py            # whatever has no result yet; may be stopped and started again
python benchmarks/rlpd.py --table    # only write the table in docs/offline.md

A T-Maze with a corridor of 20, whose hint has to be remembered; 5,000 environment steps; five seeds. Half of the
episodes are an expert's of whose actions one in five is random, half are random. A run takes one core and four minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np
from record import RESULTS, provenance, table, write_table
from run_queue import run_python

from seqrl.core.files import write_json
from seqrl.reports.intervals import mean_interval

ROOT = Path(__file__).parents[1]
FOLDER = RESULTS / "rlpd"
SEEDS = range(5)
DATA = {"with the data": (), "without": ("train.data=[]",)}
"""Name of the row -> settings."""


def result_file(row: str, seed: int) -> Path:
    """Return where a run's result lies."""
    return FOLDER / f"{row.replace(' ', '_')}-{seed}.json"


def run(row: str, seed: int) -> None:
    """Train and write the result."""
    where = provenance()
    with tempfile.TemporaryDirectory() as folder:
        settings = [*DATA[row], f"train.seed={seed}"]
        words = [word for setting in settings for word in ("--set", setting)]
        placed = ["--name", "run", "--set", f"experiment.output_dir={folder}", "--set", "train.num_threads=1"]
        command = ["seqrl/scripts/train.py", "--config", "rlpd.json", *words]
        run_python([*command, *placed, "--set", "experiment.logging.progress_bar=false"], Path(folder) / "log.txt")
        lines = [json.loads(line) for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines()]
    found = [line for line in lines if "eval/success_mean" in line]
    curve = [[int(line.get("progress/env_steps", 0)), line["eval/success_mean"]] for line in found]
    content = {**where, "row": row, "seed": seed, "command": " ".join(["python", *command]), "curve": curve}
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_json(result_file(row, seed), content)
    print(row, seed, curve, flush=True)


def curves(row: str) -> np.ndarray:
    """Return (seed, evaluation, (steps, success)) of the runs that are there."""
    files = [result_file(row, seed) for seed in SEEDS]
    return np.array([json.loads(file.read_text())["curve"] for file in files if file.exists()])


def rows_of_table() -> list[dict[str, str]]:
    """Return a row with the data and one without: success after as many environment steps."""
    rows = []
    for row in DATA:
        if not len(found := curves(row)):
            continue
        cells = {"episodes of others": row}
        for i in range(1, found.shape[1]):
            values = found[:, i, 1]
            one = mean_interval(values)
            ends = "" if one.low is None else f" [{max(one.low, 0.0):.2f}, {min(one.high, 1.0):.2f}]"  # of a share
            cells[f"{found[0, i, 0]:,.0f} steps"] = f"**{one.value:.2f}**{ends} " + " ".join(f"{v:.2f}" for v in values)
        rows.append(cells)
    return rows


def main() -> None:
    """Run what is missing, and write the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--table", action="store_true", help="train nothing")
    arguments = p.parse_args()
    os.chdir(ROOT)
    for seed in [] if arguments.table else SEEDS:
        for row in DATA:
            if not result_file(row, seed).exists():
                run(row, seed)
    text = table(rows_of_table())
    print(text)
    write_table(ROOT / "docs/offline.md", "rlpd", text)


if __name__ == "__main__":
    main()
