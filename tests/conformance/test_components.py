"""Every built-in component has a section whose fields and defaults are those of its class or function."""

import inspect
from collections.abc import Mapping

import pytest

import seqrl.algo
import seqrl.configs.sections.images
import seqrl.configs.sections.relabel
import seqrl.data.relabel
import seqrl.envs.exploration  # noqa: F401  (the five register everything)
from seqrl.configs import config_factory, get_all_registered_configs, read_config_values, template_names
from seqrl.configs.section import Section
from seqrl.core.registry import (
    DISTRIBUTIONS,
    EXPLORATIONS,
    FILTERS,
    IMAGE_CORES,
    IMAGE_RANDOMIZERS,
    MODALITIES,
    RELABELERS,
    SEQUENCE_ENCODERS,
    TIMESTEP_ENCODERS,
)

REGISTRIES = (
    DISTRIBUTIONS,
    EXPLORATIONS,
    FILTERS,
    IMAGE_CORES,
    IMAGE_RANDOMIZERS,
    MODALITIES,
    RELABELERS,
    SEQUENCE_ENCODERS,
    TIMESTEP_ENCODERS,
)
COMPONENTS = [(registry, name) for registry in REGISTRIES for name in registry.names() if name != "auto"]
LINKED = {"window_steps"}
"""Section fields that are null by default because they follow another key."""


def plain(default):
    """Return a default of a section or a class in one form: lists, dicts, and (type, {}) for a default component."""
    if isinstance(default, Section):
        assert default == type(default)()
        return [default.type, {}]
    if isinstance(default, Mapping):
        return dict(default)
    return [plain(item) for item in default] if isinstance(default, list | tuple) else default


@pytest.mark.parametrize(("registry", "name"), COMPONENTS, ids=[f"{r.kind}-{n}" for r, n in COMPONENTS])
def test_section_matches_component(registry, name):
    section, component = registry.sections[name], registry.get(name)
    parameters = inspect.signature(component).parameters.values()
    options = {p.name: plain(p.default) for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    required = {k for k, f in section.model_fields.items() if f.is_required()}
    fields = {k: plain(f.default) for k, f in section.model_fields.items() if k != "type" and k not in LINKED}
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
