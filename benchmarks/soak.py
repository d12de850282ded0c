"""A long run under bad conditions: what memory, descriptors, threads and disk do over time.

python benchmarks/soak.py --hours 8 --gb 2 --folder /tmp/soak          # as long as it is meant to run
python benchmarks/soak.py --hours 0.2 --gb 0.02 --kill-minutes 2 --folder /tmp/soak

A T-Maze with 12 kB of noise in each observation is learned online with ``async`` environments and a replay of
``--gb``, under ``ulimit -n 1024``; an environment raises every 1,000 steps. Every ``--kill-minutes`` the run is killed
(-9) and goes on with ``--resume``. The summary compares the medians of the second and of the last quarter of the
samples, and says how often the replay was turned over and how well the policy does. ``samples.jsonl`` has every sample.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import RESULTS, provenance, table

ROOT = Path(__file__).parents[1]
PLUGIN = '''
import gymnasium as gym
import numpy as np
import seqrl.envs

class Noisy(gym.Wrapper):
    """A T-Maze with a large part of the observation that says nothing; it raises every 1,000 steps."""

    def __init__(self, env):
        super().__init__(env)
        noise = gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.observation_space = gym.spaces.Dict({"maze": env.observation_space, "noise": noise})
        self.steps = 0

    def seen(self, obs):
        return {"maze": obs, "noise": np.full((64, 64, 3), self.steps % 256, np.uint8)}

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        return self.seen(obs), info

    def step(self, action):
        self.steps += 1
        if self.steps % 1000 == 0:
            raise RuntimeError("the simulator failed")
        obs, *rest = self.env.step(action)
        return self.seen(obs), *rest

def make(**kwargs):
    return Noisy(gym.make("seqrl/TMazePassive-v0", corridor_length=5, **kwargs))

gym.register("soak/Maze-v0", make)
'''
NETWORKS = {"d_hidden": 32, "num_layers": 1}


def run_file(folder: Path, gb: float) -> dict[str, Any]:
    """Return the config of the run."""
    return {
        "algo_name": "actor_critic",
        "plugins": [str(folder / "soak_plugin.py")],
        "experiment": {
            "name": "run", "output_dir": str(folder), "report": {"enabled": False},
            "evaluation": {"episodes": 20, "num_envs": 2, "every_n_epochs": 10},
            "logging": {"progress_bar": False},
        },
        "env": {"id": "soak/Maze-v0", "vectorization": "async", "max_restarts": 10**9},
        "observation": {"keys": ["maze"], "timestep_encoder": {"type": "mlp", "d_hidden": 32, "d_output": 32}},
        "collect": {
            "steps_per_epoch": 200, "num_envs": 2, "replay": {"max_gb": gb, "min_transitions": 100},
            "exploration": {"start": 0.2, "end": 0.02, "anneal_steps": 3000},
        },
        "train": {
            "window_steps": 7, "batch_size": 16, "num_epochs": 10**6, "steps_per_epoch": 20, "num_threads": 1,
            "device": "cpu",
        },
        "algo": {
            "sequence_encoder": {"type": "gru", "d_hidden": 32, "d_output": 32, "num_layers": 1}, "actor": NETWORKS,
            "critic": NETWORKS, "optimizer": {"learning_rate": 1e-3, "warmup_steps": 50},
        },
    }  # fmt: skip


def started(folder: Path, *, resume: bool) -> subprocess.Popen[bytes]:
    """Start the run, or go on with it, with few files allowed."""
    command = [sys.executable, "-m", "seqrl", "train", "--config", str(folder / "run.json")]
    command += ["--resume"] if resume else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))

    with open(folder / "console.txt", "ab") as said:
        return subprocess.Popen(
            command, stdout=said, stderr=said, env=environment, preexec_fn=limited, start_new_session=True
        )


def sample(pid: int, run: Path) -> dict[str, float]:
    """Return what a run holds now: megabytes of memory and disk, descriptors, threads."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = [file for file in run.rglob("*") if file.is_file()]
    return {
        "memory_mb": int(status["VmRSS"].split()[0]) / 1024,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "replay_mb": sum(f.stat().st_size for f in files if "replay" in f.parts) / 1e6,
        "other_disk_mb": sum(f.stat().st_size for f in files if "replay" not in f.parts) / 1e6,
    }


def last_row(run: Path, key: str) -> dict[str, Any]:
    """Return the last line of the metrics that has a key; empty if there is none."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
    return next((row for row in reversed(rows) if key in row), {})


def soak(folder: Path, hours: float, kill_minutes: float, every_s: float) -> list[dict[str, float]]:
    """Run, kill, go on, and return the samples."""
    samples: list[dict[str, float]] = []
    end, kill, kills = time.time() + 3600 * hours, time.time() + 60 * kill_minutes, 0
    process = started(folder, resume=False)
    while time.time() < end:
        time.sleep(every_s)
        if process.poll() is not None:
            raise SystemExit(f"the run ended with {process.returncode}: see {folder / 'console.txt'}")
        if time.time() > kill:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills, kill = kills + 1, time.time() + 60 * kill_minutes
            process = started(folder, resume=True)
            continue
        try:
            samples.append({"time": time.time(), "kills": kills, **sample(process.pid, folder / "run")})
        except OSError:  # a file was evicted, or the run has only just begun
            continue
        with open(folder / "samples.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(samples[-1]) + "\n")
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(120)
    return samples


def compared(samples: list[dict[str, float]]) -> list[dict[str, str]]:
    """Return a row for each thing that was sampled: medians of the second and of the last quarter, and their ratio."""
    rows = []
    for key in [k for k in samples[0] if k not in ("time", "kills")]:
        quarters = np.array_split(np.array([one[key] for one in samples]), 4)
        before, after = float(np.median(quarters[1])), float(np.median(quarters[3]))
        row = {"what": key, "second quarter": f"{before:,.1f}", "last quarter": f"{after:,.1f}"}
        rows.append({**row, "ratio": f"{after / before:.3f}"})
    return rows


def main() -> None:
    """Run, and write what came of it."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hours", type=float, default=8.0)
    p.add_argument("--gb", type=float, default=2.0, help="size of the replay (default %(default)s)")
    p.add_argument("--kill-minutes", type=float, default=30.0, help="between kills (default %(default)s)")
    p.add_argument("--every-s", type=float, default=2.0, help="between samples (default %(default)s)")
    p.add_argument("--folder", type=Path, required=True, help="new")
    arguments = p.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True)
    (folder / "soak_plugin.py").write_text(PLUGIN)
    (folder / "run.json").write_text(json.dumps(run_file(folder, arguments.gb)))
    samples = soak(folder, arguments.hours, arguments.kill_minutes, arguments.every_s)
    rows = compared(samples)
    told, score = (last_row(folder / "run", key) for key in ("progress/env_steps", "eval/success_mean"))
    steps = told.get("progress/env_steps", 0.0)
    content = {
        **provenance(),
        "hours": arguments.hours,
        "replay_gb": arguments.gb,
        "kills": samples[-1]["kills"],
        "env_steps": steps,
        "turned_over": steps * 64 * 64 * 3 / 1e9 / arguments.gb,
        "success": score.get("eval/success_mean"),
        "rows": rows,
    }
    print(table(rows))
    print({k: v for k, v in content.items() if k != "rows"})
    (RESULTS / "soak.json").write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
