"""Writes the tables of settings in ``docs`` from the section classes: ``python docs/make_tables.py``.

A table stands between ``<!-- settings PREFIX MODULE:CLASS -->`` and ``<!-- end -->``; a test compares.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from seqrl.configs.section import Section

BLOCK = re.compile(r"(<!-- settings (\S+) (\S+):(\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
LIMITS = {"exclusiveMinimum": "> {}", "minimum": ">= {}", "exclusiveMaximum": "< {}", "maximum": "<= {}"}


def legal(schema: dict[str, Any]) -> str:
    """Return which values a key may have, from its JSON schema; nothing where its default says it."""
    parts = [*schema.get("anyOf", ()), schema]
    if "items" in schema:
        inner = legal(schema["items"])
        return f"list, each {inner}" if inner else "list"
    words = [part.get("enum", [part["const"]] if "const" in part else []) for part in parts]
    found = ["`" + "`, `".join(map(str, each)) + "`" for each in words if each]
    for part in parts:
        limits = [text.format(f"{part[key]:g}") for key, text in LIMITS.items() if key in part]
        found += limits[1:] if part.get("minimum", 0) > part.get("exclusiveMinimum", 0) else limits
    if any(part.get("type") == "null" for part in parts):
        return (", ".join(found) or "any") + " or `null`"
    return ", ".join(found)


def table(cls: type[Section], prefix: str) -> str:
    """Return a row for each key of a section: key, default, legal values, meaning."""
    properties = cls.model_json_schema()["properties"]
    lines = ["| key | default | legal | meaning |", "|---|---|---|---|"]
    for name, field in cls.model_fields.items():
        if name == "type":
            continue
        default: Any = field.get_default(call_default_factory=True)
        meaning = field.description or ""
        if isinstance(default, Section):
            kind = getattr(default, "type", None)
            shown = f"type `{kind}`" if kind else "a section"
            meaning = meaning or (type(default).__doc__ or "").splitlines()[0]
        else:
            shown = "required" if default is PydanticUndefined else f"`{json.dumps(default)}`"
        rule = "" if isinstance(default, Section) else legal(properties[name])
        lines.append(f"| `{prefix}.{name}` | {shown} | {rule} | {meaning.replace('``', '`')} |")
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """Return a page with all of its tables up to date."""

    def fill(match: re.Match[str]) -> str:
        head, prefix, module, name, end = match.groups()
        return head + table(getattr(import_module(module), name), prefix) + end

    return BLOCK.sub(fill, text)


def main() -> None:
    """Rewrite the pages."""
    for page in Path(__file__).parent.rglob("*.md"):
        text = page.read_text()
        if (new := filled(text)) != text:
            page.write_text(new)


if __name__ == "__main__":
    main()
