"""Behaviour cloning on one HDF5 file: gradient steps per second of every memory, and seqrl against robomimic 0.3.

Two pairs have the same networks, batches and (within 0.1 %) numbers of weights: an MLP on single steps, and a two-layer
LSTM on windows of 10. Every side runs in a process of its own and trains by its library's own loop and defaults; all
are alive together, take turns in every repeat, and the medians are reported. The time to the first batch is that from
the start of a process, imports and the model included; seqrl has the file in its cache ("warm"), or not yet ("cold"),
while robomimic reads it into memory each time, as its default is.

robomimic needs an interpreter of its own (``--robomimic-python``); without it, seqrl is measured alone. It is made by
``pip install torch torchvision h5py psutil tqdm termcolor six tensorboardX imageio imageio-ffmpeg matplotlib`` and then
``pip install --no-deps robomimic==0.3.0``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from record import record, table

from seqrl.core.types import Trajectory
from seqrl.data import StoreInfo
from seqrl.data.writers.robomimic import write_robomimic

OBS = {"object": 14, "robot0_eef_pos": 3, "robot0_eef_quat": 4, "robot0_gripper_qpos": 2}
ACTION, BATCH, WINDOW, WIDTH = 7, 100, 10, 400
HERE = Path(__file__).parent
ENCODER = {"type": "mlp", "num_layers": 0, "d_output": sum(OBS.values()), "norm": "none", "normalize_inputs": False}
MEMORIES: dict[str, dict[str, Any]] = {
    "identity": {},
    "feedforward": {"d_model": WIDTH, "d_ff": 4 * WIDTH, "num_layers": 2},
    "gru": {"d_hidden": WIDTH, "num_layers": 2, "d_output": None},
    "lstm": {"d_hidden": WIDTH, "num_layers": 2, "d_output": None, "norm": "none"},
    "transformer": {"d_model": WIDTH, "d_ff": 4 * WIDTH, "num_layers": 2},
    "mamba": {"d_model": WIDTH, "num_layers": 2},
}


def write_data(path: Path, episodes: int) -> None:
    """Write episodes of 100 to 200 steps, as large as robomimic's "lift"; actions are a function of the inputs."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(sum(OBS.values()), ACTION)) / 3

    def one() -> Trajectory:
        steps = int(rng.integers(100, 201))
        obs = rng.normal(size=(steps + 1, sum(OBS.values()))).cumsum(0).astype(np.float32) / 10
        parts = np.split(obs, np.cumsum(list(OBS.values()))[:-1], axis=1)
        last = np.arange(steps) == steps - 1
        return Trajectory(
            obs=dict(zip(OBS, parts, strict=True)),
            actions=np.tanh(obs[:-1] @ matrix).astype(np.float32),
            rewards=last.astype(np.float32),
            terminated=last,
            truncated=np.zeros(steps, bool),
        )

    boxes = spaces.Dict({k: spaces.Box(-np.inf, np.inf, (n,), np.float32) for k, n in OBS.items()})
    info = StoreInfo(boxes, spaces.Box(-1.0, 1.0, (ACTION,), np.float32))
    write_robomimic(path, info, (one() for _ in range(episodes)))


def tasks(dataset: Path, threads: int) -> dict[str, dict[str, Any]]:
    """Return name -> what to train; those of robomimic begin with its name."""
    common = {"dataset": str(dataset), "batch_size": BATCH, "threads": threads}
    head = {"actor": {"num_layers": 0}, "distribution": {"type": "deterministic"}, "optimizer": {"weight_decay": 0.0}}

    def ours(memory: str, window: int, encoder: dict[str, Any]) -> dict[str, Any]:
        algo = {"sequence_encoder": {"type": memory, **MEMORIES[memory]}, **head}
        return {**common, "window": window, "observation": {"timestep_encoder": encoder}, "algo": algo}

    def theirs(window: int, widths: list[int]) -> dict[str, Any]:
        options = {"obs_keys": list(OBS), "widths": widths, "is_rnn": window > 1, "d_hidden": WIDTH}
        return {**common, "window": window, **options}

    wide = {**ENCODER, "num_layers": 1, "d_hidden": 1024, "d_output": 1024, "activation": "relu"}
    return {
        "seqrl MLP": ours("identity", 1, wide),
        "robomimic MLP": theirs(1, [1024, 1024]),
        **{f"seqrl {memory}": ours(memory, WINDOW, ENCODER) for memory in MEMORIES},
        "robomimic LSTM": theirs(WINDOW, []),
    }


PAIRS = {"MLP": ("seqrl MLP", "robomimic MLP"), "LSTM": ("seqrl lstm", "robomimic LSTM")}


class Side:
    """A process that trains when it is told to."""

    def __init__(self, name: str, task: dict[str, Any], robomimic: str | None, cache: Path) -> None:
        is_theirs = name.startswith("robomimic")
        script = HERE / ("bc_robomimic.py" if is_theirs else "bc_seqrl.py")
        environment = {**os.environ, "OMP_NUM_THREADS": str(task["threads"]), "SEQRL_CACHE_DIR": str(cache)}
        if is_theirs:
            environment.pop("PYTHONPATH", None)
        begin = time.perf_counter()
        self._process = subprocess.Popen(
            [robomimic if is_theirs and robomimic else sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.facts = self.ask(json.dumps(task))
        self.first_batch_s = time.perf_counter() - begin

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line, and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(self._process.communicate()[1][-2000:])
        return dict(json.loads(answer))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def first_batches(
    todo: dict[str, dict[str, Any]], robomimic: str | None, cache: Path, repeats: int
) -> dict[str, list[float]]:
    """Return the seconds from a process's start to its first batch, warm and cold, by turns."""
    found: dict[str, list[float]] = {}
    names = [name for pair in PAIRS.values() for name in pair if name in todo]
    for _ in range(repeats + 1):  # the first turn brings files and libraries into the page cache
        for name in names:
            states = ("cold", "warm") if name.startswith("seqrl") else ("every time",)
            for state in states:
                if state == "cold":
                    shutil.rmtree(cache, ignore_errors=True)
                side = Side(name, todo[name], robomimic, cache)
                side.close()
                found.setdefault(f"{name}, {state}", []).append(side.first_batch_s)
    return {name: seconds[1:] for name, seconds in found.items()}


def train(todo: dict[str, dict[str, Any]], args: argparse.Namespace, cache: Path) -> dict[str, dict[str, Any]]:
    """Return name -> what was seen; the sides take turns."""
    sides = {name: Side(name, task, args.robomimic_python, cache) for name, task in todo.items()}
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    steps = {}
    for name, side in sides.items():
        speed = side.ask(str(args.warmup_steps))["steps_per_s"]
        steps[name] = max(10, round(args.seconds * speed))
    for repeat in range(args.repeats):
        for name, side in sides.items():
            seen[name].append(side.ask(str(steps[name])))
            print(f"repeat {repeat + 1}, {name}: {seen[name][-1]['steps_per_s']:.1f}/s", file=sys.stderr, flush=True)
    for side in sides.values():
        side.close()
    return {
        name: {
            **sides[name].facts,
            "steps_per_s": statistics.median(r["steps_per_s"] for r in rows),
            "steps_per_s_by_repeat": [round(r["steps_per_s"], 2) for r in rows],
            "wait_share": statistics.median(r["wait_share"] for r in rows),
            "last_loss": next((r["loss"] for r in reversed(rows) if r["loss"] is not None), None),
        }
        for name, rows in seen.items()
    }


def claims(trained: dict[str, dict[str, Any]], first: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return what the figures say of the library's claims, where both sides were measured."""
    rows = []
    for what, (ours, theirs) in PAIRS.items():
        if theirs not in trained:
            continue
        pairs = zip(trained[ours]["steps_per_s_by_repeat"], trained[theirs]["steps_per_s_by_repeat"], strict=True)
        speed = statistics.median(a / b for a, b in pairs)
        rows.append((f"training {what}, seqrl over robomimic", speed, ">= 1", speed >= 1))
        slow = statistics.median(first[f"{theirs}, every time"])
        for state in ("warm", "cold"):
            ratio = slow / statistics.median(first[f"{ours}, {state}"])
            rows.append((f"first batch {what}, robomimic over seqrl {state}", ratio, ">= 3", ratio >= 3))
    return [{"claim": c, "ratio": round(r, 2), "bound": b, "holds": bool(h)} for c, r, b, h in rows]


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robomimic-python", default=None, metavar="PATH", help="interpreter that has robomimic 0.3")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="per repeat and side")
    parser.add_argument("--warmup-steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output-name", default="bc", help="name of the result file")
    return parser.parse_args()


def main() -> None:
    """Measure, print, record."""
    args = arguments()
    with tempfile.TemporaryDirectory() as name:
        dataset, cache = Path(name) / "data.hdf5", Path(name) / "cache"
        write_data(dataset, args.episodes)
        megabytes = dataset.stat().st_size / 1e6
        todo = tasks(dataset, args.threads)
        if args.robomimic_python is None:
            todo = {n: task for n, task in todo.items() if n.startswith("seqrl")}
            print("not run: robomimic, which needs --robomimic-python PATH")
        first = first_batches(todo, args.robomimic_python, cache, args.repeats)
        trained = train(todo, args, cache)
    claimed = claims(trained, first)
    rows = [
        {
            "side": name,
            "weights": f"{row['num_parameters']:,}",
            "gradient steps/s": f"{row['steps_per_s']:.1f}",
            "waiting for data": f"{row['wait_share']:.1%}",
            "last loss": "-" if row["last_loss"] is None else f"{row['last_loss']:.3g}",
        }
        for name, row in trained.items()
    ]
    starts = [{"side": name, "first batch (s)": f"{statistics.median(s):.2f}"} for name, s in first.items()]
    print("\n\n".join(table(part) for part in (rows, starts, claimed) if part))
    setup = {"batch": BATCH, "window": WINDOW, "episodes": args.episodes, "megabytes": megabytes}
    figures = {"threads": args.threads, "training": trained, "first_batch_s": first, "claims": claimed}
    print("recorded in", record(args.output_name, {**setup, **figures}))


if __name__ == "__main__":
    main()
