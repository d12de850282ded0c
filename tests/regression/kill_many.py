"""Kills runs at random moments, goes on with them, and looks at what they leave.

    python tests/regression/kill_many.py --offline 100 --online 100 --folder /tmp/kills

An offline run has to end exactly as one that nobody kills; an online one has to count right, and to keep whatever it
had when a checkpoint was saved. The same command goes on counting where it was stopped (``counts.json``).

Each run is a fork of this process, which has everything imported but has started no thread, so that a run begins
within milliseconds. Half of the kills come after a random time, half at or soon after a random operation on a file.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

import seqrl.training.experiment  # noqa: F401  (imported once, before the forks)
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.data import Store
from seqrl.reports.series import read_metrics
from seqrl.scripts import train

SMALL = {
    "experiment": {
        "report": {"enabled": False},
        "logging": {"every_n_steps": 2, "tensorboard": True},
        "save": {"every_n_epochs": 3},
        "evaluation": {"episodes": 4, "num_envs": 2},
    },
    "env": {"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 3}},
    "train": {
        "window_steps": 4, "batch_size": 3, "num_epochs": 10, "steps_per_epoch": 5, "device": "cpu",
        "prefetch_batches": 2,
    },
    "algo": {
        "sequence_encoder": {"type": "gru", "d_hidden": 8, "num_layers": 2, "d_output": 8, "dropout": 0.3},
        "actor": {"d_hidden": 8},
    },
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
}  # fmt: skip
DATA = {"data": [{"scripted": "seqrl/TMazePassive-v0", "episodes": 12}], "valid_batches": 1}
COLLECT = {"num_envs": 3, "steps_per_epoch": 20, "exploration": {"type": "epsilon_greedy", "anneal_steps": 100}}
CONFIGS = {
    "offline": {**SMALL, "algo_name": "bc", "train": {**SMALL["train"], **DATA}},
    "online": {**SMALL, "algo_name": "actor_critic", "collect": COLLECT,
               "algo": {**SMALL["algo"], "critic": {"d_hidden": 8}, "extra_gammas": []}},
}  # fmt: skip
FILE_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


def die_at_file_operation(number: int, delay: float, folder: Path) -> None:
    """End this process for good at its n-th operation on a file below a folder, or so many seconds after.

    Names without a folder are those of a tree that is being deleted.
    """
    count = 0

    def watch(event: str, arguments: tuple) -> None:
        nonlocal count
        if event in FILE_EVENTS and (str(folder) in str(arguments[0]) or "/" not in str(arguments[0])):
            count += 1
            if count == number and delay:
                signal.setitimer(signal.ITIMER_REAL, delay)  # nobody handles SIGALRM: it ends the process as SIGKILL
            elif count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def start(arguments: list[str], folder: Path, operation: tuple[int, float] | None = None) -> int:
    """Fork a run and return its process id."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    code = 70
    try:
        with open(folder.parent / "output.txt", "a") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            if operation is not None:
                die_at_file_operation(*operation, folder)
            code = train.main(arguments)
    finally:
        os._exit(code)


def wait(pid: int, seconds: float | None = None) -> int | None:
    """Return the exit code of a process, negative for a signal; kill it after so many seconds."""
    end = None if seconds is None else time.monotonic() + seconds
    while end is not None and time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    if end is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def check_files(run: Path) -> None:
    """Read every file that has its final name."""
    for path in run.rglob("*") if run.exists() else ():
        parts = path.relative_to(run).parts
        if path.is_dir() or any(part.startswith(".") for part in parts):
            continue
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".jsonl":
            for line in path.read_text().split("\n")[:-1]:  # whole ones
                json.loads(line)
        elif path.suffix == ".safetensors":
            load_file(path)
    checkpoints = run / "checkpoints"
    for path in checkpoints.iterdir() if checkpoints.exists() else ():
        if not path.name.startswith("."):
            read_checkpoint(path).training_state()  # a folder, or what a pointer names


def result(run: Path) -> dict:
    """Return what has to be equal."""
    last = read_checkpoint(run)
    names = ("model.safetensors", "training_state/optimizer.safetensors")
    rows = [
        {k: v for k, v in row.items() if not k.startswith(("time/", "system/"))}
        for row in read_metrics(run / "metrics.jsonl")
    ]
    return {
        "files": {name: (last.path / name).read_bytes() for name in names},
        "metrics": {k: v for k, v in last.card["metrics"].items() if not k.startswith(("time/", "system/"))},
        "rows": rows,
        "checkpoints": sorted(p.name for p in (run / "checkpoints").iterdir()),
        "pointers": {p.name: p.read_text() for p in (run / "checkpoints").iterdir() if p.is_file()},
        "hidden": [str(p) for p in run.rglob(".*")],
    }


def survive(
    run: Path, arguments: list[str], rng: random.Random, most: int, seconds: float, check: Callable[[], None]
) -> int:
    """Start a run, kill it ``most`` times at most, and go on with it until it ends; return the number of kills.

    It takes so many seconds if nobody kills it.
    """
    for killed in range(most + 1):
        command = [*arguments, "--name", run.name, *(["--resume"] if run.exists() else [])]
        if killed == most:
            code = wait(start(command, run))
        elif rng.random() < 0.5:
            code = wait(start(command, run), rng.uniform(0.02, 0.6) * seconds)
        else:
            operation = rng.randint(1, 160), rng.choice([0.0, 1e-5, 3e-5, 1e-4, 3e-4])
            code = wait(start(command, run, operation))
        check_files(run)
        check()
        if code == 0:
            return killed
        says = (run.parent / "output.txt").read_text()[-3000:]
        assert code in (-signal.SIGKILL, -signal.SIGALRM), says
    raise AssertionError(f"{run} did not end")


class Kept:
    """What an online run had when a checkpoint was saved: it has to be there, unchanged, ever after."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.seen: dict[tuple[str, int], str] = {}

    def check(self) -> None:
        """Look at the store and the counts of the last checkpoint."""
        if not (self.run / "checkpoints/last").is_file():
            return
        values = read_checkpoint(self.run).training_state().values
        steps = values["epoch"] * COLLECT["steps_per_epoch"]
        assert sum(values["env_steps"].values()) == steps * COLLECT["num_envs"], values["env_steps"]
        assert all(s["num_steps"] == [steps] * COLLECT["num_envs"] for s in values["explorations"])
        store = Store(self.run / "replay")
        assert store.verify() == []
        now = fingerprints(store)
        assert all(now.get(key) == mark for key, mark in self.seen.items()), "what was stored is gone"
        saved = {key for key in now if key[1] < values["replay"].get(key[0], 0)}
        assert len(saved) == sum(values["replay"].values()) == values["num_episodes"]
        self.seen |= {key: now[key] for key in saved}

    def check_end(self) -> None:
        """Look at a run that has ended."""
        self.check()
        epochs = list(range(1, SMALL["train"]["num_epochs"] + 1))
        rows = [row for row in read_metrics(self.run / "metrics.jsonl") if "collect/episodes" in row]
        assert [row["progress/epoch"] for row in rows] == epochs
        assert sum(row["collect/episodes"] for row in rows) == len(self.seen) == len(Store(self.run / "replay"))
        assert read_checkpoint(self.run).training_state().values["epoch"] == epochs[-1]


def fingerprints(store: Store) -> dict[tuple[str, int], str]:
    """Return (shard, number within it) -> checksum of a trajectory."""
    names, numbers, found = list(store.watermark()), Counter(), {}
    for shard, trajectory in zip(store.shard, store.trajectories(), strict=True):
        name = names[shard]
        digest = hashlib.sha256(trajectory.actions.tobytes() + trajectory.rewards.tobytes())
        for key in sorted(trajectory.obs):
            digest.update(trajectory.obs[key].tobytes())
        found[name, numbers[name]] = digest.hexdigest()
        numbers[name] += 1
    return found


def kill_one(kind: str, folder: Path, number: int, most: int, rng: random.Random) -> int:
    """Kill one run ``most`` times at most, and compare; return the number of kills."""
    arguments = ["--config", str(folder / f"{kind}.json"), "--set", f"experiment.output_dir={folder}"]
    run, whole = folder / f"{kind}_{number}", folder / f"{kind}_whole"
    if not (whole / "seconds").exists():
        flags, begin = ["--overwrite"] if whole.exists() else [], time.monotonic()
        code = wait(start([*arguments, "--name", whole.name, *flags], whole))
        assert code == 0, (folder / "output.txt").read_text()
        (whole / "seconds").write_text(str(time.monotonic() - begin))
    seconds = float((whole / "seconds").read_text())
    if kind == "online":
        kept = Kept(run)
        killed = survive(run, arguments, rng, most, seconds, kept.check)
        kept.check_end()
    else:
        killed = survive(run, arguments, rng, most, seconds, lambda: None)
        assert result(run) == result(whole), f"{run} differs after {killed} kills"
    shutil.rmtree(run)
    return killed


def main(argv: list[str] | None = None) -> int:
    """Kill as often as is asked for, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--offline", type=int, default=0, help="kills of offline runs")
    parser.add_argument("--online", type=int, default=0, help="kills of online runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to run, and to go on counting")
    args = parser.parse_args(argv)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="kills_"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["SEQRL_CACHE_DIR"] = str(folder / "cache")
    torch.set_num_threads(1)
    counts = {kind: {"kills": 0, "runs": 0} for kind in CONFIGS}
    with contextlib.suppress(FileNotFoundError):
        counts = json.loads((folder / "counts.json").read_text())
    for kind, config in CONFIGS.items():
        (folder / f"{kind}.json").write_text(json.dumps(config))
        wanted, count = getattr(args, kind), counts[kind]
        while count["kills"] < wanted:
            number = count["runs"]
            shutil.rmtree(folder / f"{kind}_{number}", ignore_errors=True)  # of a script that was stopped
            rng = random.Random(f"{args.seed} {kind} {number}")
            count["kills"] += kill_one(kind, folder, number, wanted - count["kills"], rng)
            count["runs"] += 1
            (folder / "counts.json").write_text(json.dumps(counts))
            sys.stdout.write(json.dumps(counts) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    if "OMP_NUM_THREADS" not in os.environ:  # a fork must have no threads
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    sys.exit(main())
