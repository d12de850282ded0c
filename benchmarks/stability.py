"""Whether training keeps what it has learned: runs that fall back after they had solved their task.

python benchmarks/stability.py                          # seqrl's own optimiser: whatever has no result yet
python benchmarks/stability.py --optimizers spike_clip  # the same without averages of the weights
python benchmarks/stability.py --optimizers none        # AdamW without a limit on spikes, without averages
python benchmarks/stability.py --tasks demo_transformer --seeds 3 7 --optimizers stable_adamw
python benchmarks/stability.py --table                  # only write the table from the results that are there

The demo's task is imitated for 5,000 steps, CartPole and RepeatPrevious are learned online for twice their budget. A
run has solved its task at a score of 0.98 (success, or return over the best possible one), and falls when a later
evaluation is below 0.9. Beside the scores it keeps the largest update of any parameter tensor (its root mean square
over the learning rate) and the largest gradient that reached the optimiser (its norm over the root mean square that
Adam holds of it), and what the last weights score where their averages are evaluated. A run takes one core. Results lie
in ``benchmarks/stability/``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import provenance, table, write_table
from run_queue import run_python, work
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
HERE = ROOT / "benchmarks/stability"
RUNS = ROOT / "runs/stability"
sys.path.insert(0, str(ROOT))

from seqrl.algo.ema import AVERAGES, has_averages  # noqa: E402
from seqrl.algo.updater import build_optimizer  # noqa: E402
from seqrl.configs import BaseConfig  # noqa: E402
from seqrl.core.files import write_json  # noqa: E402
from seqrl.envs.metrics import Episode  # noqa: E402
from seqrl.scripts.train import parser, resolve_config  # noqa: E402
from seqrl.training.experiment import Experiment  # noqa: E402

SOLVED, FALLEN = 0.98, 0.9
DEMO = (
    "train.num_epochs=50",
    "train.steps_per_epoch=100",
    "experiment.evaluation.episodes=100",
    "experiment.evaluation.num_envs=100",
)


@dataclass(frozen=True)
class Task:
    """A run that is to hold what it has learned.

    Attributes:
        run_file: What ``seqrl train --config`` takes.
        settings: What ``--set`` changes.
        metric: Of an evaluation.
        best: Its largest possible value, which makes a score of 1.
        num_seeds: How many runs there are by default.
    """

    run_file: str
    settings: tuple[str, ...]
    metric: str = "eval/success_mean"
    best: float = 1.0
    num_seeds: int = 5


def memory(name: str, **sizes: int) -> tuple[str, ...]:
    """Return the settings of a memory."""
    prefix = "algo.sequence_encoder."
    return (f"{prefix}type={name}", *(f"{prefix}{key}={value}" for key, value in sizes.items()))


TASKS = {
    "demo_transformer": Task("bc.json", DEMO, num_seeds=20),
    "demo_gru": Task("bc.json", DEMO + memory("gru", d_hidden=64, d_output=64)),
    "demo_mamba": Task("bc.json", DEMO + memory("mamba", d_model=64, num_layers=2)),
    "cartpole": Task("cartpole.json", ("train.num_epochs=120",), "eval/return_mean", 500.0, 10),
    "repeat_previous": Task(
        "benchmarks/learning/repeat_previous_gru.json",
        ("train.num_epochs=50", "algo.optimizer.spike_clip=3.0", "algo.average_decay=0.999"),
        "eval/return_mean",
        1.0,
        10,
    ),
}
Run = tuple[str, str, int, int]
"""Task, optimiser, seed and threads."""


# ------------------------------------------------------------------------------------------ what is compared
class StableAdamW(torch.optim.Optimizer):
    """AdamW whose learning rate falls, tensor by tensor, by how far the gradient exceeds its second moment.

    Source: Wortsman et al. (2023), Stable and low-precision training for large-scale vision-language models, arXiv
    2304.13013, section 3.5.
    """

    def __init__(self, groups: list[dict[str, Any]], betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        super().__init__(groups, {"betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the weights."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                state["exp_avg"].lerp_(p.grad, 1 - beta1)
                state["exp_avg_sq"].lerp_(p.grad.square(), 1 - beta2)
                second = state["exp_avg_sq"] / (1 - beta2 ** state["step"])
                ratio = (p.grad.square() / second.clamp(min=group["eps"] ** 2)).mean().sqrt()
                rate = group["lr"] / ratio.clamp(min=1.0)
                first = state["exp_avg"] / (1 - beta1 ** state["step"])
                p.mul_(1 - rate * group["weight_decay"]).sub_(rate * first / (second.sqrt() + group["eps"]))


Build = Callable[[nn.ModuleDict, BaseConfig], torch.optim.Optimizer]


def adamw(nets: nn.ModuleDict, config: BaseConfig, **options: Any) -> torch.optim.Optimizer:
    """Return seqrl's own, with other options of AdamW."""
    optimizer = build_optimizer(nets, config.algo.optimizer)
    for group in optimizer.param_groups:
        group.update(options)
    return optimizer


def stable_adamw(nets: nn.ModuleDict, config: BaseConfig) -> torch.optim.Optimizer:
    """Return StableAdamW with the groups of seqrl's own."""
    kept = ("params", "lr", "weight_decay", "factor")
    return StableAdamW([{k: g[k] for k in kept} for g in adamw(nets, config).param_groups])


def clipped(nets: nn.ModuleDict, config: BaseConfig, *, limit: float, is_global: bool) -> torch.optim.Optimizer:
    """Return seqrl's own that clips gradients against the root mean square of their past norms.

    Args:
        nets: Networks.
        config: The run file.
        limit: In such root mean squares.
        is_global: Of all gradients together, or of each tensor alone.
    """
    optimizer = adamw(nets, config)
    optimizer.register_step_pre_hook(Clip(limit, is_global))
    return optimizer


@dataclass
class Clip:
    """Clips gradients before a step."""

    limit: float
    is_global: bool
    squares: Tensor | None = None
    num_steps: int = 0

    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Clip the gradients in place."""
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients))
        norms = norms.norm().reshape(1) if self.is_global else norms
        if self.squares is None:
            self.squares = torch.zeros_like(norms)
        else:
            expected = (self.squares / (1 - 0.999**self.num_steps)).sqrt()
            factors = torch.where(expected > 0, self.limit * expected / norms.clamp(min=1e-30), 1.0).clamp(max=1.0)
            torch._foreach_mul_(gradients, list(factors.expand(len(gradients))))
            norms = norms * factors
        self.squares.lerp_(norms.square(), 0.001)
        self.num_steps += 1


DEFAULT = "default"
COLUMNS = ["step", "score", "largest_update", "largest_gradient", "score of the last weights"]
OPTIMIZERS: dict[str, Build] = {
    DEFAULT: adamw,
    "spike_clip": adamw,
    "none": adamw,
    "beta2_0.99": partial(adamw, betas=(0.9, 0.99)),
    "beta2_0.95": partial(adamw, betas=(0.9, 0.95)),
    "eps_1e-6": partial(adamw, eps=1e-6),
    "eps_1e-5": partial(adamw, eps=1e-5),
    "stable_adamw": stable_adamw,
    "tensor_3": partial(clipped, limit=3.0, is_global=False),
    "tensor_10": partial(clipped, limit=10.0, is_global=False),
    "global_3": partial(clipped, limit=3.0, is_global=True),
}
PAGES = {
    "docs/learning.md": ("stability", [DEFAULT, "none"]),
    "docs/defaults.md": ("optimisers", [name for name in OPTIMIZERS if name != DEFAULT]),
}
"""Page -> a table's name and optimisers."""


# ------------------------------------------------------------------------------------------ one run
@dataclass
class Watch:
    """Keeps the largest update and gradient since it was last asked."""

    largest_update: float = 0.0
    largest_gradient: float = 0.0
    curve: list[list[float]] = field(default_factory=list)

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Look at every step of an optimiser."""
        optimizer.register_step_pre_hook(lambda o, *_: self.see_gradient(o))
        optimizer.register_step_post_hook(lambda o, *_: self.see_update(o))

    @torch.no_grad()
    def see_gradient(self, optimizer: torch.optim.Optimizer) -> None:
        """Compare each tensor's gradient with its second moment."""
        for group in optimizer.param_groups:
            found = [p for p in group["params"] if p.grad is not None and optimizer.state[p]]
            if not found:
                continue
            states = [optimizer.state[p] for p in found]
            norms = torch.stack(torch._foreach_norm([p.grad for p in found]))
            squares = torch.stack([s["exp_avg_sq"].sum() for s in states])
            correction = 1 - group["betas"][1] ** float(states[0]["step"])
            ratio = norms / (squares / correction).sqrt().clamp(min=1e-20)
            self.largest_gradient = max(self.largest_gradient, float(ratio.max()))

    @torch.no_grad()
    def see_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Measure each tensor's update, without decay."""
        for group in optimizer.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if state := optimizer.state.get(p):
                    num_steps = float(state["step"])
                    second = (state["exp_avg_sq"] / (1 - beta2**num_steps)).sqrt_().add_(group["eps"])
                    update = (state["exp_avg"] / second).norm() / (1 - beta1**num_steps) / math.sqrt(p.numel())
                    self.largest_update = max(self.largest_update, float(update))

    def take(self) -> tuple[float, float]:
        """Return both, and begin anew."""
        found = self.largest_update, self.largest_gradient
        self.largest_update = self.largest_gradient = 0.0
        return found


class Watched(Experiment):
    """A run with another optimiser, that remembers how it went."""

    optimizer = "none"
    last: Mapping[str, float]

    def init_optimizer(self, nets: nn.ModuleDict) -> torch.optim.Optimizer:
        """Return the one that is tried."""
        self.watch = Watch()
        built = OPTIMIZERS[self.optimizer](nets, self.config)
        self.watch.attach(built)
        return built

    def evaluate_val(self) -> tuple[dict[str, float], list[Episode]]:
        """Evaluate the last weights too, where their averages are what is evaluated."""
        if not has_averages(self.algo.nets):
            found = super().evaluate_val()
            self.last = found[0]
            return found
        averages = self.algo.nets.pop(AVERAGES)
        self.last, _ = super().evaluate_val()
        self.algo.nets[AVERAGES] = averages
        return super().evaluate_val()

    def log(self, metrics: Any, step: int) -> None:
        """Keep the scores."""
        super().log(metrics, step)
        task = TASKS[self.task]
        if task.metric in metrics:
            update, gradient = self.watch.take()
            score, last = (round(found[task.metric] / task.best, 4) for found in (metrics, self.last))
            self.watch.curve.append([step, score, round(update, 3), round(gradient, 2), last])


def config_of(task: str, optimizer: str, seed: int, threads: int) -> BaseConfig:
    """Return the config of a run."""
    chosen = TASKS[task]
    settings = [*chosen.settings, f"train.seed={seed}", f"train.num_threads={threads}"]
    settings += ["experiment.logging.progress_bar=false", "experiment.logging.tensorboard=false"]
    settings += ["experiment.report.enabled=false", "experiment.save.best=[]"]
    words = ["--config", chosen.run_file, *(word for s in settings for word in ("--set", s))]
    with contextlib.redirect_stderr(io.StringIO()):
        config, _ = resolve_config(parser().parse_args(words))
    if optimizer != DEFAULT:
        config.algo.average_decay = None
    if optimizer not in (DEFAULT, "spike_clip"):
        config.algo.optimizer.spike_clip = None
    return config


def falls(curve: list[list[float]]) -> dict[str, Any]:
    """Return when a run had solved its task, how often it was below afterwards, and the largest numbers since."""
    solved = next((i for i, row in enumerate(curve) if row[1] >= SOLVED), None)
    if solved is None:
        return {"solved_at": None, "evaluations_below": 0, "lowest": None}
    after = curve[solved + 1 :]
    return {
        "solved_at": int(curve[solved][0]),
        "evaluations_below": sum(row[1] < FALLEN for row in after),
        "lowest": min((row[1] for row in after), default=None),
        "largest_update": max((row[2] for row in after), default=None),
        "largest_gradient": max((row[3] for row in after), default=None),
    }


def result_file(task: str, optimizer: str, seed: int, threads: int) -> Path:
    """Return where a run's result lies."""
    many = "" if threads == 1 else f"_threads{threads}"
    return HERE / optimizer / f"{task}_seed{seed}{many}.json"


def play(task: str, optimizer: str, seed: int, threads: int, folder: Path) -> None:
    """Train in this process, and write the result."""
    os.chdir(ROOT)
    begun, where = time.perf_counter(), provenance()
    config = config_of(task, optimizer, seed, threads)
    config.experiment.name = f"{optimizer}-{task}-{seed}-{threads}"
    config.experiment.output_dir = str(folder)
    run = Watched(config, overwrite=True)
    run.optimizer, run.task = optimizer, task
    run.start()
    run.learn()
    file = result_file(task, optimizer, seed, threads)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"task": task, "optimizer": optimizer, "seed": seed, "threads": threads}
    content |= falls(run.watch.curve)
    content["last_weights"] = falls([[row[0], row[4], *row[2:4]] for row in run.watch.curve])
    content |= {"wall_s": round(time.perf_counter() - begun, 1), **where}
    write_json(file, {**content, "columns": COLUMNS, "curve": run.watch.curve})


def train(task: str, optimizer: str, seed: int, threads: int, folder: Path) -> str:
    """Train in a process of its own, and return what came out."""
    name = f"{optimizer}-{task}-{seed}-{threads}"
    words = ["benchmarks/stability.py", "--one", task, optimizer, str(seed), str(threads), "--runs", str(folder)]
    run_python(words, folder / "logs" / f"{name}.txt", threads=threads)
    result = json.loads(result_file(task, optimizer, seed, threads).read_text())
    shown = ("solved_at", "evaluations_below", "lowest", "largest_update", "largest_gradient", "wall_s")
    return f"{name}: {json.dumps({key: result.get(key) for key in shown})}"


def rows_of_table(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return a row for each task and each of these optimisers that has results."""
    rows = []
    for task, name in itertools.product(TASKS, names):
        files = (HERE / name).glob(f"{task}_seed*.json")
        found = sorted((json.loads(file.read_text()) for file in files), key=lambda run: run["seed"])
        if not found:
            continue
        solved = [run for run in found if run["solved_at"] is not None]
        fallen = [run for run in solved if run["evaluations_below"]]
        seeds = ", ".join(f"{run['seed']}{'' if run['threads'] == 1 else ' (two threads)'}" for run in fallen)
        told = all("last_weights" in run for run in found)
        largest = max((run["largest_update"] for run in solved if run["largest_update"] is not None), default=0.0)
        rows.append({
            "task": task,
            "optimiser": name,
            "runs": len(found),
            "solved": len(solved),
            "fell": f"{len(fallen)} (seeds {seeds})" if fallen else 0,
            "evaluations below": sum(run["evaluations_below"] for run in found),
            "last weights: fell": sum(bool(run["last_weights"]["evaluations_below"]) for run in found) if told else "",
            "below": sum(run["last_weights"]["evaluations_below"] for run in found) if told else "",
            "steps to solve, median": f"{statistics.median(run['solved_at'] for run in solved):.0f}" if solved else "-",
            "largest update since, over the rate": f"{largest:.2f}",
        })  # fmt: skip
    return rows


def main() -> int:
    """Run what is missing, write the table, and return 1 if a run failed."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    p.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS), default=[DEFAULT])
    p.add_argument("--seeds", nargs="+", type=int)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--workers", type=int, default=os.cpu_count())
    p.add_argument("--runs", type=Path, default=RUNS)
    p.add_argument("--table", action="store_true")
    p.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = p.parse_args()
    folder = arguments.runs.absolute()
    if arguments.one:
        task, optimizer, seed, threads = arguments.one
        play(task, optimizer, int(seed), int(threads), folder)
        return 0
    if arguments.table:
        write()
        return 0
    queue = [
        (task, optimizer, seed, arguments.threads)
        for optimizer in arguments.optimizers
        for task in arguments.tasks
        for seed in (range(TASKS[task].num_seeds) if arguments.seeds is None else arguments.seeds)
        if not result_file(task, optimizer, seed, arguments.threads).exists()
    ]
    failures = work(queue, partial(train, folder=folder), arguments.workers)
    write()
    return 1 if failures else 0


def write() -> None:
    """Write the tables of the pages."""
    for page, (name, optimizers) in PAGES.items():
        text = table(rows_of_table(optimizers))
        print(text, "\n")
        write_table(ROOT / page, name, text)


if __name__ == "__main__":
    sys.exit(main())
