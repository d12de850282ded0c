"""Damages files in a thousand ways and reads them: run as a script, because a reader's crash must not end the tests.

``python -m tests.fuzz.harness FOLDER FIRST END`` prints, as lines of JSON, the number of each case before it and its
outcome after it. A case is a pure function of its number. Good files are made in FOLDER on first use.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqrl.core.errors import SeqrlError
from seqrl.core.files import sha256_of
from seqrl.data import hdf5_file
from tests.fuzz.damages import damage_bytes, damage_hdf5, damage_json, damage_tensors, foreign_contents
from tests.fuzz.good_files import make_good_files
from tests.fuzz.readers import DATA, read_config, read_hdf5, read_resumed, read_run, read_store

SECONDS_PER_CASE = 10
"""Of this process; by the clock it may be six times as many, as the machine may have others to serve."""
KINDS = (
    "store",
    "own hdf5",
    "foreign hdf5",
    "edited hdf5",
    "checkpoint",
    "forged checkpoint",
    "config",
    "edited json",
    "run folder",
    "forged run",
)
CHECKED = ("store", "own hdf5", "checkpoint", "run folder")
"""Formats with checksums: what is loaded from them has to be what was written."""


def reseal(folder: Path) -> None:
    """Do what a forger would: make the card of a checkpoint agree with the files that are there."""
    try:
        card = json.loads((folder / "card.json").read_text())
        card.pop("checksum", None)
        card["files"] = {name: sha256_of(folder / name) for name in card["files"] if (folder / name).is_file()}
        (folder / "card.json").write_text(json.dumps(card))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return


def unseal(folder: Path) -> None:
    """Take the checksums out of a store's JSON, as an earlier version left it."""
    file = folder / "store.json"
    value = json.loads(file.read_text())
    value.pop("checksum", None)
    file.write_text(json.dumps(value))


class Case:
    """One damage of one kind of file, in a folder of its own.

    Attributes:
        kind: One of ``KINDS``.
        damage: What was done, in words.
        is_torn: Whether the end of a log was lost, which is what a crash leaves: what was committed last is gone.
    """

    def __init__(self, number: int, good: Path, folder: Path) -> None:
        self.rng = np.random.default_rng(number)
        self.kind = KINDS[number % len(KINDS)]
        self.is_torn = False
        self._contents = foreign_contents(folder / "executed")
        make = getattr(self, "_" + self.kind.replace(" ", "_"))
        self.read, self.path, self.damage = make(good, folder)

    def _store(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "store", folder / "store")
        return read_store, path, self._damage_one_of(path)

    def _edited_json(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "store", folder / "store")
        unseal(path)
        files = sorted(path.rglob("*.json"))
        file = files[int(self.rng.integers(0, len(files)))]
        return read_store, path, f"{file.name}: {damage_json(file, self.rng)}"

    def _own_hdf5(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = Path(shutil.copy(good / "own.hdf5", folder))
        return read_hdf5, path, damage_bytes(path, self.rng, self._contents)

    def _foreign_hdf5(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = Path(shutil.copy(good / "foreign.hdf5", folder))
        return read_hdf5, path, damage_bytes(path, self.rng, self._contents)

    def _edited_hdf5(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = Path(shutil.copy(good / str(self.rng.choice(["own.hdf5", "foreign.hdf5"])), folder))
        return read_hdf5, path, damage_hdf5(path, self.rng)

    def _checkpoint(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "run", folder / "run")
        return read_run, path, self._damage_one_of(path)

    def _forged_checkpoint(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "run", folder / "run")
        return read_run, path, self._forged(path / "checkpoints" / "epoch_000003")

    def _forged(self, checkpoint: Path) -> str:
        how = int(self.rng.integers(0, 3))
        files = sorted(checkpoint.rglob("*.json" if how == 0 else "*.safetensors"))
        file = files[int(self.rng.integers(0, len(files)))]
        if how == 2:
            damage = self._damage_one_of(checkpoint)
        else:
            damage = f"{file.name}: {(damage_tensors if how else damage_json)(file, self.rng)}"
        reseal(checkpoint)
        return damage

    def _run_folder(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "live", folder / "live")
        if self.rng.random() < 0.7:
            return read_resumed, path, self._damage_one_of(path)
        file = path / str(self.rng.choice(["config.json", "collectors/0000/progress.json", "provenance.json"]))
        return read_resumed, path, f"{file.name}: {damage_json(file, self.rng)}"

    def _forged_run(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = shutil.copytree(good / "live", folder / "live")
        return read_resumed, path, self._forged(path / "checkpoints" / "epoch_000001")

    def _config(self, good: Path, folder: Path) -> tuple[Any, Path, str]:
        path = Path(shutil.copy(good / "config.json", folder))
        if self.rng.random() < 0.5:
            return read_config, path, damage_bytes(path, self.rng, self._contents)
        return read_config, path, damage_json(path, self.rng)

    def _damage_one_of(self, path: Path) -> str:
        files = sorted(f for f in path.rglob("*") if f.is_file() and f.name != "lock")
        file = files[int(self.rng.integers(0, len(files)))]
        before = file.read_bytes()
        how = damage_bytes(file, self.rng, self._contents)
        if file.name == "commits.jsonl" and file.is_file():
            after = file.read_bytes()
            whole = after[: after.rfind(b"\n") + 1]
            self.is_torn = len(whole) < len(before) and before.startswith(whole)
        return f"{file.relative_to(path)}: {how}"


def outcome(case: Case, wanted: dict[str, list[int]], marker: Path) -> str:
    """Return ``error``, ``equal``, ``torn`` or ``other``; anything else is a failure, in words."""
    begin = time.process_time()
    try:
        found = case.read(case.path)
    except SeqrlError:
        result = "error"
    except BaseException as error:
        result = f"raised {type(error).__name__}: {str(error)[:300]}"
    else:
        if found == wanted.get(case.kind):
            result = "equal"
        elif case.kind not in CHECKED:
            result = "other"
        elif case.is_torn and found[0] == wanted[case.kind][0] and set(found) < set(wanted[case.kind]):
            result = "torn"
        else:
            result = "loaded wrong data"
    if (took := time.process_time() - begin) > SECONDS_PER_CASE:
        result = f"took {took:.0f} s"
    return "executed code" if marker.exists() else result


def say(line: dict[str, Any]) -> None:
    """Write a line of JSON that is there even if the process ends in the next instant."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main(folder: Path, first: int, end: int) -> None:
    """Run the cases from ``first`` to before ``end``."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    os.fsync = lambda handle: None  # durability is not tested here
    hdf5_file.STALL_S = 3.0
    good = folder / "good"
    os.environ["SEQRL_CACHE_DIR"] = str(folder / "cache")
    if not (good / "live").exists():
        make_good_files(good)
    DATA[:] = [good / "store"]
    readers = {"store": read_store, "own hdf5": read_hdf5, "checkpoint": read_run, "config": read_config}
    places = {"store": "store", "own hdf5": "own.hdf5", "checkpoint": "run", "config": "config.json"}
    wanted = {kind: read(good / places[kind]) for kind, read in readers.items()}
    wanted["run folder"] = read_resumed(shutil.copytree(good / "live", folder / f"whole_{first}" / "live"))
    for number in range(first, end):
        place = folder / f"case_{number}"
        place.mkdir()
        os.environ["SEQRL_CACHE_DIR"] = str(place / "cache")
        say({"case": number})
        case = Case(number, good, place)
        faulthandler.dump_traceback_later(6 * SECONDS_PER_CASE, exit=True)  # also where a C library hangs
        result = outcome(case, wanted, place / "executed")
        faulthandler.cancel_dump_traceback_later()
        say({"kind": case.kind, "damage": case.damage, "outcome": result})
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
