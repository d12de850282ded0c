"""The tables of what is learned: their runs keep to the budgets, and results belong to the run files that are there."""

import json
import sys
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


@pytest.mark.parametrize("file", RESULTS, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_results_are_of_the_present_run_files(file):
    result = json.loads(file.read_text())
    want = resolved(result["row"], result["variant"], result["seed"]).to_json()
    got = result["config"]
    for place, key in (("experiment", "name"), ("experiment", "output_dir"), ("train", "num_threads")):
        want[place].pop(key, None), got[place].pop(key, None)
    want["experiment"]["logging"] = got["experiment"]["logging"]
    assert got == want
    assert result["env_steps"] <= result["budget"] == learn.ROWS[result["row"]].budget
    assert result["wall_s"] <= learn.LIMIT_S
    assert [result["env_steps"], pytest.approx(result["result"], abs=1e-3)] == result["curve"][-1]
    assert file == learn.result_file(result["row"], result["variant"], result["seed"])


def test_tables_are_those_of_the_results():
    text = learn.table(learn.rows_of_table())
    assert text in (ROOT / "docs/learning.md").read_text()


def test_a_page_keeps_what_stands_around_its_table(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- learning table -->\nold\n<!-- end of the learning table -->\nafter\n")
    learn.write_table(page, "| new |")
    assert page.read_text() == "before\n<!-- learning table -->\n| new |\n<!-- end of the learning table -->\nafter\n"


def test_a_mean_of_too_few_seeds_says_so():
    assert learn.summary([{"result": 0.5}] * 3) == "0.50 [0.50, 0.50]"
    assert learn.summary([{"result": -200.4}]) == "-200 [-200, -200] (1 of 3 seeds)"
    assert learn.summary([]) == "-"
