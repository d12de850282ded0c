"""Pong from pixels for 1,000 steps on one core, three seeds: how fast each part of the pipeline is.

pip install 'seqrl[atari]'
python benchmarks/pong.py              # whatever seed has no result yet; about five minutes each
python benchmarks/pong.py --table      # only write the table in docs/environments/suites.md
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from record import RESULTS, provenance, table, write_table
from run_queue import run_python

from seqrl.core.files import write_json

PAGE = Path(__file__).parents[1] / "docs" / "environments" / "suites.md"
RESULT, SEEDS = RESULTS / "pong.json", 3
COMMAND = (
    "seqrl/scripts/train.py", "--algo", "actor_critic", "--env", "ALE/Pong-v5", "--memory", "gru",
    "--env-steps", "1000", "--set", "train.replay_ratio=0.1",
    "--set", "experiment.report.enabled=false", "--set", "train.num_threads=1",
)  # fmt: skip
SHOWN = {"time/env_steps_per_s": "env steps/s", "time/gradient_steps_per_s": "gradient steps/s",
         "time/env_share": "environment", "time/policy_share": "policy", "time/record_share": "recording"}  # fmt: skip


def measure(seed: int) -> dict[str, Any]:
    """Return medians over the epochs of a run."""
    with tempfile.TemporaryDirectory() as folder:
        placed = ("--name", "run", "--set", f"experiment.output_dir={folder}", "--set", f"train.seed={seed}")
        cpu_s = run_python([*COMMAND, *placed], Path(folder) / "log.txt")
        rows = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    found: dict[str, Any] = {name: statistics.median(r[name] for r in rows if name in r) for name in SHOWN}
    return {**found, "gradient_steps": rows[-1]["step"], "return": [r["eval/return_mean"] for r in rows
            if "eval/return_mean" in r][-1], "cpu_s": round(cpu_s, 1)}  # fmt: skip


def rows_of_table(runs: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return a line for each seed."""
    speeds, shares = list(SHOWN.items())[:2], list(SHOWN.items())[2:]
    return [
        {
            "seed": str(seed),
            **{name: f"{run[key]:{'.0f' if run[key] > 10 else '.1f'}}" for key, name in speeds},
            **{name: f"{100 * run[key]:.0f} %" for key, name in shares},
            "gradient steps": str(run["gradient_steps"]),
            "return": f"{run['return']:.1f}",
            "core seconds": f"{run['cpu_s']:.0f}",
        }
        for seed, run in enumerate(runs)
    ]


def main() -> None:
    """Run what is missing, and write the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--table", action="store_true", help="train nothing")
    arguments = p.parse_args()
    runs = json.loads(RESULT.read_text())["runs"] if RESULT.exists() else []
    for seed in range(len(runs), 0 if arguments.table else SEEDS):
        runs.append(measure(seed))
        write_json(RESULT, {**provenance(), "command": " ".join(COMMAND), "runs": runs})
        print(seed, runs[-1], flush=True)
    write_table(PAGE, "pong", table(rows_of_table(runs)))


if __name__ == "__main__":
    main()
