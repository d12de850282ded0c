"""Stands for ``seqrl train`` where a test is about many processes: no torch, the same files, the same signals.

The score after each epoch is ``epoch / num_epochs`` times what the settings are worth. ``env.kwargs`` may say ``fail``
(as long as the file that it names exists), ``epoch_s``, and ``hangs_at``, an epoch in which it waits for a signal.
"""

import json
import math
import os
import signal
import sys
import time
from pathlib import Path

from seqrl.core.files import FileLock, write_atomic, write_json


def worth(config):
    """Return the best score of settings: 1 with a learning rate of 0.01, less with others and higher seeds."""
    rate = config.get("algo", {}).get("optimizer", {}).get("learning_rate", 1e-4)
    return 1.0 - abs(math.log10(rate) + 2) / 4 - config["train"]["seed"] / 64


def save(path, epoch):
    folder = path / "checkpoints" / f"epoch_{epoch:06d}"
    (folder / "training_state").mkdir(parents=True, exist_ok=True)
    write_json(folder / "training_state/state.json", {"epoch": epoch, "step_in_epoch": 0, "is_evaluated": True})
    write_json(folder / "card.json", {})
    write_atomic(path / "checkpoints" / "last", folder.name + "\n")


def main(arguments):
    config = json.loads(Path(arguments[1]).read_text())
    path = Path(config["experiment"]["output_dir"]) / config["experiment"]["name"]
    assert ("--resume" in arguments) == path.exists()
    path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path / "lock")
    with open(path / "starts.txt", "a") as file:
        file.write(f"{os.getpid()}\n")
    asked = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    write_json(path / "config.json", config)
    does = config.get("env", {}).get("kwargs", {})
    if "fail" in does and Path(does["fail"]).exists():
        sys.stdout.write("first line\nsecond line\nthe end of it\n")
        return 3
    last = path / "checkpoints" / "last"
    begin = int(last.read_text().strip().removeprefix("epoch_")) if last.exists() else 0
    num_epochs = config["train"]["num_epochs"]
    for epoch in range(begin, num_epochs):
        time.sleep(does.get("epoch_s", 0.0))
        while does.get("hangs_at") == epoch and not asked:
            time.sleep(0.02)
        if asked:
            return 143
        row = {"step": epoch + 1, "progress/epoch": float(epoch + 1)}
        with open(path / "metrics.jsonl", "a") as file:
            file.write(json.dumps({**row, "eval/return_mean": worth(config) * (epoch + 1) / num_epochs}) + "\n")
        save(path, epoch + 1)
    lock.release()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
