"""Relay: what a memory costs an algorithm that joins the good halves of different episodes.

In ``seqrl/Relay-v0`` episodes begin at A or at B and meet in one corridor whose fork leads to a goal or to a dead end.
In the data, those from A always took the dead end, and those from B mostly the goal; evaluation begins at A. The
observation tells the place, so a policy without memory may do at the fork what episodes from B have shown to be good.
One that remembers has never seen anybody who came from A do it. The tables on the pages of these algorithms: rows of
three seeds, 200 sampled episodes each; a minute per row on one core.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import record, table, write_table

import seqrl
from seqrl.core.types import Trajectory
from seqrl.data.store import StoreWriter
from seqrl.data.store_info import StoreInfo
from seqrl.envs.builtin.relay import CORRIDOR, DEAD_END, FORK, GOAL, NUM_PLACES, A, Relay

PAGES = Path(__file__).parents[1] / "docs" / "algorithms"
SEEDS = (0, 1, 2)
OWN: dict[str, dict[str, Any]] = {
    "iql": {"beta": 10.0, "critic": {"d_hidden": 64}, "tau": 0.02},
    "cql": {"critic": {"d_hidden": 64}, "tau": 0.02, "reward_multiplier": 10.0, "entropy": {"alpha": 0.05}},
    "bcq": {"critic": {"d_hidden": 64}, "tau": 0.02},
    "bc": {},
}
"""Algorithm -> its settings."""
ROWS = tuple(
    (algo, memory, shuffled)
    for algo in OWN
    for memory, shuffled in (("feedforward", False), ("gru", False), ("feedforward", True))
    if not (algo == "bc" and shuffled)
)
"""Algorithm, memory, and whether each episode has the reward of another one."""


def demonstrations(folder: Path, rewards_of_others: bool) -> None:
    """Write 300 episodes; ``rewards_of_others`` gives each the reward of another one, which tells nothing."""
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 2, 300)
    turns = np.where(starts == A, 0, rng.integers(0, 2, 300) | (rng.random(300) < 0.5))
    rewards = turns.astype(np.float32)
    if rewards_of_others:
        rewards = rng.permutation(rewards)
    env = Relay()
    info = StoreInfo(env.observation_space, env.action_space)
    with StoreWriter(folder, info) as writer:
        for start, turn, reward in zip(starts, turns, rewards, strict=True):
            places = [start, CORRIDOR, FORK, GOAL if turn else DEAD_END]
            writer.append(
                Trajectory(
                    obs={"obs": np.eye(NUM_PLACES, dtype=np.float32)[places]},
                    actions=np.array([rng.integers(2), rng.integers(2), turn]),
                    rewards=np.array([0, 0, reward], np.float32),
                    terminated=np.array([False, False, True]),
                    truncated=np.zeros(3, bool),
                )
            )


def success(folder: Path, algo: str, memory: str, rewards_of_others: bool = False, seed: int = 0) -> float:
    """Return the share of sampled episodes that reach the goal after training."""
    data = folder / f"data-{rewards_of_others}"
    if not data.exists():
        demonstrations(data, rewards_of_others)
    memories = {
        "feedforward": {"type": "feedforward", "d_model": 32, "d_ff": 64, "num_layers": 1},
        "gru": {"type": "gru", "d_hidden": 32, "num_layers": 1, "d_output": 32},
    }
    config = seqrl.config_factory(
        algo,
        {
            "experiment": {
                "output_dir": str(folder / "runs"),
                "name": f"{algo}-{memory}-{rewards_of_others}-{seed}",
                "evaluation": {"episodes": 200, "every_n_epochs": 2, "deterministic": False},
                "report": {"enabled": False},
                "logging": {"tensorboard": False},
            },
            "train": {
                "data": [{"path": str(data)}],
                "window_steps": 4,
                "num_epochs": 1,
                "steps_per_epoch": 800,
                "seed": seed,
            },
            "observation": {
                "use_prev_action": False,
                "use_prev_reward": False,
                "timestep_encoder": {"type": "mlp", "d_hidden": 32, "d_output": 32},
            },
            "algo": {
                "sequence_encoder": memories[memory],
                "actor": {"d_hidden": 64},
                "optimizer": {"learning_rate": 2e-3, "warmup_steps": 20},
                **OWN[algo],
            },
        },
    )
    experiment = seqrl.Experiment(config, make_val_env=partial(Relay, "A"))
    experiment.start()
    return experiment.learn().metrics["eval/success_mean"]


def rows_of_table(runs: dict[str, list[float]], page: str) -> list[dict[str, str]]:
    """Return a row for each run of an algorithm's page: its own, and those of cloning."""
    rows = []
    for name, found in runs.items():
        algo, memory, rewards = name.split(", ")
        if algo not in (page, "bc"):
            continue
        row = {"algorithm": algo, "memory": memory, "rewards": rewards, "mean": f"{np.mean(found):.3f}"}
        rows.append({**row, "by seed": ", ".join(f"{value:.3f}" for value in found)})
    return rows


def main() -> None:
    """Run, record, and write the tables."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    runs = {}
    for algo, memory, shuffled in ROWS:
        name = f"{algo}, {memory}, {'of other episodes' if shuffled else 'its own'}"
        with tempfile.TemporaryDirectory() as folder:
            runs[name] = [success(Path(folder), algo, memory, shuffled, seed) for seed in SEEDS]
        print(name, runs[name], flush=True)
    print("recorded in", record("relay", {"episodes": 200, "success": runs}))
    for algo in OWN.keys() - {"bc"}:
        write_table(PAGES / f"{algo}.md", "relay", table(rows_of_table(runs, algo)))


if __name__ == "__main__":
    main()
