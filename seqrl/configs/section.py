"""Typed config sections, and how JSON becomes them with every problem reported at once."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import CoreSchema, core_schema

from seqrl.core.errors import ConfigError, did_you_mean
from seqrl.core.registry import Registry


class Section(BaseModel):
    """Base of all sections: unknown keys and ill-typed assignments are errors."""

    model_config = ConfigDict(
        extra="forbid", strict=True, validate_assignment=True, allow_inf_nan=False, protected_namespaces=()
    )

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign a field; a value that is refused leaves the old one."""
        before = self.__dict__.get(name)
        try:
            super().__setattr__(name, value)
        except ValidationError:
            if name in self.__dict__:
                self.__dict__[name] = before
            raise

    def options(self) -> dict[str, Any]:
        """Return the fields of a component's section as keyword arguments for its class (all but ``type``)."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "type"}


class Component:
    """Marks a field that holds the section of one registered component, chosen by its ``type`` key."""

    def __init__(self, registry: Registry[Any]) -> None:
        self.registry = registry

    def section(self, name: str) -> type[Section]:
        """Return the section class of the component ``name``.

        Raises:
            ConfigError: If no such component is registered.
        """
        if name in self.registry.sections:
            return self.registry.sections[name]
        if name not in self.registry:
            raise ConfigError(self.registry.unknown(name))
        section = _derived_section(name, self.registry.get(name))
        self.registry.register_section(name)(section)
        return section

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Accept only sections of registered components, also on assignment."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, section: Section | None) -> Section | None:
        if section is not None and type(section) not in self.registry.sections.values():
            raise ValueError(f"must be the section of a {self.registry.kind}, got {type(section).__name__}")
        return section

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Describe the field as one of the registered sections, for editors."""
        options = [self.section(name).model_json_schema() for name in self.registry.names()]
        is_optional = schema.get("type") == "nullable" or "nullable" in str(schema.get("schema", {}).get("type"))
        return {"anyOf": [*options, {"type": "null"}] if is_optional else options}


def _derived_section(name: str, component: Any) -> type[Section]:
    """Make a section from the annotated keyword-only arguments of a plug-in's class."""
    hints = typing.get_type_hints(component.__init__)
    parameters = inspect.signature(component.__init__).parameters.values()
    options: dict[str, Any] = {
        p.name: (hints.get(p.name, Any), ... if p.default is inspect.Parameter.empty else p.default)
        for p in parameters
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    options["type"] = (typing.Literal[name], name)
    return create_model(f"{component.__name__}Section", __base__=Section, **options)


def build_section(cls: type[Section], values: Any, source: str) -> Any:
    """Return ``cls`` built from JSON ``values``.

    Args:
        cls: Section class of the whole document.
        values: Parsed JSON; what is absent takes the default.
        source: Where the values come from, for the message.

    Raises:
        ConfigError: That lists every unknown key, wrong type and value out of range with its dotted path.
    """
    problems: list[tuple[str, str]] = []
    built = _build(cls, values, "", problems)
    if problems:
        width = max(len(path) for path, _ in problems)
        lines = "\n".join(f"  {path:<{width}}  {text}" for path, text in problems)
        plural = "s" if len(problems) > 1 else ""
        raise ConfigError(f"{source}: {len(problems)} problem{plural}\n{lines}")
    return built


_FAILED = object()


def _build(cls: type[Section], values: Any, path: str, problems: list[tuple[str, str]]) -> Any:
    if isinstance(values, Section):
        values = values.model_dump()
    if not isinstance(values, Mapping):
        problems.append((path or "(top)", f"must be an object with keys, got {values!r}"))
        return _FAILED
    known: dict[str, Any] = {}
    for key, value in values.items():
        child = f"{path}.{key}" if path else str(key)
        if key not in cls.model_fields:
            problems.append((child, f"unknown key{did_you_mean(key, cls.model_fields)}"))
        else:
            known[key] = _build_field(cls, key, value, child, problems)
    failed = {key for key, value in known.items() if value is _FAILED}
    try:
        return cls.model_validate({k: v for k, v in known.items() if k not in failed})
    except ValidationError as error:
        for entry in error.errors():
            if not (entry["loc"] and entry["loc"][0] in failed):
                problems.append(_readable(entry, path))
        return _FAILED


def _build_field(cls: type[Section], key: str, value: Any, path: str, problems: list[tuple[str, str]]) -> Any:
    field = cls.model_fields[key]
    component = next((m for m in field.metadata if isinstance(m, Component)), None)
    if component is not None and value is not None:
        return _build_component(component, field.default, value, path, problems)
    child = _section_of(field.annotation)
    if child is not None and value is not None:
        return _build(child, value, path, problems)
    item = _section_of(_item_type(field.annotation))
    if item is not None and isinstance(value, Sequence) and not isinstance(value, str):
        built = [_build(item, v, f"{path}.{i}", problems) for i, v in enumerate(value)]
        return _FAILED if _FAILED in built else built
    return value


def _build_component(component: Component, default: Any, value: Any, path: str, problems: list[tuple[str, str]]) -> Any:
    if isinstance(value, Section):
        value = value.model_dump()
    if not isinstance(value, Mapping):
        problems.append((path, f'must be an object such as {{"type": "{component.registry.names()[0]}"}}'))
        return _FAILED
    name = value.get("type", getattr(default, "type", None))
    try:
        return _build(component.section(str(name)), value, path, problems)
    except ConfigError as error:
        problems.append((f"{path}.type", str(error)))
        return _FAILED


def _section_of(annotation: Any) -> type[Section] | None:
    """Return the Section class of an annotation ``S`` or ``S | None``."""
    options = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, Section)), None)


def _item_type(annotation: Any) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is list else None


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


_PHRASES = {
    "greater_than": "must be > {gt}",
    "greater_than_equal": "must be >= {ge}",
    "less_than": "must be < {lt}",
    "less_than_equal": "must be <= {le}",
    "literal_error": "must be one of {expected}",
    "missing": "is required",
    "finite_number": "must be a finite number",
}


def _readable(entry: Any, path: str) -> tuple[str, str]:
    dotted = ".".join([path] * bool(path) + [str(part) for part in entry["loc"]])
    kind = entry["type"]
    if kind in _PHRASES:
        text = _PHRASES[kind].format(**entry.get("ctx", {}))
    else:
        text = entry["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        text = text if kind == "value_error" else f"must be {text}"
    if kind not in ("missing", "value_error"):
        text += f", got {_short(entry['input'])}"
    return dotted or "(top)", text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."
