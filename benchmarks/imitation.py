"""All policies that imitate on the built-in tasks of demonstrators: the table of docs/imitation.md.

python benchmarks/imitation.py                        # whatever has no result yet; may be stopped and started again
python benchmarks/imitation.py --tasks fork --seeds 1 # some
python benchmarks/imitation.py --table                # only write the table from the results that are there

Each run takes one core; its result is written to ``benchmarks/results/imitation/``. Some controls ask a trained policy
again under another condition; their results are files of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from record import RESULTS, provenance, table, write_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import seqrl  # noqa: E402
from seqrl.algo.algo import Algo  # noqa: E402
from seqrl.configs.overrides import layered  # noqa: E402
from seqrl.core.files import write_json  # noqa: E402
from seqrl.envs.builtin.fork import ForkDemonstrator  # noqa: E402
from seqrl.envs.experts import register_expert  # noqa: E402

PAGE = ROOT / "docs" / "imitation.md"
FOLDER = RESULTS / "imitation"
Settings = dict[str, Any]

MEMORIES: dict[str, Settings] = {
    "gru": {"type": "gru", "d_hidden": 128, "num_layers": 1, "d_output": 64},
    "two frames": {"type": "feedforward", "d_model": 128, "d_ff": 256, "num_frames": 2},
}
CHUNKS: Settings = {"chunk_steps": 4, "execute_steps": 2}
DENOISING: Settings = {**CHUNKS, "denoiser": {}, "samples_per_window": 16}
PLANNER: Settings = {"planner": {"subgoal_keys": ["achieved_goal"], "subgoal_steps": 4}}
POLICIES: dict[str, tuple[str, Settings]] = {
    "bc": ("bc", {}),
    "bc, mean": ("bc", {"distribution": {"type": "deterministic"}}),
    "bc, gmm": ("bc", {"distribution": {"type": "gmm"}}),
    "bc, gmm, chunks": ("bc", {"distribution": {"type": "gmm"}, **CHUNKS}),
    "bc_vae": ("bc_vae", CHUNKS),
    "act": ("act", {**CHUNKS, "d_model": 64, "num_encoder_layers": 2, "kl_weight": 0.02}),
    "diffusion_policy": ("diffusion_policy", {**DENOISING, "inference_steps": 0}),
    "flow_matching": ("flow_matching", DENOISING),
    "decision_transformer": ("decision_transformer", {}),
    "hbc": ("hbc", PLANNER),
    "iris": ("iris", PLANNER),
}
"""Name in the table -> algorithm and its settings."""
OF_CHUNKS = ("bc, mean", "bc, gmm", "bc_vae", "act", "diffusion_policy", "flow_matching")


def subgoals_of_others(algo: Algo[Any]) -> None:
    """Let each row follow the subgoal that was planned for another."""
    proposed = algo._proposed
    algo._proposed = lambda hidden, deterministic: proposed(hidden, deterministic).roll(1, dims=0)


def values_of_others(algo: Algo[Any]) -> None:
    """Judge each of the proposed subgoals by the value of another, so that the choice means nothing."""
    worth = algo._worth
    algo._worth = lambda hidden, goals: worth(hidden, goals).roll(1, dims=0)


def asks_for_nothing(algo: Algo[Any]) -> None:
    """Ask for a return of 0 instead of the data's best."""
    algo.returns.target.fill_(0.0)


CONTROLS: dict[str, dict[str, Callable[[Algo[Any]], None]]] = {
    "decision_transformer": {"decision_transformer, asked for 0": asks_for_nothing},
    "hbc": {"hbc, subgoals of other episodes": subgoals_of_others},
    "iris": {"iris, values of other subgoals": values_of_others},
}
"""Policy -> name in the table of what it is asked besides, and what changes."""


class OneWayDemonstrator(ForkDemonstrator):
    """Passes the wall on the right in every episode."""

    def reset(self) -> None:
        """Begin an episode."""
        self._side = -1.0


gym.register("benchmarks/ForkOneWay-v0", entry_point="seqrl.envs.builtin.fork:Fork")
register_expert("benchmarks/ForkOneWay-v0")(OneWayDemonstrator)


@dataclass(frozen=True)
class Task:
    """A task of demonstrators.

    Attributes:
        name: In the table.
        env_id: Environment.
        metric: What the table shows.
        side: Metric that tells a successful episode's side; empty where there are none.
        window: Time steps in a window.
        steps: Gradient steps.
        memories: Which are compared.
        policies: Which are compared.
        data: Episodes of demonstrators, and the share of their actions that is random.
        episodes: Of the evaluation.
        samples: Whether policies act by sampling; else greedily.
        chunks: Settings of the policies that plan chunks.
        extra: Settings of all policies.
        denoiser: Width of denoisers.
        inference_steps: Of diffusion.
    """

    name: str
    env_id: str
    metric: str
    side: str
    window: int
    steps: int
    memories: tuple[str, ...]
    policies: tuple[str, ...] = OF_CHUNKS
    data: tuple[tuple[int, float], ...] = ((500, 0.0),)
    episodes: int = 200
    samples: bool = True
    chunks: Settings = field(default_factory=dict)
    extra: Settings = field(default_factory=dict)
    denoiser: int = 256
    inference_steps: int = 20


PUSHT: Settings = {
    "env": {"kwargs": {"obs_type": "environment_state_agent_pos", "with_state": True}},
    "observation": {
        "keys": ["environment_state", "agent_pos"],
        "timestep_encoder": {"d_hidden": 256, "d_output": 256},
    },
    "algo": {"sequence_encoder": {"d_model": 256, "d_ff": 512}, "optimizer": {"schedule": "cosine"}},
}
"""The block's corners instead of its angle, networks of four times the width, and a rate that falls to 0."""
MAZE = ("seqrl/MazeRunner-v0", "success", "", 24, 1000, ("gru",))
FORK = ("success", "log/right", 9, 2000, ("two frames",))
TASKS: dict[str, Task] = {
    "fork": Task("Fork", "seqrl/Fork-v0", *FORK, policies=(*OF_CHUNKS, "bc, gmm, chunks")),
    "fork_steps": Task(
        "Fork, no chunks",
        "seqrl/Fork-v0",
        *FORK,
        policies=OF_CHUNKS[2:],
        chunks={"chunk_steps": 1, "execute_steps": 1},
    ),
    "fork_one_way": Task("Fork, one way only", "benchmarks/ForkOneWay-v0", *FORK),
    "recall_fork": Task(
        "RecallFork",
        "seqrl/RecallFork-v0",
        "success",
        "log/second_right",
        66,
        2400,
        ("gru", "two frames"),
        policies=(*OF_CHUNKS, "bc, gmm, chunks"),
    ),
    "recall_fork_long": Task(
        "RecallFork, 6,000 steps",
        "seqrl/RecallFork-v0",
        "success",
        "log/second_right",
        66,
        6000,
        ("gru",),
        policies=("diffusion_policy", "flow_matching"),
    ),
    "point_recall": Task(
        "PointRecall",
        "seqrl/PointRecall-v0",
        "success",
        "",
        18,
        1000,
        ("gru",),
        policies=(*OF_CHUNKS, "decision_transformer"),
        data=((300, 0.3), (200, 1.0)),
        samples=False,
    ),
    "maze": Task("MazeRunner", *MAZE, policies=("bc", "hbc"), samples=False),
    "maze_wander": Task(
        "MazeRunner, half wander",
        *MAZE,
        policies=("bc", "hbc", "iris"),
        data=((400, 0.0), (400, 1.0)),
        samples=False,
    ),
    "pusht": Task(
        "PushT",
        "gym_pusht/PushT-v0",
        "coverage",
        "",
        32,
        6000,
        ("two frames",),
        policies=("bc, mean", "bc, gmm", "act", "diffusion_policy", "flow_matching"),
        data=((200, 0.0),),
        episodes=50,
        chunks={"chunk_steps": 16, "execute_steps": 2},
        extra=PUSHT,
        denoiser=512,
        inference_steps=100,
    ),
}
Run = tuple[str, str, str, int]
"""Task, policy, memory, seed."""


def all_runs(tasks: list[str], seeds: int) -> Iterator[Run]:
    """Yield the runs, seed by seed."""
    for seed in range(seeds):
        for task in tasks:
            for memory in TASKS[task].memories:
                for policy in TASKS[task].policies:
                    yield task, policy, memory, seed


def result_file(task: str, policy: str, memory: str, seed: int) -> Path:
    """Return where a run's result lies."""
    name = f"{task}-{policy}-{memory}".replace(", ", "_").replace(" ", "_")
    return FOLDER / f"{name}-{seed}.json"


def started(name: str, policy: str, memory: str, seed: int, folder: str) -> seqrl.Experiment:
    """Return a run that is ready to learn, and to evaluate."""
    task = TASKS[name]
    algo, section = POLICIES[policy]
    if "chunk_steps" in section:
        section = {**section, **task.chunks}
    if "denoiser" in section:
        section = {**section, "denoiser": {"type": "mlp", "d_hidden": task.denoiser}}
    if "inference_steps" in section:
        section = {**section, "inference_steps": task.inference_steps}
    values, _ = layered(
        {
            "experiment": {
                "output_dir": folder,
                "evaluation": {"episodes": task.episodes, "first_epoch": 1, "deterministic": not task.samples},
                "report": {"enabled": False},
                "logging": {"tensorboard": False},
            },
            "env": {"id": task.env_id},
            "train": {
                "data": [{"scripted": task.env_id, "episodes": num, "noise": noise} for num, noise in task.data],
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
            },
        },
        task.extra,
    )
    experiment = seqrl.Experiment(seqrl.config_factory(algo, values))
    experiment.start()
    return experiment


def learned(name: str, policy: str, memory: str, seed: int) -> Iterator[tuple[str, dict[str, float | None]]]:
    """Train, and yield what the policy reaches, and what its controls do."""
    begin = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        experiment = started(name, policy, memory, seed, folder)
        metrics = experiment.learn().metrics
        yield policy, {**reached(TASKS[name], metrics), "cpu_s": time.process_time() - begin}
        for control, change in CONTROLS.get(policy, {}).items():
            change(experiment.algo)
            metrics, _ = experiment.evaluate_val()
            yield control, reached(TASKS[name], metrics)


def reached(task: Task, metrics: dict[str, float]) -> dict[str, float | None]:
    """Return the figures of an evaluation that count."""
    success = metrics["eval/success_mean"]
    if task.side:
        return {"success": success, "right": metrics[f"eval/{task.side}"] / success if success else None}
    if task.metric == "success":
        return {"success": success}
    return {"success": success, task.metric: metrics[f"eval/log/{task.metric}"]}


def rows_of_table() -> list[dict[str, str]]:
    """Return a row for each task, memory and policy that has results, controls after their policies."""
    rows = []
    for name, task in TASKS.items():
        for memory in task.memories:
            for policy in (row for own in task.policies for row in (own, *CONTROLS.get(own, {}))):
                files = (result_file(name, policy, memory, seed) for seed in range(5))
                results = [json.loads(file.read_text()) for file in files if file.exists()]
                if results:
                    rows.append(row_of_table(task, policy, memory, results))
    return rows


def row_of_table(task: Task, policy: str, memory: str, results: list[dict[str, float]]) -> dict[str, str]:
    """Return the cells of a row."""
    each = [result[task.metric] for result in results]
    sides = [result["right"] for result in results if "right" in result and result["success"] >= 0.1]
    return {
        "task": task.name,
        "policy": policy,
        "memory": memory,
        "value": task.metric,
        "mean": f"{np.mean(each):.2f}",
        "by seed": ", ".join(f"{value:.2f}" for value in each),
        "on the right": ", ".join(f"{value:.2f}" for value in sides) or "-",
    }


def main() -> None:
    """Run what has no result, and write the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    p.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    p.add_argument("--seeds", type=int, default=3, help="seeds of each (default 3)")
    p.add_argument("--table", action="store_true", help="train nothing")
    arguments = p.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for run in () if arguments.table else all_runs(arguments.tasks, arguments.seeds):
        task, policy, memory, seed = run
        wanted = (policy, *CONTROLS.get(policy, {}))
        if policy not in arguments.policies or all(result_file(task, row, memory, seed).exists() for row in wanted):
            continue
        where = provenance()
        for row, result in learned(*run):
            FOLDER.mkdir(parents=True, exist_ok=True)
            write_json(result_file(task, row, memory, seed), {**where, **result})
            print(task, row, memory, seed, result, flush=True)
    write_table(PAGE, "imitation", table(rows_of_table()))


if __name__ == "__main__":
    main()
