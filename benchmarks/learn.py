"""What seqrl learns, from how many environment steps: every row of the table in docs/learning.md, on three seeds.

python benchmarks/learn.py                      # whatever has no result yet; may be stopped and started again
python benchmarks/learn.py --rows lake key_door # some rows
python benchmarks/learn.py --table              # only write the tables from the results that are there

A row is a run file under ``benchmarks/learning/``; its variants (another agent, a control without a memory) are what
``--set`` changes about it. A run takes one core and at most ten minutes. Its result is written to
``benchmarks/learning/results/``, and its folder, for ``seqrl compare`` and ``seqrl probe``, lies in ``runs/learning``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from record import provenance, table

ROOT = Path(__file__).parents[1]
HERE = ROOT / "benchmarks/learning"
RUNS = ROOT / "runs/learning"
sys.path.insert(0, str(ROOT))

from seqrl.training.statistics import Estimate, mean_interval  # noqa: E402

LIMIT_S = 600
RETURN, SUCCESS = "eval/return_mean", "eval/success_mean"
NO_MEMORY = (
    "algo.sequence_encoder.type=feedforward",
    "algo.sequence_encoder.d_model=64",
    "algo.sequence_encoder.d_ff=256",
)
Variants = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Row:
    """A task and what is asked of it.

    Attributes:
        task: What it is called in the table.
        asked: What the mean over the seeds is asked to reach within the budget.
        budget: Environment steps.
        main: Name of the run file as it stands.
        variants: Name -> what ``--set`` changes; ``no memory`` is the control.
        metric: Its last value is a run's result.
    """

    task: str
    asked: str
    budget: int
    main: str
    variants: Variants = field(default_factory=dict)
    metric: str = RETURN


def multitask(low: float, high: float) -> tuple[str, ...]:
    """Return what makes a run of ``multitask``, whose critics have to be told the range of (multiplied) returns."""
    returns = (f"algo.returns.low={low}", f"algo.returns.high={high}", "algo.returns.use_symlog=false")
    return (
        "algo_name=multitask",
        *returns,
        "algo.returns.value_space=return",
        "algo.online_coeff=0.0",
        "algo.offline_coeff=1.0",
    )


ROWS = {
    "repeat_first_gru": Row(
        "POPGym RepeatFirstEasy", "1.0", 6_000, "GRU", {"no memory": NO_MEMORY, "multitask": multitask(-1, 1)}
    ),
    "repeat_previous_gru": Row(
        "POPGym RepeatPreviousEasy, GRU", "0.95", 8_000, "GRU", {"no memory": NO_MEMORY, "multitask": multitask(-1, 1)}
    ),
    "repeat_previous_transformer": Row(
        "POPGym RepeatPreviousEasy, Transformer",
        "0.9",
        30_000,
        "Transformer",
        {"no memory": NO_MEMORY, "multitask": multitask(-1, 1)},
    ),
    "repeat_previous_mamba": Row(
        "POPGym RepeatPreviousEasy, Mamba", "0.9", 30_000, "Mamba", {"multitask": multitask(-1, 1)}
    ),
    "tmaze_20": Row(
        "T-Maze, corridor of 20",
        "1.0",
        12_000,
        "GRU",
        {"no memory": NO_MEMORY, "multitask": multitask(-12, 12)},
        SUCCESS,
    ),
    "tmaze_50": Row(
        "T-Maze, corridor of 50",
        "1.0",
        30_000,
        "GRU",
        {"no memory": NO_MEMORY, "multitask": multitask(-12, 12)},
        SUCCESS,
    ),
    "lake": Row(
        "MetaFrozenLake 3x3, 5 attempts",
        "4.3 of 5",
        25_000,
        "GRU",
        {"no memory": NO_MEMORY, "multitask": multitask(0, 50)},
    ),
    "key_door": Row(
        "DarkKeyDoor 4x4, horizon 100", "9", 25_000, "GRU", {"no memory": NO_MEMORY, "multitask": multitask(0, 80)}
    ),
    "position_cartpole": Row(
        "POPGym PositionOnlyCartPoleEasy", "0.6", 64_000, "GRU", {"no memory": NO_MEMORY, "multitask": multitask(0, 12)}
    ),
    "maze": Row(
        "MazeRunner 7x7, 1 goal, relabeled",
        "more than below",
        8_000,
        "GRU",
        {"not relabeled": ("collect.replay.relabel=null",), "no memory": NO_MEMORY, "multitask": multitask(0, 11)},
        SUCCESS,
    ),
    "pendulum": Row("Pendulum-v1", "-250", 40_000, "none needed", {"multitask": multitask(-90, 1)}),
    "cartpole": Row("CartPole-v1", "475", 60_000, "none needed", {"multitask": multitask(0, 11)}),
}


def all_runs(rows: Sequence[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """Yield row, variant and seed: what the tables need first comes first."""
    for seed in range(seeds):
        for name in rows:
            yield name, ROWS[name].main, seed
    for seed in range(seeds):
        for name in rows:
            for variant in ROWS[name].variants:
                yield name, variant, seed


def result_file(row: str, variant: str, seed: int) -> Path:
    """Return where a run's result lies."""
    return HERE / "results" / row / f"{variant.replace(' ', '_')}_seed{seed}.json"


def arguments_of(row: str, variant: str, seed: int) -> list[str]:
    """Return what is passed to ``seqrl train``, from the top of the repository."""
    settings = [*ROWS[row].variants.get(variant, ()), f"train.seed={seed}"]
    return ["--config", f"benchmarks/learning/{row}.json", *(word for s in settings for word in ("--set", s))]


def train(row: str, variant: str, seed: int, folder: Path) -> str:
    """Train, write the result, and return a line that tells it. A run that ends in an error leaves no result."""
    name = f"{row}-{variant.replace(' ', '_')}-{seed}"
    command = ["seqrl/scripts/train.py", *arguments_of(row, variant, seed)]
    placed = ["--name", name, "--overwrite", "--set", f"experiment.output_dir={folder}"]
    quiet = ["--set", "experiment.logging.progress_bar=false", "--set", "train.num_threads=1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    begun, where = time.perf_counter(), provenance()
    log = folder / f"{name}.txt"
    with open(log, "w", encoding="utf-8") as said:
        done = subprocess.run(
            [sys.executable, *command, *placed, *quiet],
            cwd=ROOT,
            env=environment,
            stdout=said,
            stderr=said,
            check=False,
        )
    wall_s = time.perf_counter() - begun
    if done.returncode:
        return f"{name}: ended with {done.returncode}; see {log}"
    result = {"command": " ".join(["python", *command]), **outcome(row, folder / name), "wall_s": round(wall_s, 1)}
    content = {"row": row, "variant": variant, "seed": seed, **result, **where}
    content["config"] = json.loads((folder / name / "config.json").read_text())
    del content["config"]["experiment"]["output_dir"]
    file = result_file(row, variant, seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(file)
    late = f"; more than {LIMIT_S} s" if wall_s > LIMIT_S else ""
    return f"{name}: {result['result']:.3f} after {result['env_steps']} steps, {wall_s:.0f} s{late}"


def outcome(row: str, run: Path) -> dict[str, Any]:
    """Return the last evaluation of a run, and the curve up to it."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    metric = ROWS[row].metric
    evaluations = [line for line in lines if metric in line]
    last = evaluations[-1]
    return {
        "budget": ROWS[row].budget,
        "env_steps": int(last["progress/env_steps"]),
        "gradient_steps": int(last["step"]),
        "metric": metric,
        "result": last[metric],
        "evaluation": {key: value for key, value in last.items() if key.startswith("eval/")},
        "curve": [[int(line["progress/env_steps"]), round(line[metric], 4)] for line in evaluations],
    }


def results(row: str, variant: str) -> list[dict[str, Any]]:
    """Return what is there, by seed."""
    files = sorted(result_file(row, variant, 0).parent.glob(f"{variant.replace(' ', '_')}_seed*.json"))
    return [json.loads(file.read_text()) for file in files]


def summary(found: Sequence[dict[str, Any]]) -> str:
    """Return mean and interval over the seeds, as ``seqrl compare`` gives them."""
    if not found:
        return "-"
    estimate: Estimate = mean_interval(np.array([run["result"] for run in found]))
    digits = 0 if abs(estimate.value) >= 20 else 2
    value, low, high = (f"{x:.{digits}f}" for x in (estimate.value, estimate.low, estimate.high))
    few = "" if len(found) >= 3 else f" ({len(found)} of 3 seeds)"
    return f"{value} [{low}, {high}]{few}"


def rows_of_table() -> list[dict[str, str]]:
    """Return the table: a line for each row, and one for each variant that is neither a control nor the other agent."""
    lines = []
    for name, row in ROWS.items():
        first = {"task": f"[{row.task}](../benchmarks/learning/{name}.json)", "steps": f"{row.budget // 1000}k"}
        first |= {"to reach": row.asked, "memory": row.main, "actor_critic": summary(results(name, row.main))}
        lines.append(first | {v: summary(results(name, v)) for v in ("no memory", "multitask")})
        for variant in row.variants.keys() - {"no memory", "multitask"}:
            blank = dict.fromkeys(lines[-1], "") | {"task": f"the same, {variant}", "steps": first["steps"]}
            lines.append(blank | {"memory": row.main, "actor_critic": summary(results(name, variant))})
    return lines


def write_table(page: Path, text: str) -> None:
    """Put the table between a page's marks."""
    begin, end = "<!-- learning table -->\n", "<!-- end of the learning table -->\n"
    before, found, rest = page.read_text().partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{page}: no marks for the table")
    page.write_text(f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}")


def main() -> None:
    """Run what is missing, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), help="only these")
    parser.add_argument("--variants", nargs="+", metavar="NAME", help="only these; 'main' is the run file as it stands")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each (default 3)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="runs at a time (default: all cores)")
    parser.add_argument("--runs", type=Path, default=RUNS, help="where the runs' folders go (default runs/learning)")
    parser.add_argument("--table", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    if not arguments.table:
        arguments.runs.mkdir(parents=True, exist_ok=True)
        queue = [run for run in all_runs(arguments.rows, arguments.seeds) if not result_file(*run).exists()]
        if arguments.variants:
            queue = [(r, v, k) for r, v, k in queue if {v, "main" if v == ROWS[r].main else v} & {*arguments.variants}]
        with ThreadPoolExecutor(arguments.workers) as pool:
            for line in pool.map(lambda run: train(*run, arguments.runs), queue):
                print(line, flush=True)
    lines = rows_of_table()
    print(table(lines))
    write_table(ROOT / "docs/learning.md", table(lines))
    write_table(ROOT / "README.md", table(lines).replace("](../", "]("))


if __name__ == "__main__":
    main()
