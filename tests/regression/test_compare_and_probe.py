"""seqrl compare, plot and probe on runs that were trained for it: T-Maze, a corridor of 4 steps, a few seconds."""

import json
import logging
import subprocess
import sys

import gymnasium as gym
import imageio.v3 as imageio
import numpy as np
import pytest

from seqrl.scripts import compare, plot, probe, train
from seqrl.training.run_log import RunLog

SETTINGS = [
    "env.kwargs.corridor_length=4", "train.window_steps=5", "train.data.0.episodes=40", "train.batch_size=16",
    "train.steps_per_epoch=20", "experiment.evaluation.episodes=20", "experiment.evaluation.num_envs=10",
    "experiment.logging.every_n_steps=5", "experiment.logging.tensorboard=false", "experiment.report.enabled=false",
]  # fmt: skip
TRANSFORMER = ["algo.sequence_encoder.d_model=32", "algo.sequence_encoder.d_ff=64", "train.num_epochs=8"]
FEEDFORWARD = ["algo.sequence_encoder.type=feedforward", "algo.sequence_encoder.d_model=16", "train.num_epochs=2"]


def trained(folder, name, *settings):
    chosen = [*SETTINGS, *settings, f"experiment.output_dir={folder}"]
    arguments = [a for s in chosen for a in ("--set", s)]
    assert train.main(["--config", "bc.json", "--name", name, *arguments]) == 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    trained(folder, "t0", *TRANSFORMER)
    for seed in range(2):
        trained(folder, f"f{seed}", *FEEDFORWARD, f"train.seed={seed}")
    return folder


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def answers(out):
    return {p["name"]: {point["value"]: point["measures"] for point in p["points"]} for p in json.loads(out)["probes"]}


# ------------------------------------------------------------------------------------------ compare
@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare", "plot"])
def test_reading_runs_needs_no_torch(runs, command):
    code = (
        f"import sys; from seqrl.scripts import {command} as c; code = c.main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    options = ["--resamples", "100"] if command == "compare" else []
    done = subprocess.run([sys.executable, "-c", code, str(runs), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_compare_writes_tables_pictures_and_numbers(runs, tmp_path, capsys):
    assert compare.main([str(runs), "--metric", "eval/success_mean", "--resamples", "500", "--x", "epoch"]) == 0
    out, err = capsys.readouterr()
    assert "bc transformer has 1 run of a task" in err
    assert "bc feedforward has 2 runs of a task" in err
    assert out.strip() == (tmp_path / "comparison/table.md").read_text().strip()
    assert "| bc transformer | 1    | 1 " in out
    results = json.loads((tmp_path / "comparison/results.json").read_text())
    assert results["methods"]["bc transformer"]["aggregates"]["optimality_gap"]["value"] == 0.0
    assert results["improvement"][0] == {
        "better": "bc feedforward", "worse": "bc transformer", "value": 0.0, "low": None, "high": None
    }  # fmt: skip
    assert results["methods"]["bc transformer"]["curve"]["x"][-1] == 8.0
    for name in ("aggregates", "improvement", "profile", "efficiency"):
        assert np.ptp(imageio.imread(tmp_path / f"comparison/{name}.png")) > 200, name


def test_compare_takes_labels_and_prints_json(runs, capsys):
    arguments = [f"memory={runs}/t*", f"none={runs}/f*", "--resamples", "100", "--json", "--output", "here"]
    assert compare.main(arguments) == 0
    results = json.loads(capsys.readouterr().out)
    assert list(results["methods"]) == ["memory", "none"]
    assert results["methods"]["none"]["runs"][1]["seed"] == 1
    assert "optimality_gap" not in results["methods"]["none"]["aggregates"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "nothing does not exist"),
        (["RUNS", "--metric", "eval/sucess_mean"], "did you mean 'eval/success_mean'?"),
        (["RUNS", "--range", "2,1"], "--range 2,1: must be LOW,HIGH"),
        (["RUNS", "--resamples", "3"], "--resamples must be at least 100"),
    ],
)
def test_compare_says_what_is_wrong(runs, arguments, message, capsys):
    assert compare.main([str(runs) if a == "RUNS" else a for a in arguments]) == 2
    assert message in capsys.readouterr().err


# --------------------------------------------------------------------------------------------- plot
def test_plot_draws_metrics_of_runs(runs, tmp_path, capsys):
    assert plot.main([str(runs), "--keys", "eval/success_mean,loss/*", "--smooth", "0.5"]) == 0
    assert "eval/success_mean, loss/nll, loss/total" in capsys.readouterr().err
    assert imageio.imread(tmp_path / "plot.png").shape[1] > 1500
    assert plot.main([str(runs / "t0")]) == 2
    assert "plot.png exists; pass --overwrite" in capsys.readouterr().err
    assert plot.main([str(runs / "t0"), "--output", "b.png", "--x", "epoch"]) == 0
    assert plot.main([str(runs), "--keys", "loss/totl", "--overwrite"]) == 2
    assert "--keys loss/totl: no run has it; did you mean 'loss/total'?" in capsys.readouterr().err
    assert plot.main([str(runs), "--smooth", "1", "--overwrite"]) == 2
    assert plot.main([str(runs), "--keys", "loss/total", "--x", "env_steps", "--output", "c.png"]) == 2
    assert not (tmp_path / "c.png").exists()


# -------------------------------------------------------------------------------------------- probe
def test_probe_shows_where_the_memory_ends(runs, tmp_path, capsys):
    questions = ["--sweep", "env.kwargs.corridor_length=2,4,12", "--clear-at", "1,50", "--window", "2,20"]
    assert probe.main([str(runs / "t0"), *questions, "--episodes", "40", "--json"]) == 0
    out, err = capsys.readouterr()
    found = answers(out)
    success = {name: {v: m["success"]["value"] for v, m in points.items()} for name, points in found.items()}
    assert success["corridor_length"] == {2: 1.0, 4: 1.0, 12: 0.5}  # the window is 5: two layers reach back 9 inputs
    assert success["memory cleared at step"] == {1: 0.5, 50: 1.0}
    assert success["window_steps"] == {2: 0.5, 5: 1.0, 20: 1.0}
    assert "no episode went beyond step 50" in err
    assert np.ptp(imageio.imread(tmp_path / "probe/probe.png")) > 200
    assert "| 4 (training) " in (tmp_path / "probe/probe.md").read_text()
    assert json.loads((tmp_path / "probe/probe.json").read_text()) == json.loads(out)


def test_probe_refuses_what_it_cannot_ask(runs, capsys):
    assert probe.main([str(runs / "f0"), "--window", "3"]) == 2
    assert "the memory 'feedforward' has no window" in capsys.readouterr().err
    for bad in (["--sweep", "corridor_length"], ["--clear-at", "0"], ["--window", "a"], ["--episodes", "0"]):
        assert probe.main([str(runs / "f0"), *bad]) == 2, bad
    for at in ("0,,1", "²", "a"):
        assert probe.main([str(runs / "f0"), "--values", "x.hdf5", "--at", at]) == 2
        assert f"--at {at}: must be numbers of episodes" in capsys.readouterr().err
    assert probe.main([str(runs / "f0"), "--sweep", "no_such=1", "--episodes", "2"]) == 2
    assert "no_such" in capsys.readouterr().err
    assert probe.main([str(runs / "f0"), "--checkpoint", "best_sucess"]) == 2
    assert f"{runs / 'f0' / 'checkpoints'} holds: " in capsys.readouterr().err


class Attempts(gym.Env):
    """Three steps; each is an attempt, and says how it went."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32), gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(4, np.float32), {}

    def step(self, action):
        self.time += 1
        info = {f"log/attempt_{self.time}": float(self.time > 1)}
        return np.zeros(4, np.float32), 1.0, self.time == 3, False, info


def test_probe_shows_attempts_where_they_are_logged(tmp_path, capsys):
    gym.register("seqrl-test/Attempts-v0", Attempts)
    try:
        settings = ["env.id=seqrl-test/Attempts-v0", "env.kwargs={}", "env.eval_kwargs={}", "train.num_epochs=1"]
        trained(tmp_path, "a", *FEEDFORWARD, "train.data.0.env_kwargs={}", *settings)
        assert probe.main([str(tmp_path / "a"), "--checkpoint", "last", "--episodes", "6"]) == 0
    finally:
        del gym.registry["seqrl-test/Attempts-v0"]
    out = capsys.readouterr().out
    assert "| attempt | log/attempt | episodes |" in out
    assert "| 3       | 1           | 6        |" in out


def test_probe_warns_although_a_run_of_the_program_is_still_open(runs, monkeypatch, capsys):
    """A run's own file listens to the same logger; that must not pass for a console that is set up."""
    logger = logging.getLogger("seqrl")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    log = RunLog()
    log.begin()
    try:
        assert probe.main([str(runs / "t0"), "--clear-at", "50", "--episodes", "2"]) == 0
    finally:
        log.close()
    assert "no episode went beyond step 50" in capsys.readouterr().err


@pytest.mark.parametrize("command", [compare, probe])
def test_where_nothing_can_be_written_is_told_before_the_work(runs, tmp_path, command, capsys):
    (tmp_path / "text").write_text("")
    where = str(runs) if command is compare else str(runs / "f0")
    assert command.main([where, "--output", str(tmp_path / "text" / "x")]) == 2
    assert f"{tmp_path / 'text'} is a file" in capsys.readouterr().err
