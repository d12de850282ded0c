"""Values in nested dicts by their dotted key."""

from __future__ import annotations

from collections.abc import Mapping
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
