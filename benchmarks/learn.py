"""What seqrl learns, from how many environment steps: every row of the tables in docs/learning.md.

python benchmarks/learn.py                      # whatever has no result yet; may be stopped and started again
python benchmarks/learn.py --rows lake key_door # some rows
python benchmarks/learn.py --defaults           # the rows of one setting for all: environment, memory and budget only
python benchmarks/learn.py --table              # only write the tables from the results that are there

A row is a run file under ``benchmarks/learning/``, or what ``seqrl train --env-steps`` makes of a budget; its variants
(another agent, a control without a memory) are what ``--set`` changes about it. A run takes one core and at most ten
minutes, one of ``--defaults`` twenty (in MuJoCo and MiniGrid, whose steps are dear, up to eighty). Its result is
written to ``benchmarks/learning/results/``, and its folder, for ``seqrl compare`` and ``seqrl probe``, lies in
``runs/learning``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from record import provenance, table, write_table
from run_queue import run_python, work

ROOT = Path(__file__).parents[1]
HERE = ROOT / "benchmarks/learning"
RUNS = ROOT / "runs/learning"
sys.path.insert(0, str(ROOT))

from seqrl.configs.differences import with_defaults  # noqa: E402
from seqrl.core.files import write_json  # noqa: E402
from seqrl.reports.intervals import mean_interval  # noqa: E402
from seqrl.scripts.train import parser, resolve_config  # noqa: E402

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
        planned: What is passed to ``seqrl train`` instead of a run file; the memory is ``main``.
        ends: What random play and the tuned row reach; None where it was not measured.
        limit_s: Seconds of one core that a run may take.
    """

    task: str
    asked: str
    budget: int
    main: str
    variants: Variants = field(default_factory=dict)
    metric: str = RETURN
    planned: tuple[str, ...] = ()
    ends: tuple[float, float] | None = None
    limit_s: int = LIMIT_S


def multitask(
    low: float, high: float, num_bins: int = 16, *, threshold: float = 0.1, critic_loss_weight: float = 1.0
) -> tuple[str, ...]:
    """Return what makes a run of ``multitask``, whose critics have to be told about the (multiplied) returns.

    Args:
        low: Smallest of them.
        high: Largest.
        num_bins: The fewer, the sooner values are learned, and the coarser.
        threshold: An advantage, well above what fresh critics make up and well below that of a step that matters.
        critic_loss_weight: The agent's own default is 10.
    """
    returns = {"low": low, "high": high, "num_bins": num_bins, "use_symlog": "false", "value_space": "return"}
    return (
        "algo_name=multitask",
        *(f"algo.returns.{key}={value}" for key, value in returns.items()),
        "algo.returns.initial_value=0",
        f"algo.filter.threshold={threshold}",
        "algo.online_coeff=0.0",
        "algo.offline_coeff=1.0",
        f"algo.critic_loss_weight={critic_loss_weight}",
    )


ROWS = {
    "repeat_first_gru": Row(
        "POPGym RepeatFirstEasy",
        "1.0",
        6_000,
        "GRU",
        {"no memory": NO_MEMORY, "multitask": multitask(-1, 1, threshold=0.05)},
    ),
    "repeat_previous_gru": Row(
        "POPGym RepeatPreviousEasy, GRU",
        "0.95",
        8_000,
        "GRU",
        {"no memory": NO_MEMORY, "multitask": multitask(-1, 1, threshold=0.05)},
    ),
    "repeat_previous_transformer": Row(
        "POPGym RepeatPreviousEasy, Transformer",
        "0.9",
        30_000,
        "Transformer",
        {"no memory": NO_MEMORY, "multitask": multitask(-1, 1, threshold=0.05, critic_loss_weight=10.0)},
    ),
    "repeat_previous_mamba": Row(
        "POPGym RepeatPreviousEasy, Mamba",
        "0.9",
        30_000,
        "Mamba",
        {"no memory": NO_MEMORY, "multitask": multitask(-1, 1, threshold=0.05, critic_loss_weight=10.0)},
    ),
    "tmaze_20": Row(
        "T-Maze, corridor of 20",
        "1.0",
        12_000,
        "GRU",
        {"no memory": NO_MEMORY, "multitask": multitask(-3, 11)},
        SUCCESS,
    ),
    "tmaze_50": Row(
        "T-Maze, corridor of 50",
        "1.0",
        30_000,
        "GRU",
        {"no memory": NO_MEMORY, "multitask": multitask(-3, 11)},
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
        "DarkKeyDoor 4x4, horizon 100", "9", 25_000, "GRU", {"no memory": NO_MEMORY, "multitask": multitask(0, 80, 128)}
    ),
    "position_cartpole": Row(
        "POPGym PositionOnlyCartPoleEasy",
        "0.6",
        64_000,
        "GRU",
        {"no memory": NO_MEMORY, "multitask": multitask(0, 12, 64)},
    ),
    "maze": Row(
        "MazeRunner 7x7, 1 goal, relabeled",
        "more than below",
        8_000,
        "GRU",
        {
            "not relabeled": ("collect.replay.relabel=null",),
            "no memory": NO_MEMORY,
            "multitask": multitask(0, 11, critic_loss_weight=10.0),
        },
        SUCCESS,
    ),
    "pendulum": Row(
        "Pendulum-v1",
        "-250",
        40_000,
        "none needed",
        {"multitask": multitask(-35, 5, 64, threshold=0.02, critic_loss_weight=10.0)},
    ),
    "cartpole": Row("CartPole-v1", "475", 60_000, "none needed", {"multitask": multitask(0, 11, 64)}),
}


BALANCED = ("--set", 'env.eval_kwargs={"balanced_goals": true}')
MANY_EPISODES = ("--set", "experiment.evaluation.episodes=100")
FEW_EPISODES = ("--set", "experiment.evaluation.episodes=20")  # of 500 and 1,000 steps
FEEDFORWARD = ("algo.sequence_encoder.type=feedforward",)


def default(
    task: str,
    env: str,
    budget: int,
    ends: tuple[float, float] | None,
    *settings: str,
    memory: str = "gru",
    metric: str = RETURN,
    needs_memory: bool = True,
    limit_s: int = 1200,
) -> Row:
    """Return a row that names nothing but an environment, a memory and a budget.

    Args:
        task: Name in the table.
        env: Id.
        budget: Environment steps.
        ends: What random play (100 episodes) and the tuned row, or a known policy, reach; None if not measured.
        settings: Of the environment.
        memory: Name.
        metric: Of the evaluation.
        needs_memory: Whether there is a control without one.
        limit_s: Seconds of one core that a run may take.
    """
    planned = ("--algo", "actor_critic", "--env", env, "--memory", memory, "--env-steps", str(budget))
    planned += (*MANY_EPISODES, *settings)
    control = {"no memory": FEEDFORWARD} if needs_memory else {}
    return Row(task, "", budget, memory, control, metric, planned, ends, limit_s)


DEFAULT_ROWS = {
    f"defaults/{name}": row
    for name, row in {
        "repeat_first": default("POPGym RepeatFirstEasy", "popgym-RepeatFirstEasy-v0", 6_000, (-0.49, 1.0)),
        "repeat_previous": default("POPGym RepeatPreviousEasy", "popgym-RepeatPreviousEasy-v0", 8_000, (-0.51, 1.0)),
        "repeat_previous_transformer": default(
            "POPGym RepeatPreviousEasy", "popgym-RepeatPreviousEasy-v0", 30_000, (-0.51, 1.0), memory="transformer"
        ),
        "repeat_previous_mamba": default(
            "POPGym RepeatPreviousEasy", "popgym-RepeatPreviousEasy-v0", 30_000, (-0.51, 1.0), memory="mamba"
        ),
        "repeat_previous_medium": default(
            "POPGym RepeatPreviousMedium", "popgym-RepeatPreviousMedium-v0", 50_000, (-0.51, 1.0)
        ),
        "tmaze_20": default(
            "T-Maze, corridor of 20", "seqrl/TMazePassive-v0", 12_000, (0.0, 1.0),
            "--set", "env.kwargs.corridor_length=20", *BALANCED, metric=SUCCESS,
        ),
        "tmaze_50": default(
            "T-Maze, corridor of 50", "seqrl/TMazePassive-v0", 30_000, (0.0, 1.0),
            "--set", "env.kwargs.corridor_length=50", *BALANCED, metric=SUCCESS,
        ),
        "lake": default(
            "MetaFrozenLake 3x3, 5 attempts", "seqrl/MetaFrozenLake-v0", 25_000, (0.88, 4.24),
            "--set", 'env.kwargs={"size": 3, "attempts": 5}',
        ),
        "key_door": default(
            "DarkKeyDoor 4x4, horizon 100", "seqrl/DarkKeyDoor-v0", 25_000, (3.82, 10.54),
            "--set", 'env.kwargs={"size": 4, "horizon": 100}',
        ),
        "bandit": default(
            "Bandit, 6 arms, 100 pulls", "seqrl/Bandit-v0", 15_000, (49.9, 77.1), "--set", "env.kwargs.num_arms=6"
        ),
        "bandit_60k": default(
            "Bandit, 6 arms, 100 pulls", "seqrl/Bandit-v0", 60_000, (49.9, 77.1), "--set", "env.kwargs.num_arms=6"
        ),
        "position_cartpole": default(
            "POPGym PositionOnlyCartPoleEasy", "popgym-PositionOnlyCartPoleEasy-v0", 64_000, (0.12, 0.84)
        ),
        "lock": default(
            "Lock, 3 of 4 digits (a plug-in)", "examples/Lock-v0", 60_000, None,
            "--plugin", "examples/environment_plugin.py", metric=SUCCESS,
        ),
        "memory_s7": default("MiniGrid-MemoryS7", "MiniGrid-MemoryS7-v0", 40_000, None),
        "maze": default(
            "MazeRunner 7x7, 1 goal", "seqrl/MazeRunner-v0", 8_000, (0.33, 0.57),
            "--set", 'env.kwargs={"size": 7, "num_goals": 1}', metric=SUCCESS,
        ),
        "pendulum": default("Pendulum-v1", "Pendulum-v1", 40_000, (-1208.0, -166.0), needs_memory=False),
        "cartpole": default("CartPole-v1", "CartPole-v1", 60_000, (24.0, 500.0), needs_memory=False),
        "half_cheetah_velocity": default("HalfCheetahVelocity", "seqrl/HalfCheetahVelocity-v0", 60_000, None),
        "mountain_car": default("MountainCar-v0", "MountainCar-v0", 60_000, (-200.0, -110.0), needs_memory=False),
        "memory_s9": default("MiniGrid-MemoryS9", "MiniGrid-MemoryS9-v0", 60_000, None, metric=SUCCESS, limit_s=3600),
        "memory_s11": default(
            "MiniGrid-MemoryS11", "MiniGrid-MemoryS11-v0", 60_000, None, metric=SUCCESS, limit_s=3600
        ),
        "reach": default(
            "Meta-World reach-v3", "Meta-World/reach-v3", 50_000, None, *FEW_EPISODES,
            memory="feedforward", metric=SUCCESS, needs_memory=False, limit_s=2400,
        ),
        "half_cheetah": default(
            "HalfCheetah-v5", "HalfCheetah-v5", 100_000, None, *FEW_EPISODES,
            memory="feedforward", needs_memory=False, limit_s=4800,
        ),
    }.items()
}  # fmt: skip


_SHORT = "repeat_first repeat_previous tmaze_20 lake bandit_60k position_cartpole pendulum cartpole"
README_ROWS = tuple(f"defaults/{name}" for name in _SHORT.split())
"""What a reader in a hurry sees of the defaults."""


HARD = ["defaults/mountain_car"]
CONTINUOUS = [f"defaults/{name}" for name in ("pendulum", "half_cheetah_velocity", "reach", "half_cheetah")]


def row_of(name: str) -> Row:
    """Return a row of either table."""
    return DEFAULT_ROWS[name] if name in DEFAULT_ROWS else ROWS[name]


def all_runs(rows: Sequence[str], variants: Sequence[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """Yield row, variant and seed: what is asked comes first, then the controls, then the other agent."""
    for kind in ("main", "not relabeled", "no memory", "multitask"):
        for seed, name in itertools.product(range(seeds), rows):
            if kind in variants and (kind == "main" or kind in row_of(name).variants):
                yield name, row_of(name).main if kind == "main" else kind, seed


def result_file(row: str, variant: str, seed: int) -> Path:
    """Return where a run's result lies."""
    return HERE / "results" / row / f"{variant.replace(' ', '_')}_seed{seed}.json"


def arguments_of(row: str, variant: str, seed: int) -> list[str]:
    """Return what is passed to ``seqrl train``, from the top of the repository."""
    settings = [*row_of(row).variants.get(variant, ()), f"train.seed={seed}"]
    begin = row_of(row).planned or ("--config", f"benchmarks/learning/{row}.json")
    return [*begin, *(word for s in settings for word in ("--set", s))]


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without what does not change a result: where it is written, what is logged, threads.

    Keys that have come since it was written are at their defaults; spikes were not limited, and weights not averaged,
    before there was a key.
    """
    kept = json.loads(json.dumps(config))
    kept["algo"].setdefault("average_decay", None)
    kept["algo"]["optimizer"].setdefault("spike_clip", None)
    kept = with_defaults(kept)
    for key in ("name", "output_dir", "logging"):
        kept["experiment"].pop(key, None)
    kept["train"].pop("num_threads", None)
    return kept


def has_result(row: str, variant: str, seed: int) -> bool:
    """Tell whether there is a result of the run file as it stands now."""
    file = result_file(row, variant, seed)
    if not file.exists():
        return False
    with contextlib.redirect_stderr(io.StringIO()):  # notes on what --set drops
        config, _ = resolve_config(parser().parse_args(arguments_of(row, variant, seed)))
    return settings_of(json.loads(file.read_text())["config"]) == settings_of(config.to_json())


def train(row: str, variant: str, seed: int, folder: Path) -> str:
    """Train and write the result; one that ends in an error leaves none.

    Raises:
        RuntimeError: With the name of the log, if it did.
    """
    name = f"{row.replace('/', '_')}-{variant.replace(' ', '_')}-{seed}"
    command = ["seqrl/scripts/train.py", *arguments_of(row, variant, seed)]
    placed = ["--name", name, "--overwrite", "--set", f"experiment.output_dir={folder}"]
    quiet = ["--set", "experiment.logging.progress_bar=false", "--set", "train.num_threads=1"]
    begun, where = time.perf_counter(), provenance()
    cpu_s = run_python([*command, *placed, *quiet], folder / "logs" / f"{name}.txt")
    took = {"wall_s": round(time.perf_counter() - begun, 1), "cpu_s": round(cpu_s, 1)}
    result = {"command": " ".join(["python", *command]), **outcome(row, folder / name), **took}
    config = settings_of(json.loads((folder / name / "config.json").read_text()))
    content = {"row": row, "variant": variant, "seed": seed, **result, **where, "config": config}
    file = result_file(row, variant, seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, content)
    late = f"; more than {row_of(row).limit_s} s" if cpu_s > row_of(row).limit_s else ""
    return f"{name}: {result['result']:.3f} after {result['env_steps']} steps, {cpu_s:.0f} s of a core{late}"


def outcome(row: str, run: Path) -> dict[str, Any]:
    """Return the last evaluation of a run, and the curve up to it."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    metric = row_of(row).metric
    evaluations = [line for line in lines if metric in line]
    last = evaluations[-1]
    return {
        "budget": row_of(row).budget,
        "env_steps": int(last["progress/env_steps"]),
        "gradient_steps": int(last["step"]),
        "metric": metric,
        "result": last[metric],
        "evaluation": {key: value for key, value in last.items() if key.startswith("eval/")},
        "curve": [[int(line["progress/env_steps"]), round(line[metric], 4)] for line in evaluations],
    }


def is_averaged(result: dict[str, Any]) -> bool:
    """Tell whether the averages of the weights were evaluated, and not the last weights."""
    return settings_of(result["config"])["algo"]["average_decay"] is not None


def is_of_now(result: dict[str, Any]) -> bool:
    """Tell whether a run had the setting as it is now: averages, and what came later for discrete actions."""
    has_novelty = "novelty" in result["config"]["algo"] or result["row"] in CONTINUOUS
    return is_averaged(result) and has_novelty and (explores_by_episode(result) or result["row"] not in HARD)


def explores_by_episode(result: dict[str, Any]) -> bool:
    """Tell whether some training episodes had random actions only."""
    return bool(result["config"]["collect"]["exploration"].get("by_episode", False))


def results(row: str, variant: str) -> list[dict[str, Any]]:
    """Return what is there, by seed."""
    files = sorted(result_file(row, variant, 0).parent.glob(f"{variant.replace(' ', '_')}_seed*.json"))
    return [json.loads(file.read_text()) for file in files]


def summary(row: str, variant: str) -> str:
    """Return mean and seeds, marked if some are of an earlier default setting; nothing without such a variant."""
    if variant not in {row_of(row).main, *row_of(row).variants}:
        return ""
    if not (found := results(row, variant)):
        return "not run"
    is_old = row in DEFAULT_ROWS and not all(map(is_of_now, found))
    return spread([run["result"] for run in found]) + " †" * is_old


def spread(values: Sequence[float]) -> str:
    """Return the mean of some seeds, its interval from five seeds on, and each seed."""
    estimate = mean_interval(np.array(values))
    digits = 0 if abs(estimate.value) >= 20 else 2
    ends = "" if estimate.low is None else f" [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
    return f"**{estimate.value:.{digits}f}**{ends} " + " ".join(f"{value:.{digits}f}" for value in values)


def rows_of_table() -> list[dict[str, str]]:
    """Return the table: a line for each row, and one for each variant that is neither a control nor the other agent."""
    lines = []
    for name, row in ROWS.items():
        first = {"task": f"[{row.task}](../benchmarks/learning/{name}.json)", "steps": f"{row.budget // 1000}k"}
        first |= {"to reach": row.asked, "memory": row.main, "actor_critic": summary(name, row.main)}
        lines.append(first | {v: summary(name, v) for v in ("no memory", "multitask")})
        for variant in row.variants.keys() - {"no memory", "multitask"}:
            blank = dict.fromkeys(lines[-1], "") | {"task": f"the same, {variant}", "steps": first["steps"]}
            lines.append(blank | {"memory": row.main, "actor_critic": summary(name, variant)})
    return lines


def rows_of_defaults(names: Sequence[str] = tuple(DEFAULT_ROWS)) -> list[dict[str, str]]:
    """Return the table of the one setting: a line for each of these rows that has results."""
    lines = []
    for name in names:
        row = DEFAULT_ROWS[name]
        if not (found := results(name, row.main)):
            continue
        random, tuned, share = "", "", ""
        if row.ends is not None:
            low, high = row.ends
            closed = (np.mean([run["result"] for run in found]) - low) / (high - low)
            random, tuned, share = f"{low:g}", f"{high:g}", f"{closed:.0%}"
        first = {"task": row.task, "steps": f"{row.budget // 1000}k", "memory": row.main}
        first |= {"random": random, "tuned": tuned, "defaults": summary(name, row.main), "share of the gap": share}
        lines.append(first | {"no memory": summary(name, "no memory")})
    return lines


def main() -> int:
    """Run what is missing, write the tables, and return 1 if a run failed."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    variants = sorted({"main", *(v for row in ROWS.values() for v in row.variants)})
    p.add_argument("--defaults", action="store_true", help="the rows of one setting for all")
    names = [*ROWS, *(name.removeprefix("defaults/") for name in DEFAULT_ROWS)]
    p.add_argument("--rows", nargs="+", choices=sorted(set(names)), help="only these")
    p.add_argument("--variants", nargs="+", choices=variants, default=variants, help="main: the run file as it stands")
    p.add_argument("--seeds", type=int, default=3, help="seeds of each (default 3)")
    p.add_argument("--workers", type=int, default=os.cpu_count(), help="runs at a time (default: all cores)")
    p.add_argument("--runs", type=Path, default=RUNS, help="where the runs' folders go (default runs/learning)")
    p.add_argument("--table", action="store_true", help="train nothing")
    arguments = p.parse_args()
    runs = arguments.runs.absolute()
    os.chdir(ROOT)  # run files name their plug-ins from here
    failures = 0
    if not arguments.table:
        known = DEFAULT_ROWS if arguments.defaults else ROWS
        prefix = "defaults/" if arguments.defaults else ""
        rows = [prefix + row for row in arguments.rows] if arguments.rows else list(known)
        if unknown := [row for row in rows if row not in known]:
            p.error(f"no such row here: {', '.join(unknown)}")
        queue = [run for run in all_runs(rows, arguments.variants, arguments.seeds) if not has_result(*run)]
        failures = work(queue, partial(train, folder=runs), arguments.workers)
    print(table(rows_of_defaults()))
    write_table(ROOT / "docs/learning.md", "defaults", table(rows_of_defaults()))
    write_table(ROOT / "README.md", "defaults", table(rows_of_defaults(README_ROWS)))
    lines = rows_of_table()
    print(table(lines))
    write_table(ROOT / "docs/learning.md", "learning", table(lines))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
