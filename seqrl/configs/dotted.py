"""Values in nested dicts by their dotted key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def value_at(values: Any, key: str, default: Any = None) -> Any:
    """Return what ``{"a": {"b": 1}}`` has at ``"a.b"``, the default if a part of the key is missing."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return default
        values = values[part]
    return values


def has_value(values: Any, key: str) -> bool:
    """Tell whether there is something at a dotted key, which may be None."""
    nothing = object()
    return value_at(values, key, nothing) is not nothing


def copied(values: Any) -> Any:
    """Return nested dicts as new ones, with the same values."""
    return {k: copied(v) for k, v in values.items()} if isinstance(values, Mapping) else values


def set_missing(values: dict[str, Any], path: Sequence[str], value: Any) -> bool:
    """Set what is not given yet at the parts of a dotted key, and tell whether it was."""
    node = values
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            return False  # the section itself is wrong, which the config says
    if path[-1] in node:
        return False
    node[path[-1]] = value
    return True
