"""The benchmark of the sequence encoders runs, and counts its floor right."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.mark.slow
def test_figures_of_every_cell():
    code = "import json, runpy, sys, record; record.record = lambda name, figures: json.dumps({name: figures}); "
    code += "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    arguments = ["--lengths", "8", "16", "--tokens", "32", "--rows", "2", "--repeats", "1", "--output-name", "tried"]
    arguments += ["--variants", "feedforward", "gru", "flash window"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(BENCHMARKS)])}
    done = subprocess.run(
        [sys.executable, "-c", code, str(BENCHMARKS / "sequence_models.py"), *arguments],
        capture_output=True, text=True, env=environment, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.split("recorded in ")[1])["tried"]
    assert any("flash window" in name for name in [*figures["not_run"], *(c["variant"] for c in figures["training"])])
    training = {(c["variant"], c["length"]): c for c in figures["training"] if c["variant"] != "flash window"}
    assert list(training) == [("feedforward", 8), ("gru", 8), ("feedforward", 16), ("gru", 16)]
    for (_, length), cell in training.items():
        assert cell["batch"] * length == 32
        assert cell["tokens_per_s"] > 0
        assert cell["x_floor"] > 0
        assert 1 < cell["peak_mb"] < 500
    assert {r["variant"]: r["lengths"] for r in figures["linearity"]}["gru"] == "16 / 8"
    acting = [c for c in figures["acting"] if c["variant"] != "flash window"]
    assert [(c["variant"], c["rows"], list(c["step_s"])) for c in acting] == [
        (name, 2, ["before", "just full", "long after"]) for name in ("feedforward", "gru")
    ]


@pytest.mark.parametrize(
    ("window", "sinks", "length", "mean"), [(None, 0, 4, 2.5), (2, 0, 4, 1.75), (2, 1, 4, 2.25), (8, 4, 4, 2.5)]
)
def test_keys_in_sight(window, sinks, length, mean, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = runpy.run_path(str(BENCHMARKS / "sequence_variants.py"))
    variant = module["Variant"]("transformer", {"attention": "sdpa", "num_sinks": sinks}, window)
    assert variant.mean_keys(length) == mean
