"""Every built-in component has a section whose fields and defaults are those of its class or function."""

import inspect

import pytest

import seqrl.algo
import seqrl.configs.sections.relabel
import seqrl.data.relabel
import seqrl.envs.exploration  # noqa: F401  (the four register everything)
from seqrl.configs import config_factory, get_all_registered_configs, read_config_values, template_names
from seqrl.core.registry import (
    DISTRIBUTIONS,
    EXPLORATIONS,
    FILTERS,
    RELABELERS,
    SEQUENCE_ENCODERS,
    TIMESTEP_ENCODERS,
)

REGISTRIES = (DISTRIBUTIONS, EXPLORATIONS, FILTERS, RELABELERS, SEQUENCE_ENCODERS, TIMESTEP_ENCODERS)
COMPONENTS = [(registry, name) for registry in REGISTRIES for name in registry.names() if name != "auto"]
LINKED = {"window_steps"}
"""Section fields that are null by default because they follow another key."""


@pytest.mark.parametrize(("registry", "name"), COMPONENTS, ids=[f"{r.kind}-{n}" for r, n in COMPONENTS])
def test_section_matches_component(registry, name):
    section, component = registry.sections[name], registry.get(name)
    parameters = inspect.signature(component).parameters.values()
    options = {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    required = {k for k, f in section.model_fields.items() if f.is_required()}
    fields = {k: f.default for k, f in section.model_fields.items() if k != "type" and k not in LINKED}
    assert fields | dict.fromkeys(required, inspect.Parameter.empty) == options
    assert section(**dict.fromkeys(required, 1)).type == name
    assert section.__doc__
    assert all(f.description for k, f in section.model_fields.items() if k != "type")


@pytest.mark.parametrize("template", template_names())
def test_every_template_resolves(template):
    values = read_config_values(template)
    config = config_factory(values["algo_name"], values)
    assert config_factory(values["algo_name"], config.to_json()) == config


def test_every_algorithm_has_a_config_and_a_template():
    from seqrl.algo import ALGOS

    built_in = [n for n in ALGOS.names() if ALGOS.get(n).__module__.startswith("seqrl.algo")]
    assert set(built_in) <= set(get_all_registered_configs())
    assert {f"{name}.json" for name in built_in} <= set(template_names())
