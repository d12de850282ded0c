"""Collectors that share a folder beside Ray's actors, and how far each goes: the tables in ``docs/scaling.md``.

python benchmarks/collectors.py                    # about half an hour on two cores that do nothing else
python benchmarks/collectors.py --learn            # what is learned from Ray's actors; may be stopped and started again

No learner learns: this process publishes weights once a second, and counts what is reported. Kinds take turns. The
model knows one actor only: its speed, its processor seconds, and those of the process that takes and writes what it
brings. What it predicts for more of them stands beside what was measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from record import RESULTS, provenance, record, table, write_table
from run_queue import run_python

from seqrl.configs import config_factory
from seqrl.core.files import write_json
from seqrl.training.experiment import Experiment
from seqrl.training.run_folder import RunFolder
from seqrl.training.weights import Publisher, reported_progress
from tests.distributed.numbered_episodes import __file__ as PLUGIN

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
TICK = os.sysconf("SC_CLK_TCK")
ENVS: dict[str, dict[str, Any]] = {
    "CartPole": {"id": "CartPole-v1"},
    "5 ms a step": {"id": "NumberedEpisodes-v0", "kwargs": {"sleep_s": 0.005}},
}
NUM_ENVS = {"CartPole": 12, "5 ms a step": 4}
COUNTS = (1, 2, 4)
KINDS = ("folder", "ray")
CORES = os.cpu_count() or 1
GIGABIT = 125e6
"""Bytes per second."""


def config_of(folder: Path, env: str, kind: str, count: int) -> Any:
    """Return the run file: a GRU of 64, as in cartpole.json."""
    return config_factory(
        "actor_critic",
        {
            "experiment": {"output_dir": str(folder), "name": "run", "report": {"enabled": False}},
            "env": ENVS[env],
            "plugins": [str(PLUGIN)],
            "train": {"window_steps": 32, "steps_per_epoch": 1, "device": "cpu"},
            "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 64, "d_output": 64}, "actor": {"d_hidden": 64}},
            "collect": {
                "collectors": kind if kind == "ray" else "local",
                "ray": {"num_actors": count},
                "num_envs": NUM_ENVS[env],
                "steps_per_epoch": 100 if env == "CartPole" else 20,
                "trajectory_steps": 50,
                "replay": {"max_gb": 1.0},
            },
        },
    )


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the processor time of these processes so far, without their children."""
    total = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICK
    return total


def actors_of(pid: int) -> list[int]:
    """Return the processes of Ray's actors that a process commands."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    found = {pid}
    while more := {int(p) for p, parent, _ in rows if int(parent) in found} - found:
        found |= more
    return [int(p) for p, _, command in rows if int(p) in found and "_Remote" in command]


def started(run_file: Path) -> subprocess.Popen[bytes]:
    """Start a collector of a run."""
    command = [sys.executable, "-m", "seqrl", "train", "--config", str(run_file), "--role", "collect"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(env: str, kind: str, count: int, seconds: float) -> dict[str, float]:
    """Return steps per second of ``count`` collectors, and what a step costs; all of them have begun by then."""
    with tempfile.TemporaryDirectory() as made:
        config = config_of(Path(made), env, kind, count)
        run = Path(made) / "run"
        folder = RunFolder(run, config)
        publisher = Publisher(run)
        other = Experiment(config_of(Path(made) / "other", env, "folder", 1), verbose=False)
        other.start()
        weights = other.algo.serialize()
        other.close()
        publisher.publish(weights, 0)
        write_json(Path(made) / "run.json", config.to_json())
        processes = [started(Path(made) / "run.json") for _ in range(1 if kind == "ray" else count)]

        def steps() -> int:
            return sum(sum(report["env_steps"].values()) for report in reported_progress(run))

        def all_began() -> bool:
            return len(actors_of(processes[0].pid) if kind == "ray" else reported_progress(run)) == count

        try:
            while not (all_began() and steps()):
                time.sleep(0.5)
            time.sleep(5)
            workers = actors_of(processes[0].pid) if kind == "ray" else [p.pid for p in processes]
            taking = [processes[0].pid] if kind == "ray" else []
            before, began = steps(), time.perf_counter()
            spent = cpu_seconds(workers), cpu_seconds(taking)
            for version in range(1, round(seconds) + 1):
                publisher.publish(weights, version)
                time.sleep(max(0.0, began + version - time.perf_counter()))
            elapsed, done = time.perf_counter() - began, steps() - before
            stored = sum(f.stat().st_size for f in (run / "replay").rglob("*") if f.is_file())
            return {
                "steps_per_s": done / elapsed,
                "worker_cpu_us": 1e6 * (cpu_seconds(workers) - spent[0]) / done,
                "taking_cpu_us": 1e6 * (cpu_seconds(taking) - spent[1]) / done,
                "bytes_per_step": stored / max(steps(), 1),
                "weight_bytes": float((run / "published" / "weights.safetensors").stat().st_size),
            }
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait()
            folder.release()


def predicted(one: dict[str, float], count: int) -> float:
    """Return steps per second of ``count`` collectors, from what one did: waiting adds up, processor time is shared."""
    per_step = (one["worker_cpu_us"] + one["taking_cpu_us"]) / 1e6
    return min(count * one["steps_per_s"], CORES / per_step)


def limits(one: dict[str, float]) -> dict[str, str]:
    """Return what ends the growth with cores enough for all: the process that takes, or a network of 1 Gbit/s."""
    taking = 1e6 / one["taking_cpu_us"]
    network = GIGABIT / one["bytes_per_step"]
    return {
        "one actor, steps/s": f"{one['steps_per_s']:,.0f}",
        "actor, CPU us a step": f"{one['worker_cpu_us']:,.0f}",
        "taking and writing, CPU us a step": f"{one['taking_cpu_us']:,.1f}",
        "bytes a step": f"{one['bytes_per_step']:,.0f}",
        "actors until taking is the limit": f"{taking / one['steps_per_s']:,.0f}",
        "actors until 1 Gbit/s is": f"{network / one['steps_per_s']:,.0f}",
    }


def learn() -> None:
    """Train two run files with actors on three seeds, whatever has no result yet, and write the table."""
    folder, found = RESULTS / "collectors_learn", {}
    for count, seed, template in itertools.product((2, 4), range(3), ("tmaze_online", "cartpole")):
        file = folder / f"{template}-{count}-{seed}.json"
        if not file.exists():
            where = provenance()
            with tempfile.TemporaryDirectory() as made:
                sets = [
                    f"train.seed={seed}", f"collect.ray.num_actors={count}", f"experiment.output_dir={made}",
                    "experiment.report.enabled=false", "train.num_threads=1",
                ]  # fmt: skip
                named = ["--config", f"{template}.json", "--collectors", "ray", "--name", "run"]
                sets = [word for entry in sets for word in ("--set", entry)]
                run_python(["-m", "seqrl", "train", *named, *sets], Path(made) / "log.txt")
                lines = [json.loads(line) for line in (Path(made) / "run" / "metrics.jsonl").read_text().splitlines()]
            last = [line for line in lines if "eval/return_mean" in line][-1]
            folder.mkdir(exist_ok=True)
            score = last["eval/success_mean" if template == "tmaze_online" else "eval/return_mean"]
            write_json(file, {**where, "score": score, "env_steps": last["progress/env_steps"]})
            print(file.stem, score, last["progress/env_steps"], flush=True)
        found[template, count, seed] = json.loads(file.read_text())
    rows = [
        {"run file": f"`{template}.json`", "actors": count}
        | {f"seed {seed}": f"{found[template, count, seed]['score']:.4g}" for seed in range(3)}
        | {"environment steps": f"{min(steps):,.0f} to {max(steps):,.0f}"}
        for template in ("tmaze_online", "cartpole")
        for count in (2, 4)
        if (steps := [found[template, count, seed]["env_steps"] for seed in range(3)])
    ]
    print(table(rows))
    write_table(PAGE, "learned", table(rows))


def main() -> None:
    """Measure in turns, write the tables, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learn", action="store_true", help="train instead of measuring speed")
    args = parser.parse_args()
    if args.learn:
        learn()
        return
    seen: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.rounds):
        for env in ENVS:
            for count in COUNTS:
                for kind in KINDS:
                    found = measure(env, kind, count, args.seconds)
                    seen.setdefault(f"{env}, {kind}, {count}", []).append(found)
                    print(env, kind, count, {k: round(v, 1) for k, v in found.items()}, flush=True)
    middle = {
        name: {key: statistics.median(one[key] for one in found) for key in found[0]} for name, found in seen.items()
    }
    rows = []
    for env in ENVS:
        for count in COUNTS:
            ray, folder = middle[f"{env}, ray, {count}"], middle[f"{env}, folder, {count}"]
            ratios = [
                a["steps_per_s"] / b["steps_per_s"]
                for a, b in zip(seen[f"{env}, ray, {count}"], seen[f"{env}, folder, {count}"], strict=True)
            ]
            rows.append({
                "environment": f"{NUM_ENVS[env]} x {env}", "collectors": count,
                "folder, steps/s": f"{folder['steps_per_s']:,.0f}", "Ray, steps/s": f"{ray['steps_per_s']:,.0f}",
                "Ray : folder": f"{statistics.median(ratios):.2f}",
                "Ray, predicted": f"{predicted(middle[f'{env}, ray, 1'], count):,.0f}",
                "off by": f"{100 * (predicted(middle[f'{env}, ray, 1'], count) / ray['steps_per_s'] - 1):+.0f} %",
            })  # fmt: skip
    print(table(rows))
    write_table(PAGE, "collectors", table(rows))
    growth = [{"environment": env, **limits(middle[f"{env}, ray, 1"])} for env in ENVS]
    print(table(growth))
    write_table(PAGE, "limits", table(growth))
    print("recorded in", record("collectors", {"load": os.getloadavg(), "seconds": args.seconds, "measured": seen}))


if __name__ == "__main__":
    main()
