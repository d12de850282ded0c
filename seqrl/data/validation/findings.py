"""What a check has found: one entry per kind of fault, with some of the places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

MAX_EXAMPLES = 100
Level = Literal["problem", "warning"]


@dataclass
class Finding:
    """One kind of fault.

    Attributes:
        level: A ``problem`` keeps the data from being read or learnt from as it is; a ``warning`` may be meant.
        kind: A word or two, the same in every version.
        text: What is wrong, with what.
        count: In how many places.
        examples: The first places, such as ``demo_3 step 17``; empty where it concerns the whole dataset.
    """

    level: Level
    kind: str
    text: str
    count: int = 0
    examples: list[str] = field(default_factory=list)


class Findings:
    """Gathers findings; equal ones are counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[Level, str, str], Finding] = {}

    def problem(self, kind: str, text: str, place: str = "") -> None:
        """Add a problem."""
        self._add("problem", kind, text, place)

    def warning(self, kind: str, text: str, place: str = "") -> None:
        """Add a warning."""
        self._add("warning", kind, text, place)

    def _add(self, level: Level, kind: str, text: str, place: str) -> None:
        finding = self._found.setdefault((level, kind, text), Finding(level, kind, text))
        finding.count += 1
        if place and len(finding.examples) < MAX_EXAMPLES:
            finding.examples.append(place)

    def all(self) -> list[Finding]:
        """Return all, problems first."""
        return sorted(self._found.values(), key=lambda finding: finding.level)
