"""Every algorithm has a page with each of its settings, as they are; its run file trains."""

import importlib.util
import json
import re
from pathlib import Path
from typing import get_args, get_origin

import pytest

from seqrl.algo.algo import ALGOS
from seqrl.configs import get_all_registered_configs
from seqrl.configs.section import Section
from seqrl.conformance.components import REGISTRIES
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


def keys_of(section, prefix):
    """Yield the keys of a section, of those in it, and of the first entry of lists of sections."""
    for name, field in section.model_fields.items():
        if name == "type":
            continue
        yield f"{prefix}.{name}"
        inner = field.get_default(call_default_factory=True)
        inner = type(inner) if isinstance(inner, Section) else None
        entries = [a for a in get_args(field.annotation) if isinstance(a, type) and issubclass(a, Section)]
        if inner is not None and name != "timestep_encoder":
            yield from keys_of(inner, f"{prefix}.{name}")
        elif entries and entries[0] is not Section:  # which is a component of a plug-in
            yield from keys_of(entries[0], f"{prefix}.{name}" + ".0" * (get_origin(field.annotation) is list))


def test_every_other_key_is_on_the_page_of_keys():
    text = (DOCS / "keys.md").read_text()
    fields = BUILT_IN["actor_critic"].model_fields
    sections = {name: type(fields[name].get_default()) for name in fields if name not in ("algo_name", "algo")}
    keys = [key for name, section in sections.items() if issubclass(section, Section) for key in keys_of(section, name)]
    assert len(keys) > 130
    assert not [key for key in keys if f"| `{key}` |" not in text]


def test_every_component_has_its_table():
    tabled = set(re.findall(r"<!-- settings \S+ (\S+) -->", "".join(page.read_text() for page in DOCS.rglob("*.md"))))
    keys = {f"{s.__module__}:{s.__name__}": s.model_fields for r in REGISTRIES for s in r.sections.values()}
    missing = {
        key for key, fields in keys.items() if key.startswith("seqrl.") and fields.keys() - {"type", "num_frames"}
    }
    assert not missing - tabled


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
