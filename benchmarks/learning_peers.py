"""What a user would pick instead of the one setting: stable-baselines3 on some rows of the table in docs/learning.md.

pip install --no-deps stable-baselines3==2.9.2 sb3-contrib==2.9.2 pandas cloudpickle    # what only this benchmark needs
python benchmarks/learning_peers.py                   # whatever has no result yet; may be stopped and started again
python benchmarks/learning_peers.py --rows cartpole --seeds 3
python benchmarks/learning_peers.py --table           # only write the table

DQN, SAC and RecurrentPPO (an LSTM) with the settings of the RL Zoo, RecurrentPPO with those of CartPole without speeds.
Each runs twice: for as many environment steps as the row's budget, and for as many as take the CPU seconds of seqrl's
runs. 100 greedy episodes at the end. A run is a process with one thread; its result is written to
``benchmarks/results/learning_peers/``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from learn import DEFAULT_ROWS, results
from record import RESULTS, provenance, table, write_table

from seqrl.core.files import write_json
from seqrl.envs.make import make_env

ROOT = Path(__file__).parents[1]
FOLDER = RESULTS / "learning_peers"
EPISODES = 100
RECURRENT_PPO: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": lambda left: 1e-3 * left,
    "clip_range": lambda left: 0.2 * left,
}
DQN: dict[str, Any] = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}
ROWS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "cartpole": ("CartPole-v1", "DQN", 1, DQN),
    "pendulum": ("Pendulum-v1", "SAC", 1, {"learning_rate": 1e-3}),
    "repeat_previous": ("popgym-RepeatPreviousEasy-v0", "RecurrentPPO", 8, RECURRENT_PPO),
    "position_cartpole": ("popgym-PositionOnlyCartPoleEasy-v0", "RecurrentPPO", 8, RECURRENT_PPO),
    "half_cheetah": ("HalfCheetah-v5", "SAC", 1, {"learning_starts": 10_000}),
    "reach": ("Meta-World/reach-v3", "SAC", 1, {"learning_starts": 10_000}),
}
"""Row of benchmarks/learn.py --defaults -> environment, algorithm, environments at once, settings."""


def build(row: str, seed: int) -> Any:
    """Return the learner of a row."""
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env

    env_id, name, num_envs, settings = ROWS[row]
    kind = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
    policy = "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"
    made = make_vec_env(lambda: make_env(env_id), num_envs, seed=seed)
    return kind(policy, made, seed=seed, device="cpu", **settings)


def played(env_id: str, learner: Any) -> dict[str, float]:
    """Return the mean return of greedy episodes, and the share that succeeds where the environment tells."""
    env, totals, successes = make_env(env_id), list[float](), list[bool]()
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=50_000 + episode)
        state, begins, total, is_over = None, True, 0.0, False
        has_succeeded, tells = False, False
        while not is_over:
            action, state = learner.predict(obs, state=state, episode_start=np.array([begins]), deterministic=True)
            obs, reward, terminated, truncated, info = env.step(action)
            has_succeeded, tells = has_succeeded or bool(info.get("success")), tells or "success" in info
            begins, is_over = False, terminated or truncated
            total += float(reward)
        totals.append(total)
        successes += [has_succeeded] * tells
    return {"return": float(np.mean(totals)), **({"success": float(np.mean(successes))} if successes else {})}


def measure(row: str, seed: int, num_steps: int) -> dict[str, Any]:
    """Return what a run reached and what it cost, in this process."""
    import torch

    torch.set_num_threads(1)
    learner = build(row, seed)
    begun = time.process_time()
    learner.learn(num_steps)
    cpu_s = time.process_time() - begun
    return {**played(ROWS[row][0], learner), "env_steps": learner.num_timesteps, "cpu_s": round(cpu_s, 1)}


def result_file(row: str, kind: str, seed: int) -> Path:
    """Return where a run's result lies; kind is ``steps`` or ``seconds``."""
    return FOLDER / f"{row}-{kind}-{seed}.json"


def run(row: str, seed: int, kind: str, num_steps: int) -> dict[str, Any]:
    """Return a result, from its file or from a process of its own."""
    file = result_file(row, kind, seed)
    if not file.exists():
        command = [sys.executable, __file__, "--one", row, str(seed), str(num_steps)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        content = {**provenance(), "row": row, "algorithm": ROWS[row][1], "seed": seed, "kind": kind}
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_json(file, {**content, **json.loads(printed.splitlines()[-1])})
        print(file.name, printed.splitlines()[-1], flush=True)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def told(values: list[float]) -> str:
    """Return the mean, and each seed."""
    show: Callable[[float], str] = lambda v: f"{v:.0f}" if abs(v) >= 20 else f"{v:.2f}"  # noqa: E731
    return f"**{show(float(np.mean(values)))}** " + " ".join(map(show, values))


def rows_of_table() -> list[dict[str, str]]:
    """Return a line for each row of which both have results."""
    lines = []
    for row, (_, name, _, _) in ROWS.items():
        own = results(f"defaults/{row}", DEFAULT_ROWS[f"defaults/{row}"].main)
        kinds = {
            k: [json.loads(f.read_text()) for f in sorted(FOLDER.glob(f"{row}-{k}-*.json"))]
            for k in ("steps", "seconds")
        }
        if not own or not kinds["steps"]:
            continue
        line = {"task": DEFAULT_ROWS[f"defaults/{row}"].task, "steps": f"{own[0]['budget'] // 1000}k"}
        line["seqrl"] = told([one["result"] for one in own])
        line["CPU s"] = f"{np.mean([one['cpu_s'] for one in own if 'cpu_s' in one]):.0f}"
        line["instead"] = name
        line["equal steps"] = told([one.get("success", one["return"]) for one in kinds["steps"]])
        line["its CPU s"] = f"{np.mean([one['cpu_s'] for one in kinds['steps']]):.0f}"
        of_seconds = [one.get("success", one["return"]) for one in kinds["seconds"]]
        line["equal CPU seconds"] = told(of_seconds) if of_seconds else "not run"
        steps = [one["env_steps"] / 1000 for one in kinds["seconds"]]
        line["its steps"] = f"{np.mean(steps):.0f}k" if steps else ""
        lines.append(line)
    return lines


def main() -> None:
    """Run what is missing, and write the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), help="only these")
    p.add_argument("--seeds", type=int, default=3, help="seeds of each (default %(default)s)")
    p.add_argument(
        "--kinds", nargs="+", choices=["steps", "seconds"], default=["steps", "seconds"], help="equal to what"
    )
    p.add_argument("--table", action="store_true", help="train nothing")
    p.add_argument("--one", nargs=3, metavar=("ROW", "SEED", "STEPS"), help=argparse.SUPPRESS)
    arguments = p.parse_args()
    if arguments.one:
        row, seed, num_steps = arguments.one
        print(json.dumps(measure(row, int(seed), int(num_steps))))
        return
    for seed in range(0 if arguments.table else arguments.seeds):
        for row in arguments.rows:
            budget = DEFAULT_ROWS[f"defaults/{row}"].budget
            own = results(f"defaults/{row}", DEFAULT_ROWS[f"defaults/{row}"].main)
            seconds = [one["cpu_s"] for one in own if "cpu_s" in one]
            first = run(row, seed, "steps", budget)
            if seconds and "seconds" in arguments.kinds:
                run(row, seed, "seconds", round(first["env_steps"] * float(np.mean(seconds)) / first["cpu_s"]))
    print(table(rows_of_table()))
    write_table(ROOT / "docs/learning.md", "stable-baselines3", table(rows_of_table()))


if __name__ == "__main__":
    main()
