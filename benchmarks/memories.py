"""All memories on four tasks by one setting, of equal size: the tables and picture in docs/memories_compared.md.

python benchmarks/memories.py                            # whatever has no result yet; may be stopped and started again
python benchmarks/memories.py --tasks Copying --seeds 1  # some
python benchmarks/memories.py --speed                    # speed and memory of each, by length; on a quiet machine
python benchmarks/memories.py --table                    # only write the tables and the picture

A run is ``seqrl train --algo actor_critic --memory NAME --env-steps N`` with one thread, or imitation with ``bc.json``.
Only the memory's width is chosen, so that it has about as many parameters as the GRU that ``--env-steps`` takes.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record import RESULTS, provenance, record, table, write_table
from run_queue import run_python, work

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from seqrl.core.files import write_json  # noqa: E402
from seqrl.scripts.train import parser, resolve_config  # noqa: E402

FOLDER, SPEEDS = RESULTS / "memories", RESULTS / "memory_speed.json"
PAGE, PICTURE = ROOT / "docs" / "memories_compared.md", ROOT / "docs" / "images" / "memories.png"
PARAMETERS = 115_840
"""Of the GRU that ``--env-steps`` takes: one layer of 128, and a projection."""
MEMORIES: dict[str, dict[str, Any]] = {
    "gru": {"d_hidden": 0, "d_output": 0},
    "lstm": {"d_hidden": 0, "d_output": 0},
    "transformer": {"d_model": 0, "d_ff": 0, "num_heads": 4, "num_layers": 2},
    "min_gru": {"d_model": 0, "num_layers": 2},
    "lru": {"d_model": 0, "d_state": 0, "num_layers": 2},
    "mamba": {"d_model": 0, "num_layers": 2},
    "mamba2": {"d_model": 0, "num_heads": 4, "d_state": 16, "num_layers": 2},
    "gated_deltanet": {"d_model": 0, "num_heads": 4, "d_state": 16, "num_layers": 2},
    "mlstm": {"d_model": 0, "num_heads": 4, "d_state": 16, "num_layers": 2},
    "hybrid": {"d_model": 0, "d_ff": 0, "num_heads": 4, "d_state": 16, "layers": ["mamba2", "attention"]},
    "feedforward": {"d_model": 0, "d_ff": 0},
}
"""Memory -> its settings; 0 stands for the width, or twice the width for d_ff."""
MARKERS = "os^DvP<>Xhd"
COLORS = (*(f"C{i}" for i in range(10)), "black")
AGENT = ("--algo", "actor_critic")
TASKS: dict[str, tuple[str, ...]] = {
    "corridor of 100, imitation": (
        "--config", "bc.json", "--set", "env.kwargs.corridor_length=100", "--set", "train.window_steps=101",
        "--set", "train.batch_size=8", "--set", "train.num_epochs=20", "--set", "train.steps_per_epoch=100",
        "--set", "experiment.evaluation.every_n_epochs=2", "--set", "experiment.evaluation.first_epoch=2",
    ),
    "RepeatPreviousEasy": (*AGENT, "--env", "popgym-RepeatPreviousEasy-v0", "--env-steps", "8000"),
    "Copying": (*AGENT, "--env", "seqrl/Copying-v0", "--env-steps", "20000"),
    "T-Maze, corridor of 50": (
        *AGENT, "--env", "seqrl/TMazePassive-v0", "--env-steps", "30000", "--set", "env.kwargs.corridor_length=50",
        "--set", 'env.eval_kwargs={"balanced_goals": true}',
    ),
}  # fmt: skip
METRICS = {
    "corridor of 100, imitation": "eval/success_mean",
    "Copying": "eval/log/share_right",
    "T-Maze, corridor of 50": "eval/success_mean",
}
"""Task -> its score; the return where it is none of these."""
CHANCE = {
    "corridor of 100, imitation": 0.5,
    "RepeatPreviousEasy": -0.51,
    "Copying": 0.25,
    "T-Maze, corridor of 50": 0.5,
}
"""Task -> what a policy without a memory reaches at best, or random play (RepeatPreviousEasy)."""
LENGTHS, FAR = (512, 4_096, 16_384), 100_000


def arguments_of(memory: str, task: str, seed: int, width: int | None = None) -> list[str]:
    """Return what is passed to ``seqrl train``."""
    width = width or width_of(memory)
    settings = {
        key: (2 if key == "d_ff" else 1) * width if value == 0 else value for key, value in MEMORIES[memory].items()
    }
    sets = [f"algo.sequence_encoder.{key}={json.dumps(value)}" for key, value in settings.items()]
    sets += [f"train.seed={seed}", "train.num_threads=1", "experiment.report.enabled=false"]
    sets += ["algo.average_decay=null"]  # the first results of the table are of the last weights
    named = ["--memory", memory, *TASKS[task]]
    return [*named, *(word for entry in sets for word in ("--set", entry))]


def algo_of(memory: str, width: int | None = None) -> Any:
    """Return the untrained agent of the task Copying."""
    import torch

    from seqrl.training import setup
    from seqrl.training.world import GivenMakers, find_world

    arguments = parser().parse_args(arguments_of(memory, "Copying", 0, width))
    config, _ = resolve_config(arguments, says=lambda line: None)
    world = find_world(config, None, GivenMakers(), is_collecting=True, warn=lambda text: None)
    torch.manual_seed(0)
    return setup.build_algo(config, world.info, torch.device("cpu"))


def parameters_of(algo: Any) -> int:
    """Return how many parameters the memory has."""
    return sum(p.numel() for name, p in algo.nets.named_parameters() if name.startswith("trunk.sequence_encoder"))


@functools.cache
def width_of(memory: str) -> int:
    """Return the width with which a memory comes nearest to the number of parameters."""
    return min(range(32, 289, 16), key=lambda width: abs(parameters_of(algo_of(memory, width)) - PARAMETERS))


def result_file(memory: str, task: str, seed: int) -> Path:
    """Return where a run's result lies."""
    return FOLDER / f"{task.split(',')[0].replace(' ', '_')}-{memory}-{seed}.json"


def train(memory: str, task: str, seed: int, folder: Path) -> str:
    """Train, write the result, and return a line about it."""
    name, where = result_file(memory, task, seed).stem, provenance()
    placed = ["--name", name, "--overwrite", "--set", f"experiment.output_dir={folder}"]
    command = ["seqrl/scripts/train.py", *arguments_of(memory, task, seed)]
    cpu_s = run_python([*command, *placed], folder / "logs" / f"{name}.txt")
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    metric = METRICS.get(task, "eval/return_mean")
    clock = "progress/env_steps" if "--env-steps" in TASKS[task] else "step"
    curve = [[int(line[clock]), round(line[metric], 4)] for line in lines if metric in line]
    content = {
        **where, "memory": memory, "task": task, "seed": seed, "command": " ".join(["python", *command]),
        "width": width_of(memory), "metric": metric, "score": curve[-1][1], "curve": curve, "cpu_s": round(cpu_s, 1),
        "gradient_steps": int(lines[-1]["step"]),
    }  # fmt: skip
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_json(result_file(memory, task, seed), content)
    return f"{name}: {curve[-1][1]:.3f}, {cpu_s:.0f} s of a core"


# -------------------------------------------------------------------------------------------------- speed
def speed(memory: str) -> dict[str, float]:
    """Return what a memory costs on one thread, in this process: steps and tokens per second, and its peak memory."""
    import resource

    import torch

    from seqrl.algo.updater import Updater
    from seqrl.training.learner import blank_batch

    torch.set_num_threads(1)
    algo = algo_of(memory)
    algo.updater = Updater(algo)
    batch = algo.process_batch_for_training(blank_batch(algo, algo.config.train))
    found = {
        "parameters": float(parameters_of(algo)),
        "gradient_steps_per_s": rate(lambda: algo.train_on_batch(batch), 1),
    }
    encoder = algo.nets["trunk"].sequence_encoder
    width = algo.config.observation.timestep_encoder.d_output
    for length in LENGTHS:
        x, step = torch.randn(1, length, width, requires_grad=True), torch.arange(length)[None]

        def both_ways(x: Any = x, step: Any = step) -> None:
            encoder(x, step)[0].square().mean().backward()

        found[f"tokens_per_s_{length}"] = rate(both_ways, length)
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    encoder.eval()
    with torch.no_grad():
        state = encoder.init_state(1, device="cpu")
        one = torch.randn(1, 1, width)
        for mark, until in (("early", 2_000), ("far", FAR)):
            done = int(found.get("acted", 0))
            for number in range(done, until - 1_000):
                _, state = encoder(one, torch.full((1, 1), number), state)
            begin = time.perf_counter()
            for number in range(until - 1_000, until):
                _, state = encoder(one, torch.full((1, 1), number), state)
            found[f"steps_per_s_{mark}"] = 1_000 / (time.perf_counter() - begin)
            found["acted"] = until
    return found


def rate(call: Any, num: int, seconds: float = 3.0) -> float:
    """Return ``num`` by the median seconds of a call."""
    call()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < seconds and len(times) < 30):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return num / statistics.median(times)


def measure_speeds() -> None:
    """Measure each memory in a process of its own, and record."""
    found = {}
    for memory in MEMORIES:
        command = [sys.executable, __file__, "--one", memory]
        printed = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        found[memory] = json.loads(printed.stdout.splitlines()[-1])
        print(memory, {key: round(value) for key, value in found[memory].items()}, flush=True)
    record(SPEEDS.stem, {"memories": found, "load": os.getloadavg()})


# ------------------------------------------------------------------------------------------------- tables
def results(memory: str, task: str) -> list[dict[str, Any]]:
    """Return the results that are there, by seed."""
    files = sorted(FOLDER.glob(f"{result_file(memory, task, 0).stem.rpartition('-')[0]}-*.json"))
    return [json.loads(file.read_text()) for file in files]


def tasks_run() -> list[str]:
    """Return the tasks of which there are results."""
    return [task for task in TASKS if any(results(memory, task) for memory in MEMORIES)]


def rows_of_scores() -> list[dict[str, str]]:
    """Return a line for each memory: mean and seeds of each task, and what a run costs."""
    rows = []
    for memory in MEMORIES:
        row = {"memory": f"`{memory}`"}
        for task in tasks_run():
            found = results(memory, task)
            row[task] = spread([result["score"] for result in found])
            row[f"core seconds, {task}"] = f"{statistics.fmean(r['cpu_s'] for r in found):,.0f}" if found else ""
        rows.append(row)
    return rows


def spread(values: Sequence[float]) -> str:
    """Return the mean of some seeds, and each."""
    if not values:
        return "not run"
    return f"**{statistics.fmean(values):.2f}**" + "".join(f" {value:.2f}" for value in values if len(values) > 1)


def rows_of_lengths() -> list[dict[str, str]]:
    """Return a line for each memory: gradient steps, tokens by length and acting per second, and peak memory."""
    rows = []
    for memory, cost in json.loads(SPEEDS.read_text())["memories"].items():
        row = {"memory": f"`{memory}`", "gradient steps/s": f"{cost['gradient_steps_per_s']:.0f}"}
        row |= {f"{length:,}": f"{cost[f'tokens_per_s_{length}']:,.0f}" for length in LENGTHS}
        row["acting, step 2,000"] = f"{cost['steps_per_s_early']:,.0f}"
        row[f"step {FAR:,}"] = f"{cost['steps_per_s_far']:,.0f}"
        rows.append(row | {"peak, MB": f"{cost['peak_mb']:,.0f}"})
    return rows


def draw() -> None:
    """Draw score against cost: a point for each memory, a panel for each task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    if not (tasks := tasks_run()):
        return
    size = (2.2 + 3.6 * len(tasks), 3.4)
    figure, panels = pyplot.subplots(1, len(tasks), figsize=size, constrained_layout=True, squeeze=False)
    for panel, task in zip(panels[0], tasks, strict=True):
        panel.axhline(CHANCE[task], color="0.6", linestyle="--", linewidth=1)
        for memory, marker, color in zip(MEMORIES, MARKERS, COLORS, strict=True):
            found = results(memory, task)
            if not found:
                continue
            values, cost = [r["score"] for r in found], statistics.fmean(r["cpu_s"] for r in found)
            panel.plot([cost] * len(values), values, "o", color="0.75", markersize=3)
            panel.plot(cost, statistics.fmean(values), marker, markersize=6, color=color, label=memory)
        panel.set_title(task, fontsize=10)
        panel.set_xlabel("seconds of a core, the whole run", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.margins(x=0.15)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("score, mean over seeds", fontsize=8)
    handles = max((panel.get_legend_handles_labels() for panel in panels[0]), key=lambda pair: len(pair[1]))
    figure.legend(*handles, loc="outside right center", fontsize=7, frameon=False)
    figure.savefig(PICTURE, dpi=120)


def main() -> int:
    """Run what is missing, write the tables and the picture; return 1 if a run failed."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--memories", nargs="+", choices=list(MEMORIES), default=list(MEMORIES), help="only these")
    p.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), help="only these")
    p.add_argument("--seeds", type=int, default=3, help="seeds of each (default 3)")
    p.add_argument("--workers", type=int, default=os.cpu_count(), help="runs at a time (default: all cores)")
    p.add_argument("--runs", type=Path, default=ROOT / "runs" / "memories", help="where the runs' folders go")
    p.add_argument("--speed", action="store_true", help="measure speed instead of training")
    p.add_argument("--table", action="store_true", help="train nothing")
    p.add_argument("--one", help=argparse.SUPPRESS)
    arguments = p.parse_args()
    if arguments.one:
        print(json.dumps(speed(arguments.one)))
        return 0
    os.chdir(ROOT)
    failures = 0
    if arguments.speed:
        measure_speeds()
    elif not arguments.table:
        every = itertools.product(range(arguments.seeds), arguments.tasks, arguments.memories)
        queue = [(memory, task, seed) for seed, task, memory in every if not result_file(memory, task, seed).exists()]
        run = functools.partial(train, folder=arguments.runs.absolute())
        failures = work(queue, run, arguments.workers)
    print(table(rows_of_scores()))
    write_table(PAGE, "memories", table(rows_of_scores()))
    draw()
    if SPEEDS.exists():
        print(table(rows_of_lengths()))
        write_table(PAGE, "lengths", table(rows_of_lengths()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
