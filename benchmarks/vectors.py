"""When each kind of vector pays: steps a second of CartPole by ``sync``, ``async``, its own vector and EnvPool.

Random actions, 12 environments, through the interface that collecting uses; by the second of the wall clock, and of
all processors (threads and processes included). EnvPool is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from record import record, table, write_table

from seqrl.envs.make import env_maker, make_batched_env, make_vector_env
from seqrl.envs.vector import BatchedEnv

NUM_ENVS = 12
PAGE = Path(__file__).parents[1] / "docs" / "environments" / "suites.md"


def kinds(name: str) -> dict[str, Callable[[], BatchedEnv]]:
    """Return name -> what makes the vector."""
    made: dict[str, Callable[[], BatchedEnv]] = {
        kind: functools.partial(make_batched_env, env_maker(name), NUM_ENVS, vectorization=kind)  # type: ignore[arg-type]
        for kind in ("sync", "async")
    }
    made["native"] = lambda: make_batched_env(lambda: make_vector_env(name, NUM_ENVS), NUM_ENVS)
    if importlib.util.find_spec("envpool"):
        made["EnvPool"] = lambda: make_batched_env(lambda: make_vector_env(f"envpool/{name}", NUM_ENVS), NUM_ENVS)
    return made


def cpu_seconds() -> float:
    """Return the seconds that this process and its children, once they have ended, took of the processors."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def measure(make: Callable[[], BatchedEnv], steps: int) -> tuple[float, float]:
    """Return steps of one environment a second of the wall clock, and of the processors."""
    env = make()
    env.reset(0)
    actions = np.eye(2, dtype=np.float32)[np.random.default_rng(0).integers(0, 2, (steps, NUM_ENVS))]
    before, begin = cpu_seconds(), time.perf_counter()
    for action in actions:
        env.step(action)
    elapsed = time.perf_counter() - begin
    env.close()  # only what has ended is counted: starting the processes of async is in it
    return steps * NUM_ENVS / elapsed, steps * NUM_ENVS / (cpu_seconds() - before)


def main() -> None:
    """Measure in turn, print medians, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    made = kinds("CartPole-v1")
    seen: dict[str, list[tuple[float, float]]] = {kind: [] for kind in made}
    for _ in range(args.rounds):
        for kind, make in made.items():
            seen[kind].append(measure(make, args.steps))
    rows: list[dict[str, Any]] = [
        {
            "vector": kind,
            "steps/s": f"{statistics.median(w for w, _ in found):,.0f}",
            "steps per CPU second": f"{statistics.median(c for _, c in found):,.0f}",
        }
        for kind, found in seen.items()
    ]
    print(table(rows))
    write_table(PAGE, "vectors", table(rows))
    print("recorded in", record("vectors", {"num_envs": NUM_ENVS, "rounds": seen}))


if __name__ == "__main__":
    main()
