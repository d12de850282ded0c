"""Every algorithm has a page with each of its settings, as they are; its run file trains."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from seqrl.algo.algo import ALGOS
from seqrl.configs import get_all_registered_configs
from seqrl.scripts import train

DOCS = Path(__file__).parents[2] / "docs"
QUICK = ("act", "actor_critic", "bc", "cql")
BUILT_IN = {n: c for n, c in get_all_registered_configs().items() if c.__module__.startswith("seqrl.")}
spec = importlib.util.spec_from_file_location("make_tables", DOCS / "make_tables.py")
make_tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_tables)


def page_of(name):
    return (DOCS / "algorithms" / f"{name}.md").read_text()


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_key_of_the_algorithm_is_on_its_page(name):
    assert name in ALGOS.names()
    text = page_of(name)
    for key in BUILT_IN[name].model_fields["algo"].annotation.model_fields:
        assert f"| `algo.{key}` |" in text, key


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.stem)
def test_tables_of_settings_are_those_of_the_classes(page):
    text = page.read_text()
    assert text == make_tables.filled(text), "run: python docs/make_tables.py"


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in BUILT_IN])
def test_the_run_file_of_the_page_trains_and_logs_what_the_page_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page_of(name)
    (run_file,) = (c for c in re.findall(r"```json\n(.*?)```", text, re.DOTALL) if c.startswith("{"))
    values = json.loads(run_file)
    assert values["algo_name"] == name
    Path("run.json").write_text(run_file)
    quick = ["train.num_epochs=1", "train.steps_per_epoch=2", "experiment.evaluation.episodes=2"]
    quick += ["experiment.evaluation.num_envs=2", "experiment.report.enabled=false"]
    quick += ["experiment.logging.every_n_steps=1", "experiment.name=run"]
    if values["train"].get("data"):
        quick.append("train.data.0.episodes=20")
    assert train.main(["--config", "run.json", *(a for s in quick for a in ("--set", s))]) == 0
    logged = {k for line in Path("runs/run/metrics.jsonl").read_text().splitlines() for k in json.loads(line)}
    metrics = set(re.findall(r"`(loss/\w+)`", text.split("## Metrics")[1].split("\n## ")[0]))
    optional = {
        "multitask": {"loss/actor_online"},
        "actor_critic": {"loss/temperature"},
        "bcq": {"loss/perturbation"},
        "cql": {"loss/push"},
    }.get(name, set())
    assert {k for k in logged if k.startswith("loss/")} - {"loss/total"} == metrics - optional
