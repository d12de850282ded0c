"""How JSON becomes sections, with every problem reported at once."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from seqrl.configs.section import Component, Section
from seqrl.core.errors import ConfigError, did_you_mean


def build_section(cls: type[Section], values: Any, source: str, path: str = "") -> Any:
    """Return ``cls`` built from JSON ``values``.

    Args:
        cls: Section class.
        values: Parsed JSON; what is absent takes the default.
        source: Where the values come from, for the message.
        path: Of the section in its document, if that is not the whole.

    Raises:
        ConfigError: That lists every unknown key, wrong type and value out of range with its dotted path.
    """
    problems = _Problems()
    built = _build(cls, values, path, problems)
    if problems.num:
        raise ConfigError(f"{source}: {problems}")
    return built


_FAILED = object()
_MOST, _MOST_KEYS = 50, 15


class _Problems:
    """What is wrong, each with its dotted path; of very many the first are told, and the others counted.

    Attributes:
        num: How many there are, at least.
    """

    def __init__(self) -> None:
        self.num = 0
        self._told: list[tuple[str, str]] = []

    @property
    def is_full(self) -> bool:
        """Whether no more are told."""
        return self.num >= _MOST

    def add(self, path: str, text: str | Callable[[], str]) -> None:
        """Take a problem; a text that takes time is made only if it is told."""
        if not self.is_full:
            self._told.append((_short(path, 120), text if isinstance(text, str) else text()))
        self.num += 1

    def __str__(self) -> str:
        width = max(len(path) for path, _ in self._told)
        lines = [f"  {path:<{width}}  {text}" for path, text in self._told]
        more = [f"  and {self.num - _MOST} more"] if self.num > _MOST else []
        return "\n".join([f"{self.num} problem{'s' if self.num > 1 else ''}", *lines, *more])


def _build(cls: type[Section], values: Any, path: str, problems: _Problems) -> Any:
    if isinstance(values, Section):
        values = values.to_values()
    if not isinstance(values, Mapping):
        problems.add(path or "(top)", f"must be an object with keys, got {_short(repr(values))}")
        return _FAILED
    known, fields, prefix = dict[str, Any](), cls.model_fields, f"{path}." if path else ""
    for key, value in values.items():
        child = f"{prefix}{key}"
        if key not in fields:
            problems.add(child, functools.partial(_why_not, cls, key, child))
        else:
            known[key] = _build_field(cls, key, value, child, problems)
    failed = {key for key, value in known.items() if value is _FAILED}
    try:
        return cls.model_validate({k: v for k, v in known.items() if k not in failed})
    except ValidationError as error:
        for entry in error.errors():
            if not (entry["loc"] and entry["loc"][0] in failed):
                problems.add(*_readable(entry, path))
        return _FAILED


def _why_not(cls: type[Section], key: str, path: str) -> str:
    from seqrl.configs.robomimic_rules import RULES

    if key in cls.refused:
        return cls.refused[key]
    if any(rule == path or rule.startswith(f"{path}.") for rule in RULES):
        return "unknown key (robomimic's); seqrl convert-config shows what replaces it"
    homes = [
        f"{name}.{key}" for name, of in cls.model_fields.items() if key in getattr(of.annotation, "model_fields", ())
    ]
    near = f"; did you mean {homes[0]!r}?" if homes else did_you_mean(key, cls.model_fields)
    if not near and 0 < len(cls.model_fields) <= _MOST_KEYS and "." in path:  # another memory's, for instance
        near = f"; there are {', '.join(cls.model_fields)}"
    return f"unknown key{near}"


def _build_field(cls: type[Section], key: str, value: Any, path: str, problems: _Problems) -> Any:
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
    if isinstance(value, list) and tuple in (kinds := _kinds_of(field.annotation)) and list not in kinds:
        return tuple(value)  # JSON has no tuples
    return value


def _build_item(item: Any, value: Any, path: str, problems: _Problems) -> Any:
    """Return one entry of a list or a dict; what is no section is left to pydantic."""
    component = _component_of(getattr(item, "__metadata__", ()))
    if component is not None:
        return _build_component(component, None, value, path, problems)
    section = _section_of(item)
    if section is not None and problems.is_full:
        return _FAILED  # enough is told
    return value if section is None else _build(section, value, path, problems)


def _build_component(component: Component, default: Any, value: Any, path: str, problems: _Problems) -> Any:
    if isinstance(value, Section):
        value = value.to_values()
    names = component.registry.names()
    if not isinstance(value, Mapping):
        example = names[0] if names else "name"
        problems.add(path, f'must be an object such as {{"type": "{example}"}}, got {_short(repr(value))}')
        return _FAILED
    name = value.get("type", getattr(default, "type", None))
    if name is None:
        problems.add(f"{path}.type", f"is required; registered: {', '.join(names)}")
        return _FAILED
    try:
        return _build(component.section(str(name)), value, path, problems)
    except ConfigError as error:
        problems.add(f"{path}.type", str(error))
        return _FAILED


def _component_of(metadata: Iterable[Any]) -> Component | None:
    return next((m for m in metadata if isinstance(m, Component)), None)


def _section_of(annotation: Any) -> type[Section] | None:
    """Return the Section class of an annotation ``S`` or ``S | None``."""
    options = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, Section)), None)


def _kinds_of(annotation: Any) -> set[Any]:
    options = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return {typing.get_origin(option) or option for option in options}


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
    "string_pattern_mismatch": "must be a name of letters, digits and _ . + = -, and not of dots alone",
    "too_long": "must have at most {max_length} entries",
}


def _readable(entry: Any, path: str) -> tuple[str, str]:
    places = [part for part in map(str, entry["loc"]) if not part.startswith(("constrained-", "list["))]
    dotted = ".".join([path] * bool(path) + places)
    kind = entry["type"]
    if kind in _PHRASES:
        text = _PHRASES[kind].format(**entry.get("ctx", {}))
    else:
        text = entry["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        text = text if kind == "value_error" else f"must be {text}"
    if kind not in ("missing", "value_error"):
        text += f", got {_short(repr(entry['input']))}"
        if isinstance(entry["input"], str) and entry["input"].startswith(("[", "{")):
            text += ", which is no JSON: names need double quotes"
    return dotted or "(top)", text


def _short(text: str, most: int = 60) -> str:
    return text if len(text) < most else text[: most - 3] + "..."
