"""Has anything become slower? A few ratios against the recorded ones, in less than three minutes.

python benchmarks/guard.py              # compares, and ends with 1 if a ratio has grown by more than a quarter
python benchmarks/guard.py --record     # writes results/guard.json anew

Each figure is CPU time in units of something else: one float32 product of two 1024 x 1024 matrices or PyTorch's own way
to act, measured in turns with it, or the products of the work alone, measured afterwards. So a slower or busier
machine changes little; a slower seqrl does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from agents import SPACES, floor_seconds, make_algo, make_batch
from collect import Loop
from record import RESULTS, record, table

from seqrl.algo import algo_factory
from seqrl.algo.acting import VectorPolicy
from seqrl.algo.engine import OnnxEngine
from seqrl.configs import config_factory
from seqrl.core.host_memory import keep_freed_memory

BOUND = 1.25
ROWS = 12
Work = Callable[[], Any]


def in_turns(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Return the median CPU seconds of each work; all take turns."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            begin = time.process_time()
            work()
            if number:
                taken[name].append(time.process_time() - begin)
    return {name: statistics.median(times) for name, times in taken.items()}


def learning() -> dict[str, float]:
    """Return gradient steps of two agents, on 16 windows of 128 steps, in products."""
    square = torch.randn(1024, 1024)
    works: dict[str, Work] = {"unit": lambda: [square @ square for _ in range(10)]}
    for label, memory in (("transformer", None), ("gru", {"type": "gru", "d_hidden": 256, "num_layers": 1})):
        algo = make_algo("actor_critic", "discrete", 128, "cpu", "no", False) if memory is None else gru_agent(memory)
        batch = algo.process_batch_for_training(make_batch("discrete", 16, 128))
        works[f"a gradient step, discrete actor-critic, {label}"] = lambda a=algo, b=batch: a.train_on_batch(b)
    found = in_turns(works, 7)
    unit = found.pop("unit") / 10
    floors = {name: floor_seconds(works[name], torch.device("cpu"), 5, time.process_time) for name in found}
    by_product = {f"{name} / product": value / unit for name, value in found.items()}
    return by_product | {f"{name} / its products alone": value / floors[name] for name, value in found.items()}


def gru_agent(memory: dict[str, Any]) -> Any:
    """Return the agent of :func:`agents.make_algo` with another memory."""
    agent = make_algo("actor_critic", "discrete", 128, "cpu", "no", False)
    config = config_factory("actor_critic", {"train": {"window_steps": 128}, "algo": {"sequence_encoder": memory}})
    algo = algo_factory("actor_critic", config, agent.obs, agent.codec.dim, "cpu", SPACES["discrete"])
    algo.updater = type(agent.updater)(algo, agent.updater._accelerator, is_compiled=False)
    algo.set_train()
    algo.wants_metrics = False
    return algo


def acting() -> dict[str, float]:
    """Return 50 steps of 12 rows, a Transformer 256 x 3, in products, and ONNX Runtime's share of PyTorch's time."""
    algo = make_algo("actor_critic", "discrete", 128, "cpu", "no", False)
    algo.set_eval()
    square, reward = torch.randn(1024, 1024), np.zeros(ROWS, np.float32)
    obs = {"obs": np.zeros((ROWS, 32), np.float32)}
    engine = OnnxEngine(algo, deterministic=False)
    eager = VectorPolicy(algo, ROWS, deterministic=False)
    onnx = VectorPolicy(algo, ROWS, deterministic=False, engine=engine)
    found = in_turns(
        {
            "unit": lambda: [square @ square for _ in range(5)],
            "eager": lambda: [eager.act(obs, reward) for _ in range(50)],
            "onnx": lambda: [onnx.act(obs, reward) for _ in range(50)],
        },
        7,
    )
    return {
        "50 acting steps of 12 rows / product": found["eager"] / (found["unit"] / 5),
        "the same by ONNX Runtime / PyTorch": found["onnx"] / found["eager"],
    }


def collecting() -> dict[str, float]:
    """Return 300 steps of 12 CartPoles, policy and recording included, in products."""
    square, loop = torch.randn(1024, 1024), Loop("sync")
    found = in_turns({"unit": lambda: [square @ square for _ in range(5)], "collect": loop.once}, 5)
    loop.close()
    return {"300 steps of 12 CartPoles, collected / product": found["collect"] / (found["unit"] / 5)}


def main() -> int:
    """Measure, and compare or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write results/guard.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as Experiment does
    found = {**learning(), **acting(), **collecting()}
    if args.record:
        print(table([{"what": name, "ratio": f"{value:.3g}"} for name, value in found.items()]))
        print("recorded in", record("guard", {"ratios": found}))
        return 0
    before = json.loads((RESULTS / "guard.json").read_text())["ratios"]
    rows = [
        {"what": name, "recorded": f"{before[name]:.3g}", "now": f"{value:.3g}", "x": f"{value / before[name]:.2f}"}
        for name, value in found.items()
    ]
    print(table(rows))
    slower = [name for name, value in found.items() if value > BOUND * before[name]]
    for name in slower:
        print(f"slower by more than {BOUND - 1:.0%}: {name}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
