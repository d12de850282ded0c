"""The tables of what is learned: their runs keep to the budgets, and results belong to the run files that are there."""

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from seqrl.scripts import train

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import learn  # noqa: E402

RESULTS = sorted((ROOT / "benchmarks/learning/results").rglob("*.json"))
VARIANTS = [(name, variant) for name, row in learn.ROWS.items() for variant in (row.main, *row.variants)]


@pytest.fixture(autouse=True)
def _from_the_top(monkeypatch):
    monkeypatch.chdir(ROOT)


def resolved(name, variant, seed=0):
    """Return the config of a run as it is recorded."""
    config, _ = train.resolve_config(train.parser().parse_args(learn.arguments_of(name, variant, seed)))
    return config


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_runs_spend_their_budget_and_no_more(name, variant):
    config, budget = resolved(name, variant), learn.ROWS[name].budget
    steps = config.train.num_epochs * config.collect.steps_per_epoch * config.collect.num_envs
    assert 0.95 * budget < steps <= budget
    assert config.experiment.evaluation.deterministic
    assert config.experiment.evaluation.episodes >= 100
    if variant == "no memory":
        assert config.algo.sequence_encoder.type == "feedforward"


@pytest.mark.parametrize("name", list(learn.DEFAULT_ROWS))
def test_rows_of_one_setting_name_an_environment_a_memory_and_a_budget_only(name):
    words = learn.row_of(name).planned
    options = {word for word in words if word.startswith("--")}
    assert options <= {"--algo", "--env", "--memory", "--env-steps", "--plugin", "--set"}
    settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    assert all(text.startswith(("env.", "experiment.evaluation.")) for text in settings)
    assert str(learn.row_of(name).budget) in words


@pytest.mark.parametrize("file", RESULTS, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_results_are_of_the_present_run_files(file):
    result = json.loads(file.read_text())
    if result["row"] in learn.DEFAULT_ROWS:  # its environment is looked at to plan the run
        packages = {"popgym": "popgym", "MiniGrid": "minigrid", "Cheetah": "mujoco", "Meta-World": "metaworld"}
        for name, package in packages.items():
            if name in str(learn.row_of(result["row"]).planned):
                pytest.importorskip(package)
    want = learn.settings_of(resolved(result["row"], result["variant"], result["seed"]).to_json())
    if result["row"] in learn.DEFAULT_ROWS and not learn.is_of_now(result):  # the table marks such a row
        _as_it_was(want, result)
    assert learn.settings_of(result["config"]) == want, f"run benchmarks/learn.py --rows {result['row']}"
    assert result["env_steps"] <= result["budget"] == learn.row_of(result["row"]).budget
    assert result.get("cpu_s", result["wall_s"]) <= learn.row_of(result["row"]).limit_s
    assert [result["env_steps"], pytest.approx(result["result"], abs=1e-3)] == result["curve"][-1]
    assert file == learn.result_file(result["row"], result["variant"], result["seed"])


def _as_it_was(want, result):
    """Take back what has changed about the setting since the result was measured."""
    if not learn.is_averaged(result):
        want["algo"]["average_decay"] = None
    if result["row"] not in learn.CONTINUOUS and "novelty" not in result["config"]["algo"]:
        want["algo"]["novelty"] = 0.0
        want["experiment"]["evaluation"]["deterministic"] = True
        want["algo"]["distribution"] = {"type": "auto"}
        want["collect"]["exploration"] |= {"start": 0.2, "end": 0.05}
    if result["row"] in learn.HARD and not learn.explores_by_episode(result):
        want["collect"]["exploration"] |= {"by_episode": False, "start": 0.2, "end": 0.05, "max_repeat": 1}
        want["algo"] |= {"extra_gammas": [0.1, 0.9], "num_critics_td": 2, "online_value": "min", "memory_dropout": 0.3}
        want["algo"]["optimizer"] |= {"learning_rate": 5e-4, "grad_clip": 1.0}


def test_tables_are_those_of_the_results():
    page, readme = ((ROOT / name).read_text() for name in ("docs/learning.md", "README.md"))
    assert learn.table(learn.rows_of_table()) in page
    assert learn.table(learn.rows_of_defaults()) in page
    assert learn.table(learn.rows_of_defaults(learn.README_ROWS)) in readme
    assert len(learn.README_ROWS) <= 8


def test_a_page_keeps_what_stands_around_its_table(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- learning table -->\nold\n<!-- end of the learning table -->\nafter\n")
    learn.write_table(page, "learning", "| new |")
    assert page.read_text() == "before\n<!-- learning table -->\n| new |\n<!-- end of the learning table -->\nafter\n"


def test_each_seed_is_told_and_five_have_an_interval():
    assert learn.spread([0.5] * 3) == "**0.50** 0.50 0.50 0.50"
    assert learn.spread([-200.4]) == "**-200** -200"
    assert learn.spread([0.1, 0.2, 0.3, 0.4, 0.5]) == "**0.30** [0.10, 0.50] 0.10 0.20 0.30 0.40 0.50"


def test_a_result_counts_as_long_as_its_run_file_stays(tmp_path, monkeypatch):
    run_file = json.loads((ROOT / "benchmarks/learning/cartpole.json").read_text())
    row = learn.Row("CartPole", "475", 60_000, "none needed")
    (tmp_path / "benchmarks/learning").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(learn, "HERE", tmp_path / "benchmarks/learning")
    monkeypatch.setattr(learn, "ROWS", {"mine": row})
    file = tmp_path / "benchmarks/learning/mine.json"
    file.write_text(json.dumps(run_file))
    assert not learn.has_result("mine", "none needed", 1)
    result = learn.result_file("mine", "none needed", 1)
    result.parent.mkdir(parents=True)
    result.write_text(json.dumps({"config": resolved("mine", "none needed", 1).to_json()}))
    assert learn.has_result("mine", "none needed", 1)
    assert not learn.has_result("mine", "none needed", 0)
    run_file["algo"]["tau"] = 0.5
    file.write_text(json.dumps(run_file))
    assert not learn.has_result("mine", "none needed", 1)


def test_the_queue_asks_for_what_is_asked_first_and_goes_on_after_a_failure(tmp_path, capsys):
    queue = list(learn.all_runs(["maze", "pendulum"], ["main", "no memory"], 2))
    assert queue == [("maze", "GRU", 0), ("pendulum", "none needed", 0), ("maze", "GRU", 1),
                     ("pendulum", "none needed", 1), ("maze", "no memory", 0), ("maze", "no memory", 1)]  # fmt: skip
    everything = list(learn.all_runs(list(learn.ROWS), [*learn.ROWS["maze"].variants, "main"], 3))
    assert len(everything) == 3 * sum(1 + len(row.variants) for row in learn.ROWS.values()) == len(set(everything))

    def run(row, variant, seed, folder):
        if row == "maze":
            raise RuntimeError(f"{row} {seed} failed")
        return f"{row} {seed} done"

    handler = signal.getsignal(signal.SIGTERM)
    assert learn.work(queue, partial(run, folder=tmp_path), 2) == 4
    assert signal.getsignal(signal.SIGTERM) == handler
    assert {"maze 0 failed", "pendulum 1 done"} <= set(capsys.readouterr().out.splitlines())


def test_a_queue_in_the_background_of_a_script_ends_on_sigterm():
    def run(row, variant, seed):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)
        return "done"

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what a script puts in the background
    try:
        with pytest.raises(SystemExit, match="130"):
            learn.work([("pendulum", "none needed", 0)], run, 1)
    finally:
        signal.signal(signal.SIGINT, before)
