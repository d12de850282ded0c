"""Files of other formats, damaged at 200 places each: a clear error, or the episodes that are still there."""

import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest

from seqrl.core.errors import DataError
from seqrl.data.ingest import open_store
from tests.unit.data.test_arrays import BORDERS, COLUMNS
from tests.unit.data.test_arrays import steps as step_arrays
from tests.unit.data.test_lerobot import write as write_lerobot
from tests.unit.data.test_other_formats import WRITTEN, save_amago, steps, written

pytestmark = pytest.mark.slow
ROBOMIMIC = WRITTEN.parent / "robomimic_written.hdf5"
NUM_DAMAGES = 200
KINDS = ("robomimic", "d4rl", "minari", "arrow", "parquet", "amago", "npy", "npz", "lerobot")
CHECKED = ("amago", "npz")
"""Formats whose checksums tell a changed number; the others may hold one."""


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


def good(kind: str, folder: Path) -> tuple[Path, dict, list[Path]]:
    """Write good data, and return what to open, how, and the files to damage."""
    if kind in ("minari", "arrow", "parquet"):
        shutil.copytree(WRITTEN / ("cart-v0" if kind == "minari" else f"mixed-{kind}-v0"), folder / "x")
    elif kind == "robomimic":
        shutil.copy(ROBOMIMIC, folder / "x.hdf5")
    elif kind == "d4rl":
        written(folder / "x.hdf5", steps())
    elif kind == "amago":
        save_amago(folder / "x")
    elif kind == "npy":
        (folder / "x").mkdir()
        for name, array in step_arrays().items():
            np.save(folder / "x" / f"{name}.npy", array)
    elif kind == "npz":
        np.savez(folder / "x.npz", **step_arrays())
    else:
        write_lerobot(folder / "x")
    path = folder / {"robomimic": "x.hdf5", "d4rl": "x.hdf5", "npz": "x.npz"}.get(kind, "x")
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
    return path, {"columns": COLUMNS | BORDERS["flags"]} if kind in ("npy", "npz") else {}, files


def content(path: Path, options: dict) -> list[int]:
    """Return a number for each episode."""
    out = []
    for t in open_store(str(path), options).trajectories():
        arrays = [*t.obs.values(), *t.goal.values(), t.actions, t.rewards, t.terminated, t.truncated]
        assert len({len(t.actions), len(t.rewards), *(len(v) - 1 for v in t.obs.values())}) == 1
        out.append(zlib.crc32(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)))
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_an_error_or_read_whole(tmp_path, kind):
    path, options, files = good(kind, tmp_path)
    whole, rng = {file: file.read_bytes() for file in files}, np.random.default_rng(0)
    right = content(path, options)
    assert right
    told = 0
    for k in range(NUM_DAMAGES):
        file = files[k // 2 % len(files)]
        broken = bytearray(whole[file])
        place = int(rng.integers(len(broken)))
        if k % 2:
            broken[place] ^= 1 << rng.integers(8)
        else:
            del broken[place:]
        file.write_bytes(broken)
        try:
            found = content(path, options)
        except DataError as error:
            message = str(error)
        else:
            message = ""
            assert found == right or (k % 2 and kind not in CHECKED)
        assert not message or str(tmp_path) in message
        told += bool(message)
        file.write_bytes(whole[file])
    assert told >= NUM_DAMAGES // 4
