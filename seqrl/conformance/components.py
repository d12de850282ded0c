"""A component's section of a run file must be that of its class or function, and the same after it was saved."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError

import seqrl.algo
import seqrl.configs.sections.images
import seqrl.configs.sections.relabel
import seqrl.data.relabel
import seqrl.envs.exploration  # noqa: F401  (the five register everything)
from seqrl.configs.building import build_section
from seqrl.configs.section import Component, Section
from seqrl.conformance.check import Check, ConformanceError, difference, expect, named
from seqrl.core.errors import ConfigError
from seqrl.core.registry import (
    DENOISERS,
    DISTRIBUTIONS,
    EXPLORATIONS,
    FILTERS,
    IMAGE_CORES,
    IMAGE_RANDOMIZERS,
    MODALITIES,
    RELABELERS,
    SEQUENCE_ENCODERS,
    TIMESTEP_ENCODERS,
    Registry,
)

REGISTRIES: tuple[Registry[Any], ...] = (
    DENOISERS,
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
LINKED = {"window_steps", "num_frames"}
"""Section fields that are null by default because they follow another key, or that are not for the class itself."""


@dataclass(frozen=True)
class ComponentCase:
    """A registered component.

    Attributes:
        registry: Where it is registered.
        name: Its name.
    """

    registry: Registry[Any]
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """Name -> default of its keyword-only arguments; ``inspect.Parameter.empty`` where there is none."""
        parameters = inspect.signature(self.registry.get(self.name)).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}

    @property
    def missing(self) -> list[str]:
        """Options that have no default."""
        return [name for name, default in self.options.items() if default is inspect.Parameter.empty]


def section_matches(case: ComponentCase) -> None:
    """Its section has the fields and the defaults of the class, and all are described."""
    section: Any = case.registry.sections[case.name]
    options = {name: _plain(default) for name, default in case.options.items()}
    required = {k for k, f in section.model_fields.items() if f.is_required()}
    own = [k for k in section.model_fields if k != "type" and (k in options or k not in LINKED)]
    fields = {k: _plain(section.model_fields[k].default) for k in own}
    fields |= dict.fromkeys(required, inspect.Parameter.empty)
    for name in sorted(fields.keys() | options.keys()):
        there = f"{section.__name__} has {_told(fields, name)}, and the component itself {_told(options, name)}"
        expect(name in fields and name in options and fields[name] == options[name], f"option {name!r}: {there}")
    given = section(**dict.fromkeys(required, 1)).type
    expect(given == case.name, f"{section.__name__}.type is {given!r}, expected {case.name!r}")
    expect(bool(section.__doc__), f"{section.__name__} has no docstring")
    silent = [k for k, f in section.model_fields.items() if k != "type" and not f.description]
    expect(not silent, f"{section.__name__}: {', '.join(silent)} without a description")


def survives_json(case: ComponentCase) -> None:
    """Its options are the same after they were written to a run file and read again."""
    section = Component(case.registry).section(case.name)
    try:
        given = build_section(section, {}, "its defaults")
        saved = given.model_dump(mode="json", serialize_as_any=True)
        read = build_section(section, json.loads(json.dumps(saved)), "its defaults, saved and read again")
    except (ConfigError, PydanticSerializationError) as error:
        raise ConformanceError(str(error)) from error
    problem = difference(given.options(), read.options())
    expect(not problem, f"saved and read again, {problem}")


def _has_defaults(case: ComponentCase) -> bool:
    section: Any = Component(case.registry).section(case.name)
    return not any(f.is_required() for f in section.model_fields.values())


def _has_section(case: ComponentCase) -> bool:
    """Whether somebody wrote its section; others are derived from the class."""
    section = case.registry.sections.get(case.name)
    return section is not None and section.__module__ != Section.__module__


CHECKS: dict[str, Check[ComponentCase]] = named(
    Check("has a section that matches its class", section_matches, cheap=True, fits=_has_section),
    Check("has options that can be saved", survives_json, cheap=True, fits=_has_defaults),
)


def _plain(default: Any) -> Any:
    """Return a default of a section or a class in one form: lists, dicts, and (type, {}) for a default component."""
    if isinstance(default, Section):
        return [default.choice()[0], {} if default == type(default)() else default.to_values()]
    if isinstance(default, Mapping):
        return dict(default)
    return [_plain(item) for item in default] if isinstance(default, list | tuple) else default


def _told(defaults: Mapping[str, Any], name: str) -> str:
    if name not in defaults:
        return "none of that name"
    return "no default" if defaults[name] is inspect.Parameter.empty else f"the default {defaults[name]!r}"
