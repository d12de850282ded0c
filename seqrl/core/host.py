"""Where a process runs: its machine and commit, and what it uses of the machine."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from seqrl.version import __version__


def provenance() -> dict[str, str]:
    """Return what is worth knowing of a run later: versions, host, command, and the git commit of the current folder.

    The commit ends in ``-dirty`` if tracked files have changed since, and in ``-unknown`` if git could not tell;
    outside a repository there is none.
    """
    facts = {
        "seqrl": __version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "host": platform.node(),
        "platform": platform.platform(),
        "cpus": str(os.cpu_count()),
        "command": " ".join(sys.argv),
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    if commit := _git("rev-parse", "HEAD"):
        changes = _git("status", "--porcelain", "--untracked-files=no")
        facts["commit"] = commit + ("-unknown" if changes is None else "-dirty" if changes else "")
    return facts


def read_starts(file: Path) -> list[dict[str, str]]:
    """Return the :func:`provenance` of each start of a run, from its ``provenance.json``; none if it cannot be read."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return [{key: str(value) for key, value in entry.items()} for entry in entries]


def _git(*arguments: str) -> str | None:
    """Return what git prints; None if it fails, is not there, or this is no repository."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()
    return None


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def peak_memory_gb() -> float | None:
    """Return the most memory that this process has held, in GB, without its children's; None where nothing tells."""
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 if sys.platform == "darwin" else 1e6)
