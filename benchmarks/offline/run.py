"""BC, IQL, TD3+BC and CQL here and in d3rlpy, on equal data, steps and networks: the table in ``docs/offline.md``.

pip install --no-deps d3rlpy==2.8.1 structlog dataclasses-json marshmallow typing-inspect mypy-extensions gym \
    scikit-learn narwhals scipy joblib threadpoolctl colorama click              # what only this benchmark needs
python benchmarks/offline/make_data.py --env Pendulum-v1 --steps 12000 --output data/pendulum
python benchmarks/offline/run.py --data data/pendulum/mixed.hdf5 --name pendulum-mixed --seeds 3
python benchmarks/offline/run.py --data data/pendulum/mixed.hdf5 --speed  # gradient steps per second, in turns
python benchmarks/offline/run.py --table                                 # only write the tables

Policies and critics have two hidden layers of 256, critics come in pairs, batches hold 64 transitions, and settings are
those of d3rlpy where it has them. There is no memory. 20,000 gradient steps (CQL 10,000), then 100 greedy episodes. A
run is a process with one thread; its result is written to ``benchmarks/results/offline/``, and one that is there is not
run again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))
sys.path.insert(0, str(HERE.parents[1]))

from record import RESULTS, provenance, table, write_table  # noqa: E402

from seqrl.core.files import write_json  # noqa: E402

FOLDER = RESULTS / "offline"
PAGE = HERE.parents[2] / "docs" / "offline.md"
ALGOS = {"bc": 20_000, "iql": 20_000, "td3_bc": 20_000, "cql": 10_000}
"""Algorithm -> gradient steps."""
LIBRARIES = ("seqrl", "d3rlpy")
BATCH, HIDDEN, EPISODES, RATE = 64, 256, 100, 3e-4
SPEED = RESULTS / "offline_speed.json"
SPEED_STEPS = {"bc": 4_000, "iql": 1_500, "td3_bc": 1_500, "cql": 400}
"""Algorithm -> gradient steps whose speed is measured."""
ROUNDS = 5
Act = Callable[[np.ndarray], np.ndarray]


def mean_return(env_id: str, act: Act, reset: Callable[[], None]) -> float:
    """Return the mean over greedy episodes, the same for everybody."""
    env, totals = gym.make(env_id), []
    for seed in range(EPISODES):
        obs, _ = env.reset(seed=50_000 + seed)
        reset()
        total, is_over = 0.0, False
        while not is_over:
            obs, reward, terminated, truncated, _ = env.step(act(np.asarray(obs, np.float32)))
            total += float(reward)
            is_over = terminated or truncated
        totals.append(total)
    return float(np.mean(totals))


def settings_here(algo: str) -> dict[str, Any]:
    """Return the section ``algo`` that means what d3rlpy does."""
    networks = {"num_layers": 2, "d_hidden": HIDDEN, "activation": "relu"}
    optimizer = {"learning_rate": RATE, "warmup_steps": 0, "weight_decay": 0.0, "method": "adam", "grad_clip": None}
    common = {"sequence_encoder": {"type": "identity"}, "actor": networks, "optimizer": optimizer}
    if algo == "bc":
        return {**common, "distribution": {"type": "deterministic"}, "optimizer": {**optimizer, "learning_rate": 1e-3}}
    common["critic"] = {**networks, "num_critics": 2}
    if algo == "td3_bc":
        optimizer["rates"] = {"actor": 0.5}  # TD3's policy moves at every second step; here and there half as fast
    if algo == "cql":
        optimizer["rates"] = {"actor": 1 / 3, "temperature": 1 / 3}
    return common


def learn_here(algo: str, data: Path, env_id: str, seed: int, num_steps: int) -> tuple[float, Act, Callable[[], None]]:
    """Return the CPU seconds of learning, and the policy."""
    import seqrl

    encoder = {"type": "mlp", "num_layers": 0, "d_output": None, "norm": "none", "normalize_inputs": False}
    values = {
        "experiment": {
            "output_dir": tempfile.mkdtemp(),
            "evaluation": {"enabled": False},
            "report": {"enabled": False},
            "logging": {"tensorboard": False, "progress_bar": False},
        },
        "env": {"id": env_id},
        "train": {
            "data": [{"path": str(data)}],
            "valid_fraction": 0.0,
            "window_steps": 1,
            "window_padding": "right",
            "sample_by": "transition",
            "batch_size": BATCH,
            "num_epochs": 1,
            "steps_per_epoch": num_steps,
            "seed": seed,
            "num_threads": 1,
        },
        "observation": {"use_prev_action": False, "use_prev_reward": False, "timestep_encoder": encoder},
        "algo": settings_here(algo),
    }
    experiment = seqrl.Experiment(seqrl.config_factory(algo, values))
    experiment.start()
    begun = time.process_time()
    experiment.learn()
    spent = time.process_time() - begun
    with contextlib.closing(gym.make(env_id)) as env:
        space = gym.spaces.Dict({"obs": env.observation_space})
        policy = seqrl.RolloutPolicy(experiment.algo, space, env.action_space)
    return spent, lambda obs: policy({"obs": obs}), policy.start_episode


def learn_there(algo: str, data: Path, env_id: str, seed: int, num_steps: int) -> tuple[float, Act, Callable[[], None]]:
    """Return the same of d3rlpy."""
    import d3rlpy
    import h5py

    d3rlpy.seed(seed)
    columns: dict[str, list[np.ndarray]] = {k: [] for k in ("obs", "actions", "rewards", "terminals", "timeouts")}
    with h5py.File(data) as file:
        for demo in file["data"].values():
            ends = np.zeros(len(demo["actions"]), bool)
            ends[-1] = True
            is_end = bool(demo["dones"][-1]) and not bool(demo["truncated"][-1])
            columns["obs"].append(np.asarray(demo["obs/obs"], np.float32))
            columns["actions"].append(np.asarray(demo["actions"], np.float32))
            columns["rewards"].append(np.asarray(demo["rewards"], np.float32))
            columns["terminals"].append(ends & is_end)
            columns["timeouts"].append(ends & (not is_end))
    flat = {k: np.concatenate(v) for k, v in columns.items()}
    space = gym.make(env_id).action_space
    dataset = d3rlpy.dataset.MDPDataset(
        flat["obs"], flat["actions"], flat["rewards"], flat["terminals"], timeouts=flat["timeouts"],
        action_space=d3rlpy.ActionSpace.CONTINUOUS,
    )  # fmt: skip
    scaler = d3rlpy.preprocessing.MinMaxActionScaler(minimum=space.low, maximum=space.high)
    factory = d3rlpy.models.VectorEncoderFactory([HIDDEN, HIDDEN])
    common = {"batch_size": BATCH, "action_scaler": scaler}
    twin = {**common, "actor_encoder_factory": factory, "critic_encoder_factory": factory}
    made = {
        "bc": lambda: d3rlpy.algos.BCConfig(**common, encoder_factory=factory),
        "iql": lambda: d3rlpy.algos.IQLConfig(**twin, value_encoder_factory=factory),
        "td3_bc": lambda: d3rlpy.algos.TD3PlusBCConfig(**twin, update_actor_interval=1, actor_learning_rate=RATE / 2),
        "cql": lambda: d3rlpy.algos.CQLConfig(**twin, alpha_learning_rate=0.0, initial_alpha=1.0),
    }[algo]()
    learner = made.create(device="cpu")
    begun = time.process_time()
    learner.fit(dataset, n_steps=num_steps, n_steps_per_epoch=num_steps, show_progress=False,
                logger_adapter=d3rlpy.logging.NoopAdapterFactory())  # fmt: skip
    spent = time.process_time() - begun
    return spent, lambda obs: learner.predict(obs[None])[0], lambda: None


def measure(library: str, algo: str, data: Path, seed: int, num_steps: int | None) -> dict[str, Any]:
    """Return what a run reached and what it cost, in this process; of fewer steps, only the cost."""
    import h5py
    import torch

    torch.set_num_threads(1)
    with h5py.File(data) as file:
        env_id = json.loads(file["data"].attrs["env_args"])["env_name"]
    learn = learn_here if library == "seqrl" else learn_there
    with contextlib.redirect_stdout(io.StringIO()):
        cpu_s, act, reset = learn(algo, data, env_id, seed, num_steps or ALGOS[algo])
    cost = {
        "gradient_steps": num_steps or ALGOS[algo],
        "steps_per_cpu_s": (num_steps or ALGOS[algo]) / cpu_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    reached = {} if num_steps else {"return": mean_return(env_id, act, reset)}
    return {"library": library, "algorithm": algo, "seed": seed, "env": env_id, **reached, **cost}


def result_file(name: str, algo: str, library: str, seed: int) -> Path:
    """Return where a run's result lies."""
    return FOLDER / f"{name.replace(' ', '_')}-{algo}-{library}-{seed}.json"


def rows_of_table() -> list[dict[str, str]]:
    """Return a row for each data set and algorithm."""
    found = [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))]
    rows = []
    for name, algo in dict.fromkeys((one["name"], one["algorithm"]) for one in found):
        here = [one for one in found if (one["name"], one["algorithm"]) == (name, algo)]
        of = {lib: [one for one in here if one["library"] == lib] for lib in LIBRARIES}
        if not all(of.values()):
            continue
        low, high = of["seqrl"][0]["scores"].values()
        row = {"data": name, "algorithm": algo}
        for lib, runs in of.items():
            scores = [100 * (one["return"] - low) / (high - low) for one in runs]
            row[f"score, {lib}"] = f"**{np.mean(scores):.0f}** " + " ".join(f"{score:.0f}" for score in scores)
        rows.append(row)
    return rows


def rows_of_speed() -> list[dict[str, str]]:
    """Return a row for each algorithm: medians of the rounds, and the median of their ratios."""
    rounds = json.loads(SPEED.read_text())["rounds"]
    rows = []
    for algo in SPEED_STEPS:
        of = {lib: [one for one in rounds if (one["algorithm"], one["library"]) == (algo, lib)] for lib in LIBRARIES}
        speeds = {lib: [one["steps_per_cpu_s"] for one in runs] for lib, runs in of.items()}
        ratios = [here / there for here, there in zip(*speeds.values(), strict=True)]
        row = {"algorithm": algo}
        row |= {f"gradient steps/s, {lib}": f"{np.median(own):.0f}" for lib, own in speeds.items()}
        row["ratio"] = f"**{np.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"
        row |= {f"peak MB, {lib}": f"{np.median([one['peak_mb'] for one in runs]):.0f}" for lib, runs in of.items()}
        rows.append(row)
    return rows


def measure_elsewhere(data: Path, library: str, algo: str, seed: int, num_steps: int = 0) -> dict[str, Any]:
    """Return what :func:`measure` does in a process of its own, with one thread."""
    command = [sys.executable, str(HERE), "--data", str(data), "--one", library, algo, str(seed), str(num_steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def measure_speed(data: Path) -> None:
    """Measure the libraries in turns, and write the result."""
    rounds = []
    for number in range(ROUNDS):
        for algo, num_steps in SPEED_STEPS.items():
            for library in LIBRARIES if number % 2 == 0 else LIBRARIES[::-1]:
                rounds.append(measure_elsewhere(data, library, algo, number, num_steps))
                print(algo, library, round(rounds[-1]["steps_per_cpu_s"]), flush=True)
    write_json(SPEED, {**provenance(), "data": data.parent.name, "load": os.getloadavg()[2], "rounds": rounds})


def main() -> None:
    """Run what is missing, the libraries in turns, and write the table."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, help="robomimic file; scores.json lies beside it")
    p.add_argument("--name", help="of the data, in the table")
    p.add_argument("--algos", nargs="+", choices=list(ALGOS), default=list(ALGOS), help="only these")
    p.add_argument("--seeds", type=int, default=3, help="seeds of each (default %(default)s)")
    p.add_argument("--table", action="store_true", help="run nothing")
    p.add_argument("--speed", action="store_true", help="measure speed alone, on these data")
    p.add_argument("--one", nargs=4, metavar=("LIBRARY", "ALGO", "SEED", "STEPS"), help=argparse.SUPPRESS)
    arguments = p.parse_args()
    if arguments.one:
        library, algo, seed, num_steps = arguments.one
        print(json.dumps(measure(library, algo, arguments.data, int(seed), int(num_steps) or None)))
        return
    if not (arguments.table or arguments.data):
        p.error("give --data, or --table")
    if arguments.speed:
        measure_speed(arguments.data)
    runs = [(algo, lib, seed) for seed in range(arguments.seeds) for algo in arguments.algos for lib in LIBRARIES]
    for algo, library, seed in [] if arguments.table or arguments.speed else runs:
        file = result_file(arguments.name, algo, library, seed)
        if file.exists():
            continue
        scores = json.loads((arguments.data.parent / "scores.json").read_text())
        found = measure_elsewhere(arguments.data, library, algo, seed)
        content = {**provenance(), "name": arguments.name, "scores": scores, **found}
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_json(file, content)
        print(file.name, round(content["return"], 1), round(content["steps_per_cpu_s"]), flush=True)
    if rows := rows_of_table():
        print(table(rows))
        write_table(PAGE, "d3rlpy", table(rows))
    if SPEED.exists():
        print(table(rows_of_speed()))
        write_table(PAGE, "speed beside d3rlpy", table(rows_of_speed()))


if __name__ == "__main__":
    main()
