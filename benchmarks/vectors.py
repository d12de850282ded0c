"""When each kind of vector pays: steps a second by ``sync``, ``async``, and vectors of gymnasium, EnvPool and JAX.

python benchmarks/vectors.py    # pip install 'seqrl[envpool,gymnax,xland]'; those not installed are left out

Random actions, 12 environments, through the interface that collecting uses; by the second of the wall clock, and of
all processors (threads and processes included). The result names its task: CartPole, or a grid of XLand-MiniGrid.
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


CARTPOLE, XLAND = "CartPole-v1", "XLand-MiniGrid-R1-9x9"


def vectors() -> dict[tuple[str, str], Callable[[], BatchedEnv]]:
    """Return (task, kind) -> what makes the vector, of what is installed."""
    asked = {("CartPole", "sync"): CARTPOLE, ("CartPole", "async"): CARTPOLE, ("CartPole", "gymnasium"): CARTPOLE}
    if importlib.util.find_spec("envpool"):
        asked["CartPole", "EnvPool"] = f"envpool/{CARTPOLE}"
    if importlib.util.find_spec("gymnax"):
        asked["CartPole", "gymnax"] = f"gymnax/{CARTPOLE}"
    if importlib.util.find_spec("xminigrid"):
        asked |= {("XLand-MiniGrid", "sync"): XLAND, ("XLand-MiniGrid", "its own"): XLAND}
    return {(task, kind): functools.partial(made, kind, env_id) for (task, kind), env_id in asked.items()}


def made(kind: str, env_id: str) -> BatchedEnv:
    """Return 12 environments."""
    if kind in ("sync", "async"):
        return make_batched_env(env_maker(env_id), NUM_ENVS, vectorization=kind)  # type: ignore[arg-type]
    return make_batched_env(lambda: make_vector_env(env_id, NUM_ENVS), NUM_ENVS)


def cpu_seconds() -> float:
    """Return the seconds that this process and its children, once they have ended, took of the processors."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def measure(make: Callable[[], BatchedEnv], steps: int) -> tuple[float, float]:
    """Return steps of one environment a second of the wall clock, and of the processors."""
    env = make()
    env.reset(0)
    rng = np.random.default_rng(0)
    actions = [env.codec.random(rng, NUM_ENVS) for _ in range(steps)]
    env.step(actions[0])  # compiles those of jax
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
    seen: dict[tuple[str, str], list[tuple[float, float]]] = {kind: [] for kind in vectors()}
    for _ in range(args.rounds):
        for kind, make in vectors().items():
            seen[kind].append(measure(make, args.steps))
    rows: list[dict[str, Any]] = [
        {
            "task": task,
            "vector": kind,
            "steps/s": f"{statistics.median(w for w, _ in found):,.0f}",
            "steps per CPU second": f"{statistics.median(c for _, c in found):,.0f}",
        }
        for (task, kind), found in seen.items()
    ]
    rounds = {", ".join(kind): found for kind, found in seen.items()}
    file = record("vectors", {"num_envs": NUM_ENVS, "rounds": rounds})
    print(f"{table(rows)}\nrecorded in {file}")
    write_table(PAGE, "vectors", table(rows))


if __name__ == "__main__":
    main()
