"""Does ``seqrl select`` rank policies as their returns do? The table in ``docs/choosing.md``.

Six policies of each task of benchmarks/offline_agents.py are fixed beforehand: cloning after 5, 25 and 100 % of its
steps, implicit Q-learning, a policy that learned nothing, and cloning from demonstrations with the hints of other
episodes. Fitted Q evaluation judges them by the demonstrations, and once more by demonstrations with the returns of
other episodes, less their mean, so that to end an episode is worth nothing either. Their true returns are of 200
sampled episodes. Ten minutes on one core.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from offline_agents import COMMON, OF_TASK, TASKS, Settings, settings_of, write_demonstrations
from record import record, table, write_table

from seqrl.data.ingest import open_store
from seqrl.data.writers.robomimic import write_robomimic
from seqrl.rollout.selection import rank_correlation
from seqrl.scripts import select_, train

PAGE = Path(__file__).parents[1] / "docs" / "choosing.md"
SEED, STEPS = 20, 1500
HINT = {"grid": [3], "point": [2, 3]}
POLICIES: dict[str, tuple[str, Settings]] = {
    "bc-5": ("bc", {"train.steps_per_epoch": 25}),
    "bc-25": ("bc", {"train.steps_per_epoch": 125}),
    "bc-100": ("bc", {}),
    "iql": ("iql", {}),
    "untrained": ("bc", {"train.steps_per_epoch": 1, "algo.optimizer.learning_rate": 1e-9}),
    "bc-hints-of-others": ("bc", {}),
}
"""Name (of cloning with the percentage of its steps) -> algorithm, and settings over those of that benchmark."""


def shuffled(data: Path, file: Path, task: str, what: str) -> None:
    """Write the demonstrations again, each with the rewards or the hint of another one."""
    store = open_store(str(data))
    found = list(store.trajectories())
    mean = np.mean([t.total_reward for t in found])
    others = [found[i] for i in np.random.default_rng(0).permutation(len(found))]
    made = []
    for one, other in zip(found, others, strict=True):
        if what == "rewards":
            rewards = np.zeros_like(one.rewards)
            rewards[-1] = other.total_reward - mean
            made.append(replace(one, rewards=rewards))
        else:
            obs = one.obs["obs"].copy()
            obs[:, HINT[task]] = np.where(obs[:, HINT[task]] != 0, other.obs["obs"][0, HINT[task]], 0.0)
            made.append(replace(one, obs={"obs": obs}))
    write_robomimic(file, store.info, made)


def judged(task: str, folder: Path) -> dict[str, Any]:
    """Train the policies of a task, and return what is true and what is estimated of each, by name."""
    data = folder / "demonstrations.hdf5"
    write_demonstrations(task, data)
    for what in ("rewards", "hints"):
        shuffled(data, folder / f"{what}.hdf5", task, what)
    for name, (algo, extra) in POLICIES.items():
        source = folder / "hints.hdf5" if "hints" in name else data
        placed = {"experiment.output_dir": folder / "runs", "train.seed": SEED}
        values = {**COMMON, **OF_TASK[task], **settings_of(task, algo, SEED), **placed, **extra}
        words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        if train.main(["--algo", algo, "--dataset", str(source), "--name", name, *words]):
            raise RuntimeError(f"{name} ended in an error; see above")
    runs = [str(folder / "runs" / name) for name in POLICIES]
    out: dict[str, Any] = {}
    for key, source in (("estimate", data), ("estimate from rewards of others", folder / "rewards.hdf5")):
        words = [*runs, "--dataset", str(source), "--sample", "--steps", str(STEPS), "--json"]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if select_.main(words):
                raise RuntimeError("seqrl select ended in an error; see above")
        for row in json.loads(printed.getvalue())["checkpoints"]:
            name = Path(row["checkpoint"]).parents[1].name
            out.setdefault(name, {"return": row["measured_return"], "unlike the data": row["disagreement"]})
            out[name][key] = row["value"]
    return out


def correlations(found: dict[str, Any]) -> dict[str, float]:
    """Return the rank correlation of each estimate with the true returns."""
    true = [row["return"] for row in found.values()]
    keys = ("estimate", "estimate from rewards of others")
    return {key: rank_correlation([row[key] for row in found.values()], true) for key in keys}


def rows_of_table(results: dict[str, Any]) -> list[dict[str, str]]:
    """Return a row for each policy of each task, best first, and one with the correlations."""
    rows = []
    for task, found in results.items():
        for name, row in sorted(found.items(), key=lambda item: -item[1]["return"]):
            numbers = {key: f"{value:.2f}" for key, value in row.items()}
            rows.append({"task": TASKS[task][0], "policy": name, **numbers})
        blank = dict.fromkeys(rows[-1], "")
        numbers = {key: f"**{value:.2f}**" for key, value in correlations(found).items()}
        rows.append({**blank, "task": TASKS[task][0], "policy": "**rank correlation**", **numbers})
    return rows


def main() -> None:
    """Run, record, and write the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    results = {}
    for task in TASKS:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            os.environ["SEQRL_CACHE_DIR"] = f"{folder}/cache"
            results[task] = judged(task, Path(folder))
        print(task, correlations(results[task]), flush=True)
    print("recorded in", record("selection", {"episodes": 200, "steps": STEPS, "policies": results}))
    text = table(rows_of_table(results))
    print(text)
    write_table(PAGE, "selection", text)


if __name__ == "__main__":
    main()
