"""How JSON becomes sections, with every problem reported at once."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from seqrl.configs.section import Component, Section
from seqrl.core.errors import ConfigError, did_you_mean


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
        values = values.to_values()
    if not isinstance(values, Mapping):
        problems.append((path or "(top)", f"must be an object with keys, got {values!r}"))
        return _FAILED
    known: dict[str, Any] = {}
    for key, value in values.items():
        child = f"{path}.{key}" if path else str(key)
        if key not in cls.model_fields:
            reason = cls.refused.get(key) or f"unknown key{did_you_mean(key, cls.model_fields)}"
            problems.append((child, reason))
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
    if value is None:
        return None
    component = _component_of(field.metadata)
    if component is not None:
        return _build_component(component, field.default, value, path, problems)
    section = _section_of(field.annotation)
    if section is not None:
        return _build(section, value, path, problems)
    origin, item = typing.get_origin(field.annotation), (typing.get_args(field.annotation) or (None,))[-1]
    if origin is list and isinstance(value, Sequence) and not isinstance(value, str):
        built = [_build_item(item, v, f"{path}.{i}", problems) for i, v in enumerate(value)]
        return _FAILED if any(v is _FAILED for v in built) else built
    if origin is dict and isinstance(value, Mapping):
        named = {k: _build_item(item, v, f"{path}.{k}", problems) for k, v in value.items()}
        return _FAILED if any(v is _FAILED for v in named.values()) else named
    return value


def _build_item(item: Any, value: Any, path: str, problems: list[tuple[str, str]]) -> Any:
    """Return one entry of a list or a dict; what is no section is left to pydantic."""
    component = _component_of(getattr(item, "__metadata__", ()))
    if component is not None:
        return _build_component(component, None, value, path, problems)
    section = _section_of(item)
    return value if section is None else _build(section, value, path, problems)


def _build_component(component: Component, default: Any, value: Any, path: str, problems: list[tuple[str, str]]) -> Any:
    if isinstance(value, Section):
        value = value.to_values()
    names = component.registry.names()
    if not isinstance(value, Mapping):
        example = names[0] if names else "name"
        problems.append((path, f'must be an object such as {{"type": "{example}"}}, got {_short(value)}'))
        return _FAILED
    name = value.get("type", getattr(default, "type", None))
    if name is None:
        problems.append((f"{path}.type", f"is required; registered: {', '.join(names)}"))
        return _FAILED
    try:
        return _build(component.section(str(name)), value, path, problems)
    except ConfigError as error:
        problems.append((f"{path}.type", str(error)))
        return _FAILED


def _component_of(metadata: Iterable[Any]) -> Component | None:
    return next((m for m in metadata if isinstance(m, Component)), None)


def _section_of(annotation: Any) -> type[Section] | None:
    """Return the Section class of an annotation ``S`` or ``S | None``."""
    options = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, Section)), None)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


_PHRASES = {
    "greater_than": "must be > {gt}",
    "greater_than_equal": "must be >= {ge}",
    "less_than": "must be < {lt}",
    "less_than_equal": "must be <= {le}",
    "literal_error": "must be one of {expected}",
    "missing": "is required",
    "too_short": "must have at least {min_length} entries",
    "string_too_short": "must have at least {min_length} characters",
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
