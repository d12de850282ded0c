"""How a benchmark's figures are kept: one JSON file per benchmark, with date, commit and hardware."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
NOT_CODE = (":(exclude,top)docs", ":(exclude,top)*.md", ":(exclude,top)benchmarks/*results/*")
"""What a benchmark itself writes, which makes its commit no other."""


def record(name: str, figures: dict[str, Any]) -> Path:
    """Write ``results/<name>.json`` and return its path."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name}.json"
    file.write_text(json.dumps({**provenance(), **figures}, indent=2) + "\n")
    return file


def provenance() -> dict[str, Any]:
    """Return date, commit (``-dirty`` where code differs from it), hardware and versions."""
    commit = _git("describe", "--always")
    is_changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", *NOT_CODE) != ""
    return {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "commit": f"{commit}-dirty" if is_changed else commit,
        "hardware": f"{_processor()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version()} | {p: version(p) for p in ("torch", "numpy", "h5py")},
    }


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table; a word on it where there are none."""
    if not rows:
        return "Not measured yet."
    columns = list(rows[0])
    lines = [columns, ["---"] * len(columns), *[[str(row[c]) for c in columns] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_table(page: Path, name: str, text: str) -> None:
    """Put a table between a page's marks, ``<!-- name table -->`` and ``<!-- end of the name table -->``."""
    begin, end = f"<!-- {name} table -->\n", f"<!-- end of the {name} table -->\n"
    before, found, rest = page.read_text().partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{page}: no marks for the table")
    page.write_text(f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}")
