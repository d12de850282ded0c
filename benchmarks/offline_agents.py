"""Success of cloning and of agents that learn from demonstrations of mixed quality: the table in docs/offline.md.

python benchmarks/offline_agents.py                  # whatever has no result yet; may be stopped and started again
python benchmarks/offline_agents.py --algos bc       # some algorithms; one that is new is an entry in ALGOS
python benchmarks/offline_agents.py --table          # only write the table from the results that are there

Two tasks that need a memory: a gridworld (T-Maze whose hint has to be fetched) and a continuous one (PointRecall). Half
of the demonstrators do the right thing, half remember the wrong goal; one action in ten is random. All act by sampling.
A run takes one core and two minutes or so; its result is written to ``benchmarks/results/offline_agents/``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import RESULTS, provenance, table, write_table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from seqrl.core.files import write_json  # noqa: E402
from seqrl.core.seeding import generator  # noqa: E402
from seqrl.core.types import TimeStep  # noqa: E402
from seqrl.data.store import StoreInfo  # noqa: E402
from seqrl.data.writers.robomimic import write_robomimic  # noqa: E402
from seqrl.envs import BatchedEnv, make_batched_env  # noqa: E402
from seqrl.envs.make import env_maker  # noqa: E402
from seqrl.rollout.rollouts import ScriptedPolicy, collect_episodes  # noqa: E402
from seqrl.scripts import train  # noqa: E402

FOLDER = RESULTS / "offline_agents"
SEEDS = (0, 1, 2)
NUM_EPISODES = 200
NUM_DEMONSTRATIONS = 600
DATA_SEED = 0
TASKS: dict[str, tuple[str, dict[str, int]]] = {
    "grid": ("seqrl/TMazeActive-v0", {"corridor_length": 5, "oracle_distance": 1, "slack_steps": 6}),
    "point": ("seqrl/PointRecall-v0", {"delay_steps": 3}),
}
Settings = dict[str, Any]
COMMON: Settings = {
    "observation.use_prev_action": "false",
    "observation.use_prev_reward": "false",
    "observation.timestep_encoder.d_hidden": 64,
    "observation.timestep_encoder.d_output": 64,
    "algo.sequence_encoder.type": "gru",
    "algo.sequence_encoder.d_hidden": 64,
    "algo.sequence_encoder.num_layers": 1,
    "algo.sequence_encoder.d_output": 64,
    "algo.optimizer.learning_rate": 0.002,
    "algo.optimizer.warmup_steps": 50,
    "algo.actor.d_hidden": 64,
    "train.num_epochs": 1,
    "experiment.evaluation.episodes": NUM_EPISODES,
    "experiment.evaluation.deterministic": "false",
    "experiment.report.enabled": "false",
    "experiment.logging.tensorboard": "false",
}
OF_TASK: dict[str, Settings] = {"grid": {"train.window_steps": 14}, "point": {"train.window_steps": 11}}
AGENT: Settings = {
    "train.steps_per_epoch": 1000,
    "algo.critic.d_hidden": 64,
    "algo.extra_gammas": "[0.1,0.9]",
    "algo.gamma": 0.97,
    "algo.online_coeff": 0.0,
    "algo.offline_coeff": 1.0,
    "algo.critic_loss_weight": 1.0,
}
CLASSIFIED: Settings = {
    "algo.filter.type": "exponential",
    "algo.returns.low": -20.0,
    "algo.returns.high": 20.0,
    "algo.returns.num_bins": 64,
    "algo.returns.use_symlog": "false",
}
GRID_TAU, POINT_TAU = {"algo.tau": 0.05}, {"algo.tau": 0.01}
OFFLINE: Settings = {
    "train.steps_per_epoch": 1000,
    "algo.critic.d_hidden": 64,
    "algo.gamma": 0.97,
    "algo.reward_multiplier": 10.0,
}
DIVERSE: Settings = {
    "algo.eta": 0.3,
    "algo.entropy": "null",
    "algo.critic.norm": "layer",
    "algo.gamma": 0.95,
    "algo.optimizer.schedule": "cosine",
    "algo.optimizer.rates": '{"actor": 0.3}',
}
ALGOS: dict[str, dict[str, Settings]] = {
    "bc": {task: {"train.steps_per_epoch": 500} for task in TASKS},
    "actor_critic": {"grid": {**AGENT, **GRID_TAU}, "point": {**AGENT, **POINT_TAU}},
    "multitask": {"grid": {**AGENT, **CLASSIFIED, **GRID_TAU}, "point": {**AGENT, **CLASSIFIED, **POINT_TAU}},
    "iql": {"grid": {**OFFLINE, "algo.beta": 1.0, **GRID_TAU}, "point": {**OFFLINE, "algo.beta": 1.0, **POINT_TAU}},
    "td3_bc": {"point": {**OFFLINE, "algo.alpha": 5.0, "algo.critic.norm": "layer", "algo.gamma": 0.95, **POINT_TAU}},
    "cql": {"grid": {**OFFLINE, **GRID_TAU}, "point": {**OFFLINE, **POINT_TAU}},
    "bcq": {"grid": {**OFFLINE, **GRID_TAU}, "point": {**OFFLINE, **POINT_TAU}},
    "edac": {"point": {**OFFLINE, **DIVERSE, **POINT_TAU}},
    "fql": {"point": {**OFFLINE, "algo.alpha": 0.1, "algo.gamma": 0.95, "algo.flow.d_hidden": 64, **POINT_TAU}},
}
"""Algorithm -> task -> settings besides those of all; no task whose actions it does not take. The others have to beat
``bc``."""
Run = tuple[str, str, int]
"""Task, algorithm and seed."""


class Mistaken(ScriptedPolicy):
    """Experts of whom half take the hint for its opposite, and who slip in one step of ten."""

    def __init__(self, env_id: str, env: BatchedEnv, hint: list[int]) -> None:
        super().__init__(env_id, env, noise=0.1, seed=DATA_SEED)
        self._is_mistaken = np.arange(env.num_envs) % 2 == 1
        self._hint = hint

    def __call__(self, step: TimeStep) -> np.ndarray:
        """Act on the hint as it is remembered."""
        obs = step.obs["obs"].copy()
        obs[:, self._hint] *= np.where(self._is_mistaken, -1, 1)[:, None]
        return super().__call__(type(step)(**{**vars(step), "obs": {"obs": obs}}))


def write_demonstrations(task: str, file: Path, *, rewards_of_others: bool = False) -> int:
    """Write the episodes of the mixed demonstrators, and return the number of successes.

    Args:
        task: Which.
        file: robomimic file.
        rewards_of_others: Give each episode the rewards of another one, cut or filled with zeros: they tell nothing.
    """
    env_id, kwargs = TASKS[task]
    hint = [3] if task == "grid" else [2, 3]
    env = make_batched_env(env_maker(env_id, kwargs), 20)
    info = StoreInfo(env.observation_space, env.codec.space, env_id=env_id, env_kwargs=kwargs)
    found = list(collect_episodes(env, Mistaken(env_id, env, hint), NUM_DEMONSTRATIONS, seed=DATA_SEED))
    env.close()
    num_good = sum(t.total_reward > 0.9 for t in found)
    if rewards_of_others:
        others = generator(DATA_SEED, "rewards").permutation(len(found))
        found = [
            dataclasses.replace(t, rewards=np.resize(np.append(found[i].rewards, np.zeros(len(t))), len(t)))
            for t, i in zip(found, others, strict=True)
        ]
    order = generator(DATA_SEED, "order").permutation(len(found))
    write_robomimic(file, info, [found[i] for i in order])
    return num_good


def settings_of(task: str, algo: str, seed: int) -> Settings:
    """Return what is set of a run, but for where it is written."""
    return {**COMMON, **OF_TASK[task], **ALGOS[algo][task], "train.seed": seed}


def successes(task: str, algo: str, seed: int, data: Path, folder: Path) -> int:
    """Train through the script, and return the successes of the last evaluation's episodes.

    Raises:
        RuntimeError: If the run ends in an error.
    """
    placed = {"experiment.output_dir": folder, "experiment.evaluation.every_n_epochs": 100}
    settings = {**settings_of(task, algo, seed), **placed}
    arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    name = f"{task}-{algo}-{seed}"
    if train.main(["--algo", algo, "--dataset", str(data), "--name", name, *arguments]):
        raise RuntimeError(f"{name} ended in an error; see above")
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return round(NUM_EPISODES * [row for row in rows if "eval/success_mean" in row][-1]["eval/success_mean"])


def result_file(task: str, algo: str, seed: int) -> Path:
    """Return where a run's result lies."""
    return FOLDER / f"{task}-{algo}-{seed}.json"


def has_result(task: str, algo: str, seed: int) -> bool:
    """Tell whether there is a result of the settings as they stand now."""
    file = result_file(task, algo, seed)
    return file.exists() and json.loads(file.read_text())["settings"] == settings_of(task, algo, seed)


def results(task: str, algo: str) -> list[dict[str, Any]]:
    """Return what is there, by seed."""
    return [json.loads(file.read_text()) for seed in SEEDS if (file := result_file(task, algo, seed)).exists()]


def rows_of_table() -> list[dict[str, str]]:
    """Return a row for each task and algorithm that has results."""
    rows = []
    for task, algo in ((task, algo) for task in TASKS for algo in ALGOS if task in ALGOS[algo]):
        if runs := results(task, algo):
            shares = [run["successes"] / run["episodes"] for run in runs]
            row = {"task": TASKS[task][0], "algorithm": algo, "success, mean of the seeds": f"{np.mean(shares):.3f}"}
            rows.append({**row, "by seed": ", ".join(f"{share:.3f}" for share in shares)})
    return rows


def all_runs(algos: Iterable[str]) -> Iterator[Run]:
    """Yield every run of some algorithms, a seed of each first."""
    chosen = list(algos)
    yield from ((task, algo, seed) for seed in SEEDS for task in TASKS for algo in chosen if task in ALGOS[algo])


def work(queue: Iterable[Run]) -> Iterator[Path]:
    """Train what has no result, one after the other, and yield the file of each."""
    good: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SEQRL_CACHE_DIR"] = str(folder / "cache")
        for task, algo, seed in queue:
            if has_result(task, algo, seed):
                continue
            data = folder / f"{task}.hdf5"
            where = provenance()
            with contextlib.redirect_stdout(io.StringIO()):
                if task not in good:
                    good[task] = write_demonstrations(task, data)
                found = successes(task, algo, seed, data, folder)
            content = {**where, "task": task, "algorithm": algo, "seed": seed}
            content |= {"successes": found, "episodes": NUM_EPISODES, "good_demonstrations": good[task]}
            FOLDER.mkdir(parents=True, exist_ok=True)
            write_json(result_file(task, algo, seed), {**content, "settings": settings_of(task, algo, seed)})
            yield result_file(task, algo, seed)


def main() -> None:
    """Run what is missing, and write the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--algos", nargs="+", choices=list(ALGOS), default=list(ALGOS), help="only these")
    p.add_argument("--table", action="store_true", help="train nothing")
    arguments = p.parse_args()
    torch.set_num_threads(1)
    for file in work([] if arguments.table else all_runs(arguments.algos)):
        print("recorded in", file, flush=True)
    text = table(rows_of_table())
    print(text)
    write_table(ROOT / "docs/offline.md", "offline agents", text)


if __name__ == "__main__":
    main()
