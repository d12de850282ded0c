"""Changes to a run file: by ``--set a.b=c``, and by another run file over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from seqrl.core.errors import ConfigError
from seqrl.core.strict_json import parse_json


def apply_overrides(values: dict[str, Any], overrides: Iterable[str]) -> list[str]:
    """Apply ``a.b=c`` texts to ``values`` in place, and return what was dropped, one line each.

    The value is read as JSON where it is JSON, Python's True, False and None as such, and as text elsewhere. An object
    changes the keys that it has, at any depth; an empty one, and ``kwargs``, replace what was there.
    Setting the ``type`` of a component to another one replaces the section by that type's defaults.

    Raises:
        ConfigError: If a text has no ``=``, or its path leads through a value that is not a section.
    """
    dropped = []
    for text in overrides:
        path, equals, raw = text.partition("=")
        if not equals or not path.strip():
            raise ConfigError(f"--set {text}: must have the form key.subkey=value")
        keys = path.strip().split(".")
        parent = _descend(values, keys[:-1], text)
        dropped += _assign(parent, keys, parse_value(raw))
    return dropped


def layered(values: dict[str, Any], over: dict[str, Any], path: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return the values of two run files, and what was dropped, one line each.

    The second file wins, sections are merged, lists replaced. Where the second gives a component another ``type``, the
    first's settings of that component are dropped, as ``--set`` does.
    """
    merged, dropped = dict(values), []
    for key, value in over.items():
        mine, here = merged.get(key), f"{path}.{key}".lstrip(".")
        if not (isinstance(mine, dict) and isinstance(value, dict)):
            merged[key] = value
        elif not _within_kwargs(here) and "type" in value and value["type"] != mine.get("type"):
            merged[key] = value
            dropped += _dropped(here, value["type"], set(mine) - set(value))
        else:
            merged[key], more = layered(mine, value, here)
            dropped += more
    return merged, dropped


def _within_kwargs(path: str) -> bool:
    """Tell whether a path is one of an environment's or a class's arguments, whose ``type`` is their own affair."""
    return any(key.endswith("kwargs") for key in path.split("."))


def _dropped(section: str, name: Any, keys: Iterable[str]) -> list[str]:
    gone = sorted(set(keys) - {"type"})
    return [f"{section}.type={name} drops {section}.{{{', '.join(gone)}}}"] if gone else []


def parse_value(raw: str) -> Any:
    """Return JSON, Python's True, False and None, and other text as it is."""
    try:
        return parse_json(raw)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(raw, raw)


def _descend(node: Any, keys: list[str], text: str) -> Any:
    for depth, key in enumerate(keys):
        node = node[_index(node, key, text)] if isinstance(node, list) else node.setdefault(key, {})
        if not isinstance(node, dict | list):
            raise ConfigError(f"--set {text}: {'.'.join(keys[: depth + 1])} is a value, {node!r}, not a section")
    return node


def _assign(parent: Any, keys: list[str], value: Any) -> list[str]:
    last = keys[-1]
    if isinstance(parent, list):
        parent[_index(parent, last, ".".join(keys))] = value
        return []
    section, gone = ".".join(keys[:-1]), list[str]()
    former, path = parent.get(last), ".".join(keys)
    if isinstance(value, dict) and value and isinstance(former, dict) and not _within_kwargs(path):
        if "type" not in value or value["type"] == former.get("type"):
            return [line for key, inner in value.items() for line in _assign(former, [*keys, key], inner)]
        gone = _dropped(path, value["type"], set(former) - set(value))
    if last == "type" and isinstance(value, str) and not _within_kwargs(section) and parent.get("type") != value:
        gone = _dropped(section, value, parent)
        parent.clear()
    parent[last] = value
    return gone


def _index(items: list[Any], key: str, text: str) -> int:
    if not (key.isascii() and key.isdecimal()) or int(key) >= len(items):
        raise ConfigError(f"--set {text}: {key!r} is not a valid index; the list has length {len(items)}")
    return int(key)
