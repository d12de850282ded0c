"""JSON as the standard has it, and objects that carry a checksum of themselves."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_DEPTH = 64
_SEAL = "checksum"


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: If it is none. What Python would let pass is refused too: NaN, numbers beyond a float's range, a
            key twice in one object, objects and lists nested more than 64 deep.
    """
    try:
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite_float, object_pairs_hook=_unique_keys
        )
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None
    raw = text.encode() if isinstance(text, str) else text
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _check_depth(value)
    return value


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds; an empty one if there is none, or it cannot be read."""
    try:
        found = parse_json(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is beyond the range of numbers")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((name, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {name!r} appears twice in one object")
    return found


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        children = (child for node in level for child in (node.values() if isinstance(node, dict) else node))
        level = [child for child in children if isinstance(child, dict | list)]
    if level:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with one entry more: a checksum of all others."""
    return {**value, _SEAL: _digest(json.loads(json.dumps(value)))}


def unsealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without its checksum. One that never had any, from an earlier version, is returned as it is.

    Raises:
        ValueError: If the checksum is not that of the other entries.
    """
    rest = {k: v for k, v in value.items() if k != _SEAL}
    if _SEAL in value and value[_SEAL] != _digest(rest):
        raise ValueError(f"it was changed after it was written; if that was intended, remove its entry {_SEAL!r}")
    return rest


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
