"""Names that tell a run's settings, and nothing of the order in which they were planned."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

MAX_BYTES = 160
_MAX_VALUE = 24
_SAY_LITTLE = ("type", "id", "n")


def key_labels(keys: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return key -> its shortest end that no other key has, or the name that it was given."""
    labels = {}
    for key in keys:
        parts = key.split(".")
        least = 2 if parts[-1] in _SAY_LITTLE or parts[-1].isdecimal() else 1
        ends = [".".join(parts[-n:]) for n in range(least, len(parts) + 1)]
        alone = (end for end in ends if sum(f".{k}".endswith(f".{end}") for k in keys) == 1)
        labels[key] = names.get(key) or next(alone, key)
    return labels


def value_label(value: Any) -> str:
    """Return a value as a part of a name; what cannot stand there as it is, gets a checksum."""
    text = f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else json.dumps(value)
    text = value if isinstance(value, str) else text
    if len(text) <= _MAX_VALUE and re.fullmatch(r"[\w.+-]+", text, re.ASCII):
        return text
    shown = str(value["type"]) if isinstance(value, dict) and "type" in value else text
    return f"{_cleaned(shown)[:_MAX_VALUE]}-{_checksum(value)}".lstrip("-")


def setting_name(values: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return ``learning_rate=0.001_type=gru``, or ``base`` where nothing varies."""
    parts = [f"{_cleaned(labels[key])}={value_label(value)}" for key, value in values.items()]
    name = "_".join(parts) or "base"
    return name if len(name.encode()) <= MAX_BYTES else f"{name[: MAX_BYTES - 10]}-{_checksum(dict(values))}"


def _cleaned(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text, flags=re.ASCII).strip("-")


def _checksum(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]
