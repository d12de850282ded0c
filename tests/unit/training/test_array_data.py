"""What users of arrays meet from training to the choice of a policy, with and without an environment."""

import json
import re

import numpy as np
import pytest

import seqrl
from seqrl.scripts import probe, select_

NUM, LENGTH = 12, 8
COLUMNS = {
    "obs/obs": "states", "next_obs/obs": "after", "actions": "acts", "rewards": "rews", "episode_ends": "ends"
}  # fmt: skip
SMALL = {
    "experiment": {"logging": {"tensorboard": False, "progress_bar": False}, "report": {"enabled": False}},
    "train": {"window_steps": 4, "num_epochs": 1, "steps_per_epoch": 2, "batch_size": 4},
    "observation": {"timestep_encoder": {"type": "mlp", "d_hidden": 8, "d_output": 8}},
    "algo": {"sequence_encoder": {"type": "gru", "d_hidden": 8, "num_layers": 1, "d_output": 8}},
}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQRL_CACHE_DIR", str(tmp_path / "cache"))


def arrays(*, width=3, reach=2.0):
    """Return Pendulum's kind of episodes, with actions in [-reach, reach]."""
    rng = np.random.default_rng(0)
    states = rng.random((NUM, LENGTH + 1, width), dtype=np.float32)
    return {
        "states": states[:, :-1].reshape(-1, width),
        "after": states[:, 1:].reshape(-1, width),
        "acts": rng.uniform(-reach, reach, (NUM * LENGTH, 1)),
        "rews": rng.random(NUM * LENGTH) - 0.3,
        "ends": LENGTH * np.arange(1, NUM + 1),
    }


def saved(path, columns=COLUMNS, **changed):
    """Write the arrays, and return the entry of ``train.data``."""
    np.savez(path, **arrays() | changed)
    return {"path": str(path), "columns": columns}


def experiment(tmp_path, data, algorithm="iql", name="run", **sections):
    values = {k: {**SMALL.get(k, {}), **sections.get(k, {})} for k in SMALL.keys() | sections.keys()}
    values["train"]["data"] = [data]
    values["experiment"] |= {"output_dir": str(tmp_path), "name": name}
    return seqrl.Experiment(seqrl.config_factory(algorithm, values))


def trained(*args, **options):
    run = experiment(*args, **options)
    run.start()
    run.learn()
    return run


def called(command, words, data):
    return command.main([*words, "--columns", json.dumps(data["columns"])])


MIN_MAX = {"normalize_actions": "min_max"}


def test_runs_without_an_environment_are_ranked(tmp_path, capsys):
    data = saved(tmp_path / "x.npz")
    for algorithm in ("iql", "bc"):
        trained(tmp_path, data, algorithm, algorithm, train=MIN_MAX)
        assert "2 (1 epoch of 2)" in (tmp_path / algorithm / "log.txt").read_text()
    runs = [str(tmp_path / name) for name in ("iql", "bc")]
    assert called(select_, [*runs, "--dataset", data["path"], "--steps", "3", "--json"], data) == 0
    found = json.loads(capsys.readouterr().out)["checkpoints"]
    assert sorted(row["algo"] for row in found) == ["bc", "iql"]
    assert all(np.isfinite(row["value"]) for row in found)


def test_values_are_drawn_along_arrays(tmp_path):
    data = saved(tmp_path / "x.npz")
    trained(tmp_path, data, train=MIN_MAX)
    words = [str(tmp_path / "run"), "--values", data["path"], "--output", str(tmp_path / "out"), "--at", "3"]
    assert called(probe, words, data) == 0
    (found,) = json.loads((tmp_path / "out/values.json").read_text())["episodes"]
    assert found["rewards"] == pytest.approx(arrays()["rews"][3 * LENGTH : 4 * LENGTH], rel=1e-5)


OTHERS = {
    "names": ({"obs/o": "states", "next_obs/o": "after"}, {}, r"x.npz does not give .* obs is missing \(it has o\)"),
    "shape": ({}, {k: arrays(width=4)[k] for k in ("states", "after")}, r"obs has shape \(4,\), not \(3,\)"),
    "actions": ({}, {"acts": np.zeros(NUM * LENGTH, int)}, r"x.npz has actions like Discrete\(1\), but the policy"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_data_of_something_else_is_refused_at_once(tmp_path, capsys, other):
    trained(tmp_path, saved(tmp_path / "own.npz"), train=MIN_MAX)
    names, changed, message = OTHERS[other]
    kept = {k: v for k, v in COLUMNS.items() if not names or "obs/" not in k}
    data = saved(tmp_path / "x.npz", kept | names, **changed)
    for command, option in ((select_, "--dataset"), (probe, "--values")):
        assert called(command, [str(tmp_path / "run"), option, data["path"]], data) == 2
        assert re.search(message, capsys.readouterr().err)


def test_select_names_the_file_and_not_the_cache(tmp_path, capsys):
    trained(tmp_path, saved(tmp_path / "own.npz"), train=MIN_MAX)
    data = saved(tmp_path / "x.npz", {k: v for k, v in COLUMNS.items() if k != "rewards"})
    assert called(select_, [str(tmp_path / "run"), "--dataset", data["path"]], data) == 2
    assert f"error: {tmp_path / 'x.npz'}: all rewards are 0" in capsys.readouterr().err
