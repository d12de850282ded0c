"""All policies that imitate on the built-in tasks of demonstrators: the tables of docs/imitation.md.

python benchmarks/imitation.py                        # whatever has no result yet; may be stopped and started again
python benchmarks/imitation.py --tasks fork --seeds 1 # some
python benchmarks/imitation.py --table                # only write the table from the results that are there

Fork: demonstrators pass a wall on both sides, and the observation tells everything. RecallFork: a hint given 50
steps before tells the side of one wall, and a second one may be passed on either side; so it takes a memory and several
modes. PushT: pushes by many ways to the same end; its value is the largest share of the goal that was covered. Each run
takes one core; its result is written to ``benchmarks/results/imitation/``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import RESULTS, provenance, table, write_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import seqrl  # noqa: E402
from seqrl.core.files import write_json  # noqa: E402

PAGE = ROOT / "docs" / "imitation.md"
FOLDER = RESULTS / "imitation"
Settings = dict[str, Any]

MEMORIES: dict[str, Settings] = {
    "gru": {"type": "gru", "d_hidden": 128, "num_layers": 1, "d_output": 64},
    "two frames": {"type": "feedforward", "d_model": 128, "d_ff": 256, "num_frames": 2},
}
CHUNKS: Settings = {"chunk_steps": 4, "execute_steps": 2}
DENOISING: Settings = {**CHUNKS, "denoiser": {"type": "mlp", "d_hidden": 256}, "samples_per_window": 16}
POLICIES: dict[str, tuple[str, Settings]] = {
    "bc, mean": ("bc", {"distribution": {"type": "deterministic"}}),
    "bc, gmm": ("bc", {"distribution": {"type": "gmm"}}),
    "bc_vae": ("bc_vae", CHUNKS),
    "act": ("act", {**CHUNKS, "d_model": 64, "num_encoder_layers": 2, "kl_weight": 0.02}),
    "diffusion_policy": ("diffusion_policy", {**DENOISING, "inference_steps": 20}),
    "flow_matching": ("flow_matching", DENOISING),
}
"""Name in the table -> algorithm and its settings."""


@dataclass(frozen=True)
class Task:
    """A task of demonstrators.

    Attributes:
        env_id: Environment.
        metric: What the table shows.
        side: Metric that tells a successful episode's side; empty where there are none.
        window: Time steps in a window.
        steps: Gradient steps.
        memories: Which are compared.
        demonstrations: Episodes of data.
        episodes: Of the evaluation.
        chunks: Settings of the policies that plan chunks.
    """

    env_id: str
    metric: str
    side: str
    window: int
    steps: int
    memories: tuple[str, ...]
    demonstrations: int = 500
    episodes: int = 200
    chunks: Settings = field(default_factory=dict)


TASKS: dict[str, Task] = {
    "fork": Task("seqrl/Fork-v0", "success", "log/right", 9, 2000, ("two frames",)),
    "recall_fork": Task("seqrl/RecallFork-v0", "success", "log/second_right", 66, 2400, ("gru", "two frames")),
    "pusht": Task(
        "gym_pusht/PushT-v0",
        "coverage",
        "",
        32,
        4000,
        ("two frames",),
        demonstrations=200,
        episodes=50,
        chunks={"chunk_steps": 16, "execute_steps": 8},
    ),
}
Run = tuple[str, str, str, int]
"""Task, policy, memory, seed."""


def all_runs(tasks: list[str], seeds: int) -> Iterator[Run]:
    """Yield the runs, seed by seed."""
    for seed in range(seeds):
        for task in tasks:
            for memory in TASKS[task].memories:
                for policy in POLICIES:
                    yield task, policy, memory, seed


def result_file(task: str, policy: str, memory: str, seed: int) -> Path:
    """Return where a run's result lies."""
    name = f"{task}-{policy}-{memory}".replace(", ", "_").replace(" ", "_")
    return FOLDER / f"{name}-{seed}.json"


def started(name: str, policy: str, memory: str, seed: int, folder: str) -> seqrl.Experiment:
    """Return a run that is ready to learn, and to evaluate by sampled episodes."""
    task = TASKS[name]
    algo, section = POLICIES[policy]
    config = seqrl.config_factory(
        algo,
        {
            "experiment": {
                "output_dir": folder,
                "evaluation": {"episodes": task.episodes, "first_epoch": 1, "deterministic": False},
                "report": {"enabled": False},
                "logging": {"tensorboard": False},
            },
            "env": {"id": task.env_id},
            "train": {
                "data": [{"scripted": task.env_id, "episodes": task.demonstrations}],
                "window_steps": task.window,
                "batch_size": 32,
                "num_epochs": 1,
                "steps_per_epoch": task.steps,
                "seed": seed,
            },
            "observation": {
                "use_prev_action": False,
                "use_prev_reward": False,
                "timestep_encoder": {"type": "mlp", "d_hidden": 64, "d_output": 64},
            },
            "algo": {
                "sequence_encoder": MEMORIES[memory],
                "optimizer": {"learning_rate": 1e-3, "warmup_steps": 50},
                **section,
                **(task.chunks if "chunk_steps" in section else {}),
            },
        },
    )
    experiment = seqrl.Experiment(config)
    experiment.start()
    return experiment


def learned(name: str, policy: str, memory: str, seed: int) -> dict[str, float | None]:
    """Train, and return what sampled episodes reach."""
    task, begin = TASKS[name], time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        metrics = started(name, policy, memory, seed, folder).learn().metrics
    success = metrics["eval/success_mean"]
    result: dict[str, float | None] = {"success": success, "cpu_s": time.process_time() - begin}
    if task.side:
        return {**result, "right": metrics[f"eval/{task.side}"] / success if success else None}
    return {**result, task.metric: metrics[f"eval/log/{task.metric}"]}


def rows_of_table() -> list[dict[str, str]]:
    """Return a row for each task, policy and memory that has results."""
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for task, policy, memory, seed in all_runs(list(TASKS), 5):
        if (file := result_file(task, policy, memory, seed)).exists():
            found.setdefault((task, policy, memory), []).append(json.loads(file.read_text()))
    rows = []
    for (task, policy, memory), results in sorted(found.items(), key=lambda item: list(TASKS).index(item[0][0])):
        metric = TASKS[task].metric
        each = [result[metric] for result in results]
        sides = [result["right"] for result in results if "right" in result and result["success"] >= 0.1]
        rows.append(
            {
                "task": TASKS[task].env_id.split("/")[1].removesuffix("-v0"),
                "policy": policy,
                "memory": memory,
                "value": metric,
                "mean": f"{np.mean(each):.2f}",
                "by seed": ", ".join(f"{value:.2f}" for value in each),
                "on the right": ", ".join(f"{value:.2f}" for value in sides) or "-",
            }
        )
    return rows


def main() -> None:
    """Run what has no result, and write the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    p.add_argument("--seeds", type=int, default=3, help="seeds of each (default 3)")
    p.add_argument("--table", action="store_true", help="train nothing")
    arguments = p.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for run in () if arguments.table else all_runs(arguments.tasks, arguments.seeds):
        if result_file(*run).exists():
            continue
        result = learned(*run)
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_json(result_file(*run), {**provenance(), **result})
        print(*run, result, flush=True)
    write_table(PAGE, "imitation", table(rows_of_table()))


if __name__ == "__main__":
    main()
