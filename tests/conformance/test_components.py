"""Every built-in component has a section whose fields and defaults are those of its class or function."""

import pytest

from seqrl.configs import config_factory, get_all_registered_configs, read_config_values, template_names
from seqrl.conformance.components import CHECKS, REGISTRIES, ComponentCase

CASES = [ComponentCase(registry, name) for registry in REGISTRIES for name in registry.names() if name != "auto"]


FITTING = [
    pytest.param(check, case, id=f"{case.registry.kind}-{case.name}-{name}")
    for case in CASES
    for name, check in CHECKS.items()
    if name == "section_matches" or check.fits(case)
]


@pytest.mark.parametrize(("check", "case"), FITTING)
def test_component(check, case):
    assert check.fits(case)  # a section that somebody wrote
    check(case)


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
