"""Kills runs at random moments and looks at what they leave; run by ``test_kill.py`` in a process of its own.

Each run is a fork of this process, which has everything imported but has started no thread, so that a run begins
within milliseconds. Half of the kills come after a random time, half at or soon after a random operation on a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

import seqrl.training.experiment  # noqa: F401  (imported once, before the forks)
from seqrl.algo.checkpoint import read_checkpoint
from seqrl.reports.series import read_metrics
from seqrl.scripts import train

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
            assert len(read_metrics(path)) >= path.read_text().count("\n")
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


def main(config: str, folder: Path, num_kills: int, seed: int) -> None:
    """Compare runs that are killed with one that is not."""
    torch.set_num_threads(1)
    rng = random.Random(seed)
    base = ["--config", config, "--set", f"experiment.output_dir={folder}"]
    assert wait(start([*base, "--name", "whole"], folder / "whole")) == 0, (folder / "output.txt").read_text()
    begin = time.monotonic()
    assert wait(start([*base, "--name", "second"], folder / "second")) == 0
    whole, seconds = result(folder / "whole"), time.monotonic() - begin
    assert result(folder / "second") == whole
    killed, number = 0, 0
    while killed < num_kills:
        number += 1
        run, in_this = folder / f"killed_{number}", 0
        while True:
            flags = ["--resume"] if run.exists() else []
            arguments = [*base, "--name", run.name, *flags]
            if killed == num_kills:
                code = wait(start(arguments, run))
            elif rng.random() < 0.5:
                code = wait(start(arguments, run), rng.uniform(0.02, 0.6) * seconds)
            else:
                operation = rng.randint(1, 160), rng.choice([0.0, 1e-5, 3e-5, 1e-4, 3e-4])
                code = wait(start(arguments, run, operation))
            check_files(run)
            if code == 0:
                break
            assert code in (-signal.SIGKILL, -signal.SIGALRM), (folder / "output.txt").read_text()[-3000:]
            killed, in_this = killed + 1, in_this + 1
        assert result(run) == whole, f"{run} differs after {in_this} kills"
    sys.stdout.write(json.dumps({"kills": killed, "runs": number, "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
