"""A wheel built from the source distribution, unpacked elsewhere, trains by a packaged template."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_wheel_runs_elsewhere(tmp_path):
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", str(source)], check=True)
    packed = [sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path)]
    done = subprocess.run(packed, capture_output=True, text=True, timeout=200, check=False, cwd=source)
    assert done.returncode == 0, done.stderr[-2000:]
    (archive,) = tmp_path.glob("seqrl-*.tar.gz")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path)]
    built = subprocess.run([*command, str(archive)], capture_output=True, text=True, timeout=200, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    (wheel,) = tmp_path.glob("seqrl-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(site)
    assert {"seqrl/py.typed", "seqrl/configs/templates/bc.json"} <= set(names)
    assert not any(name.startswith(("tests/", "examples/", "benchmarks/")) for name in names)
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    where = "import seqrl, sys; from seqrl.__main__ import main; print(seqrl.__file__); sys.exit(main(sys.argv[1:]))"
    arguments = ["train", "--config", "bc.json", "--debug", "--set", "train.data.0.episodes=20"]
    done = subprocess.run(
        [sys.executable, "-c", where, *arguments], capture_output=True, text=True, timeout=200, check=False,
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith(str(site))
    assert (tmp_path / "runs" / "bc_transformer_TMazePassive-v0_seed0" / "report.html").exists()
