"""Environments in worker processes: what several per process bring, and what they cost where environments wait.

Steps a second of 12 CartPoles, and of 12 environments that sleep for 5 ms in each step, through the interface that
collecting uses. ``gymnasium`` is gymnasium's ``AsyncVectorEnv``, one process per environment. All take turns, and
ratios are medians of those within one round, as other work on the machine slows each.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from record import record, table, write_table
from vectors import NUM_ENVS, measure

from seqrl.envs.faults import RestartingMaker, WorkerMaker
from seqrl.envs.make import MakeEnv, env_maker, make_batched_env
from seqrl.envs.vector import BatchedEnv

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"


class Waiting(gym.Env[Any, Any]):
    """Waits for 5 ms in each step, as for a simulator elsewhere."""

    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Wait."""
        time.sleep(0.005)
        return np.zeros(4, np.float32), 0.0, False, False, {}


def of_gymnasium(maker: MakeEnv) -> BatchedEnv:
    """Return the vector that ``async`` was before."""
    makers = [RestartingMaker(WorkerMaker(maker))] * NUM_ENVS
    return BatchedEnv(AsyncVectorEnv(makers, context="forkserver", autoreset_mode=AutoresetMode.SAME_STEP))


def kinds(maker: MakeEnv) -> dict[str, Callable[[], BatchedEnv]]:
    """Return name -> what makes the vector."""
    make = functools.partial(make_batched_env, maker, NUM_ENVS, max_restarts=1)
    made = {"gymnasium": functools.partial(of_gymnasium, maker), "sync": make}
    for workers in (1, 2, 4, NUM_ENVS):
        name = f"async, {workers} worker{'s' * (workers > 1)}"
        made[name] = functools.partial(make, vectorization="async", num_workers=workers, timeout_s=300.0)
    return made


def main() -> None:
    """Measure in turn, print medians, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="of CartPole; a fifth of it where they wait")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    seen: dict[str, dict[str, list[float]]] = {}
    for name, maker, steps in (("CartPole", env_maker("CartPole-v1"), args.steps), ("5 ms", Waiting, args.steps // 5)):
        made = kinds(maker)
        rounds = [{kind: measure(make, steps)[0] for kind, make in made.items()} for _ in range(args.rounds)]
        seen[name] = {kind: [one[kind] for one in rounds] for kind in made}
    rows = [
        {"vector": kind, **{title: text for name in seen for title, text in _cells(name, seen[name], kind)}}
        for kind in seen["CartPole"]
    ]
    print(table(rows))
    write_table(PAGE, "workers", table(rows))
    print("recorded in", record("workers", {"num_envs": NUM_ENVS, "load": os.getloadavg(), "steps_per_s": seen}))


def _cells(name: str, found: dict[str, list[float]], kind: str) -> list[tuple[str, str]]:
    ratio = statistics.median(a / b for a, b in zip(found[kind], found["gymnasium"], strict=True))
    return [(f"{name}, steps/s", f"{statistics.median(found[kind]):,.0f}"), (f"{name}, ratio", f"{ratio:.2f}")]


if __name__ == "__main__":
    main()
