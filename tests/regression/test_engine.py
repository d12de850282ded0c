"""A run that acts by ONNX Runtime: the same greedy episodes as with PyTorch, and it resumes with what it began with."""

import json

import pytest

from seqrl.core.errors import ConfigError
from tests.regression.test_online import rows, run, small

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_shapes")]


def engines(folder, name="run"):
    saved = json.loads((folder / name / "config.json").read_text())
    return saved["collect"]["engine"], saved["experiment"]["evaluation"]["engine"]


def acting_by(engine, **collect):
    return {"collect": {"engine": engine, **collect}, "experiment": {"evaluation": {"engine": engine}}}


def test_greedy_runs_are_the_same_with_either(tmp_path):
    for engine in ("eager", "onnx"):
        changes = acting_by(engine, deterministic=True)
        changes["experiment"] |= {"output_dir": str(tmp_path), "name": engine}
        run(small(tmp_path, **changes))
    assert rows(tmp_path, "onnx") == rows(tmp_path, "eager")


def test_a_run_that_scales_by_statistics_acts_with_it_and_goes_on(tmp_path):
    data = [{"scripted": "seqrl/TMazePassive-v0", "episodes": 10, "env_kwargs": {"corridor_length": 3}}]
    train = {"data": data, "normalize_obs": "gaussian"}
    run(small(tmp_path, **acting_by("auto"), train={**train, "num_epochs": 1}))
    assert engines(tmp_path) == ("onnx", "onnx")
    run(small(tmp_path, **acting_by("onnx"), train={**train, "num_epochs": 2}), resume=True)
    assert rows(tmp_path)[-1]["progress/epoch"] == 2


def test_auto_is_resolved_and_a_resume_keeps_it(tmp_path):
    run(small(tmp_path, **acting_by("auto"), train={"num_epochs": 2}))
    assert engines(tmp_path) == ("onnx", "onnx")
    with pytest.raises(ConfigError, match=r"collect\.engine  was 'onnx', now 'eager'"):
        run(small(tmp_path, **acting_by("eager")), resume=True)
    run(small(tmp_path, **acting_by("auto")), resume=True)
    assert engines(tmp_path) == ("onnx", "onnx")
    run(small(tmp_path, "whole", **acting_by("auto")))
    assert rows(tmp_path)[-1]["progress/env_steps"] == rows(tmp_path, "whole")[-1]["progress/env_steps"]


def test_auto_is_eager_where_a_policy_is_no_graph(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    run(small(tmp_path, **acting_by("auto"), train={"num_epochs": 1}))
    assert engines(tmp_path) == ("eager", "eager")
    with pytest.raises(ConfigError, match="onnxruntime is not installed"):
        run(small(tmp_path, "other", **acting_by("onnx"), train={"num_epochs": 1}))
