"""Runs all checks over a dataset, one episode in memory at a time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seqrl.data.validation.actions import ActionCheck
from seqrl.data.validation.checks import (
    DuplicateCheck,
    EndCheck,
    ImageCheck,
    LayoutCheck,
    NextObsCheck,
    ValueCheck,
    check_filters,
)
from seqrl.data.validation.findings import Finding, Findings
from seqrl.data.validation.raw import open_raw


@dataclass
class Report:
    """What is right and wrong with a dataset.

    Attributes:
        dataset: Its path.
        episodes: Their number.
        transitions: Of the episodes that can be read.
        length: Shortest, mean, longest.
        actions: Smallest and largest value of each dimension, and how often it is at a bound of a Box.
        findings: Problems first.
    """

    dataset: str
    episodes: int = 0
    transitions: int = 0
    length: dict[str, float] = field(default_factory=dict)
    actions: dict[str, list[float]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_fine(self) -> bool:
        """Whether there is no problem; there may be warnings."""
        return not any(finding.level == "problem" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"is_fine": self.is_fine, **asdict(self)}


def validate(path: Path) -> Report:
    """Return what is wrong with a robomimic file or a store.

    Damaged data is a finding and no error; a bad episode does not hide the next one.

    Raises:
        DataError: If there is no dataset to look at.
    """
    found, report = Findings(), Report(str(path))
    with open_raw(path) as raw:
        for fault in raw.faults:
            found.problem("damaged", fault)
        report.episodes = len(raw.names)
        check_filters(raw, found)
        layout, values, ends = LayoutCheck(raw.observation_space), ValueCheck(), EndCheck()
        actions, duplicates, images = ActionCheck(raw.action_space), DuplicateCheck(), ImageCheck()
        follows = NextObsCheck()
        for episode in raw.episodes:
            report.transitions += episode.steps or 0
            values.episode(episode, found)
            duplicates.episode(episode, found)
            if layout.episode(episode, found):
                ends.episode(episode, found)
                follows.episode(episode, found)
                actions.episode(episode, found)
                images.episode(episode, found)
    for check in (layout, ends, actions, images):
        check.finish(found)
    report.length, report.actions, report.findings = ends.facts(), actions.facts(), found.all()
    return report
