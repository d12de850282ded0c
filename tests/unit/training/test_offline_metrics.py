"""Metrics of plug-ins about held-out windows: where their numbers go, what they may not disturb, and mistakes."""

import json
import random
import re

import numpy as np
import pytest
import torch

import seqrl
from seqrl.core.errors import ConfigError
from seqrl.core.registry import METRICS
from seqrl.core.tensors import SeqBatch
from tests.regression.test_interrupt import offline, run


@pytest.fixture(autouse=True)
def _separate(monkeypatch):
    """Keep the metrics of a test to itself."""
    monkeypatch.setattr(METRICS, "_entries", {})
    monkeypatch.setattr(METRICS, "sections", {})


def rows_of(folder, name="run"):
    return [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]


def without_times(rows):
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "system/", "metric/"))} for row in rows]


def draws(algo, batches):
    """Draw from every generator that there is."""
    return torch.rand(()) + random.random() + np.random.random()  # noqa: NPY002


def test_numbers_are_logged_with_each_validation(tmp_path):
    seen = []

    @METRICS.register("one")
    def one(algo, batches, *, scale: float = 1.0, name: str | None = None):
        seen.append((algo, batches, scale, torch.is_grad_enabled(), algo.nets.training))
        return scale * torch.tensor(2.0)

    @METRICS.register("many")
    class Many:
        def __init__(self, *, keys: list[str]):
            self.keys = keys

        def __call__(self, algo, batches):
            return {key: float(number) for number, key in enumerate(self.keys)}

    metrics = [{"type": "one", "scale": 3.0}, {"type": "many", "keys": ["a", "b"]}]
    stats = run(offline(tmp_path, train={"metrics": metrics, "valid_batches": 2}))
    expected = {"metric/one": 6.0, "metric/many_a": 0.0, "metric/many_b": 1.0}
    assert expected.items() <= stats.metrics.items()
    evaluations = [row for row in rows_of(tmp_path) if "valid/total" in row]
    assert [row["progress/epoch"] for row in evaluations] == [0, 1, 2, 3]
    assert all(expected.items() <= row.items() for row in evaluations)
    algo, batches, scale, has_grad, is_training = seen[0]
    assert isinstance(algo, seqrl.algo.Algo)
    assert (len(batches), scale, has_grad, is_training) == (2, 3.0, False, False)
    assert all(isinstance(batch, SeqBatch) for batch in batches)
    assert json.loads((tmp_path / "run/config.json").read_text())["train"]["metrics"][0] == {
        "type": "one", "scale": 3.0, "name": None,
    }  # fmt: skip


def test_nothing_else_is_disturbed(tmp_path):
    METRICS.register("first")(draws)
    METRICS.register("second")(lambda algo, batches: draws(algo, batches))
    run(offline(tmp_path, "without"))
    run(offline(tmp_path, "one", train={"metrics": [{"type": "second"}]}))
    run(offline(tmp_path, "two", train={"metrics": [{"type": "first"}, {"type": "second"}]}))
    without, one, two = (rows_of(tmp_path, name) for name in ("without", "one", "two"))
    assert without_times(without) == without_times(one) == without_times(two)
    numbers = {row.get("metric/second") for row in one + two} - {None}
    assert len(numbers) == 1  # a generator of its own, the same every time
    assert numbers != {row.get("metric/first") for row in two} - {None}


def test_a_resumed_run_may_have_others(tmp_path):
    METRICS.register("first")(draws)
    run(offline(tmp_path, train={"num_epochs": 1}))
    config = offline(tmp_path, train={"num_epochs": 2, "metrics": [{"type": "first"}]})
    assert "metric/first" in run(config, resume=True).metrics


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ([{"type": "firstly"}], r"train\.metrics\.0\.type +unknown offline metric 'firstly'; did you mean 'first'\?"),
        ([{"type": "first", "shar": 0.5}], r"train\.metrics\.0\.shar +unknown key; did you mean 'share'\?"),
        ([{"type": "first", "share": "a"}], r"train\.metrics\.0\.share +must be a valid number, got 'a'"),
        ([{"type": "first"}, {"type": "first"}], "two entries of 'metrics' are of the type 'first'"),
    ],
)
def test_mistakes_in_the_run_file_are_named(tmp_path, train, message):
    @METRICS.register("first")
    def first(algo, batches, *, share: float = 0.1):
        return 0.0

    with pytest.raises(ConfigError, match=message):
        offline(tmp_path, train={"metrics": train})


@pytest.mark.parametrize("value", [None, "much", {"a": [1.0]}, torch.ones(2)], ids=str)
def test_what_is_no_number_is_refused(tmp_path, value):
    METRICS.register("first")(lambda algo, batches: value)
    message = rf"train\.metrics: first gave {re.escape(repr(value))}, not a number or a dict of numbers"
    with pytest.raises(ConfigError, match=message):
        run(offline(tmp_path, train={"metrics": [{"type": "first"}]}))


@pytest.mark.parametrize(
    "changes",
    [
        {"train": {"valid_fraction": 0.0}},
        {"train": {"data": []}, "collect": {"steps_per_epoch": 8, "num_envs": 2}},
    ],
)
def test_without_held_out_data_the_run_does_not_begin(tmp_path, changes):
    METRICS.register("first")(draws)
    changes["train"]["metrics"] = [{"type": "first"}]
    message = r"train\.metrics: first need held-out data, .* set train\.valid_fraction above 0"
    with pytest.raises(ConfigError, match=message):
        seqrl.Experiment(offline(tmp_path, **changes)).start()
    assert not (tmp_path / "run").exists()
