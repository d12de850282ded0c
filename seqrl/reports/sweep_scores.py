"""What a sweep came to: settings and their scores as a table, a CSV file and a picture."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqrl.reports.comparison_figures import format_estimate, format_number, markdown_table
from seqrl.reports.intervals import Estimate, compare_means, mean_interval
from seqrl.reports.plots import COLOURS, TITLE_SIZE, axis_number, make_figure, save_figure, shown_label
from seqrl.reports.series import read_metrics

SCORE_PREFIXES = ("eval/", "valid/", "metric/")
"""Of the keys of ``metrics.jsonl`` that tell how good a policy is."""
MAX_ROWS = 30
_LOG_FROM = 20.0
"""Numbers that differ by more than this factor have a logarithmic axis."""


@dataclass(frozen=True)
class SettingScores:
    """One setting.

    Attributes:
        name: Of the setting.
        values: Key that varies -> value.
        scores: Seed -> score; None where the run has not ended.
        note: Why it has no more, such as ``pruned``.
        is_base: Whether the values are those of the base run.
        is_share: Whether scores lie between 0 and 1, as successes do.
    """

    name: str
    values: Mapping[str, Any]
    scores: Mapping[int, float | None]
    note: str = ""
    is_base: bool = False
    is_share: bool = False

    @property
    def known(self) -> np.ndarray:
        """The scores that are there."""
        return np.array([score for score in self.scores.values() if score is not None], np.float64)

    @property
    def is_complete(self) -> bool:
        """Whether every seed has a score, and there is one."""
        return bool(self.scores) and all(score is not None for score in self.scores.values())

    @property
    def estimate(self) -> Estimate | None:
        """Mean over seeds, with an interval from five seeds on; None without a score."""
        if not len(self.known):
            return None
        found = mean_interval(self.known)
        if found.low is None or found.high is None or not self.is_share:
            return found
        return Estimate(found.value, max(found.low, 0.0), min(found.high, 1.0))


@dataclass(frozen=True)
class SweepScores:
    """All settings.

    Attributes:
        settings: In the order of the plan.
        labels: Key that varies -> what it is called.
        metric: Whose last value is a score.
        direction: Whether more (``max``) or less (``min``) is better.
    """

    settings: Sequence[SettingScores]
    labels: Mapping[str, str]
    metric: str
    direction: str

    def ranked(self) -> list[SettingScores]:
        """Return the settings, the best first; those without all seeds behind the others."""
        sign = -1.0 if self.direction == "max" else 1.0

        def order(setting: SettingScores) -> tuple[bool, float]:
            estimate = setting.estimate
            return not setting.is_complete, math.inf if estimate is None else sign * estimate.value

        return sorted(self.settings, key=order)

    @property
    def best(self) -> SettingScores | None:
        """The setting of the best mean, of those with all seeds."""
        return next((setting for setting in self.ranked() if setting.is_complete), None)

    @property
    def base(self) -> SettingScores | None:
        """The setting with the base run's own values, if it has all seeds."""
        return next((setting for setting in self.settings if setting.is_base and setting.is_complete), None)


def last_score(run: Path, metric: str) -> float | None:
    """Return the last value of a metric of a run; None if there is none, or if that one is not finite."""
    values = [row[metric] for row in read_metrics(run / "metrics.jsonl") if metric in row]
    return float(values[-1]) if values and values[-1] is not None and math.isfinite(values[-1]) else None


def metrics_of(run: Path) -> set[str]:
    """Return the names of what a run's evaluations and validations have."""
    names = {name for row in read_metrics(run / "metrics.jsonl") for name in row}
    return {name for name in names if name.startswith(SCORE_PREFIXES)}


# --------------------------------------------------------------------------------------------- tables
def sweep_csv(found: SweepScores) -> str:
    """Return all settings in the order of the plan, numbers in full."""
    seeds = list(dict.fromkeys(seed for setting in found.settings for seed in setting.scores))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = ["mean", "low", "high", "min", "max"]
    writer.writerow(["setting", *found.labels, "seeds", *numbers, *(f"seed {seed}" for seed in seeds), "note"])
    for setting in found.settings:
        known, estimate = setting.known, setting.estimate
        told: list[float | None] = [None] * 5
        if estimate is not None:
            told = [estimate.value, estimate.low, estimate.high, float(known.min()), float(known.max())]
        values = [_as_text(setting.values[key]) if key in setting.values else "" for key in found.labels]
        scores = [setting.scores.get(seed) for seed in seeds]
        cells = ["" if number is None else repr(number) for number in (*told, *scores)]
        writer.writerow([setting.name, *values, len(known), *cells, setting.note])
    return text.getvalue()


def sweep_table(found: SweepScores) -> str:
    """Return the settings as a Markdown table, the best first, and what the best is worth against the base run."""
    rows = [_row(setting, found) for setting in found.ranked()[:MAX_ROWS]]
    head = [*found.labels.values(), "seeds", "mean", "lowest to highest", "each seed", ""]
    head = head if found.labels else ["setting", *head]
    better = "more" if found.direction == "max" else "less"
    lines = [f"{found.metric}, {better} is better; 95 % intervals over seeds, from five seeds on"]
    lines.append(markdown_table(head, rows))
    if (hidden := len(found.settings) - len(rows)) > 0:
        lines.append(f"{hidden} more settings are in sweep.csv")
    return "\n\n".join([*lines, *_verdict(found)])


def _row(setting: SettingScores, found: SweepScores) -> list[str]:
    known, estimate = setting.known, setting.estimate
    values = [_as_text(setting.values[key]) if key in setting.values else "" for key in found.labels] or [setting.name]
    scores = " ".join("-" if score is None else format_number(score) for score in setting.scores.values())
    spread = f"{format_number(known.min())} to {format_number(known.max())}" if len(known) > 1 else "-"
    mean = "-" if estimate is None else format_estimate(estimate)
    note = ", ".join(text for text in ("base" if setting.is_base else "", setting.note) if text)
    return [*values, str(len(known)), mean, spread, scores, note]


def _verdict(found: SweepScores) -> list[str]:
    best, base = found.best, found.base
    if best is None or best.estimate is None or len(found.settings) < 2:
        return []
    equal = sum(s.is_complete and s.known.mean() == best.known.mean() for s in found.settings) - 1
    text = f"best: {best.name}, {format_estimate(best.estimate)}{f' (and {equal} more)' if equal else ''}"
    if base is not None and base.estimate is not None and base is not best:
        difference = compare_means(best.known, base.known)
        p_value = "" if difference.p_value is None else f", p {difference.p_value:.2g} by Welch's test"
        text += f"; the base run's own values: {format_estimate(base.estimate)} ({difference.value:+.3g}{p_value})"
    elif base is not None and base is best:
        text += "; these are the base run's own values"
    return [f"{text}. The best of many looks better than it is: run best.json with other seeds."]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# ------------------------------------------------------------------------------------------- picture
def draw_sweep(file: Path, found: SweepScores) -> None:
    """Write a PNG with a panel for each key: every run a dot, every setting's mean a ring, the best one filled.

    A line joins the means of each value of a grid. Without a key the panel shows the seeds.
    """
    keys = list(found.labels) or [""]
    figure, panels = make_figure(len(keys), size=(4.2, 3.2))
    for axes, key in zip(panels, keys, strict=True):
        _panel(axes, key, found)
        axes.set_title(shown_label(found.labels.get(key, "seeds")), fontsize=TITLE_SIZE)
        axes.set_ylabel(found.metric, fontsize=9)
        axes.yaxis.set_major_formatter(axis_number)
    save_figure(figure, file)


def _panel(axes: Any, key: str, found: SweepScores) -> None:
    shown = [s for s in found.settings if len(s.known) and (not key or key in s.values)]
    if not shown:
        return
    if not key:
        seeds = [(seed, score) for s in shown for seed, score in s.scores.items() if score is not None]
        axes.plot(range(len(seeds)), [score for _, score in seeds], "o", color=COLOURS[0], ms=5)
        axes.set_xticks(range(len(seeds)), [str(seed) for seed, _ in seeds])
        axes.set_xlabel("seed")
        return
    places = _places(axes, [s.values[key] for s in shown])
    for x, setting in zip(places, shown, strict=True):
        axes.plot([x] * len(setting.known), setting.known, "o", color=COLOURS[0], ms=3, alpha=0.3, mew=0)
        is_best = setting is found.best
        face = COLOURS[1] if is_best else "none"
        colour = COLOURS[1] if is_best else COLOURS[0]
        axes.plot(x, setting.known.mean(), "o", ms=6, mfc=face, mec=colour, zorder=4 if is_best else 3)
    groups = {x: [s.known.mean() for s, at in zip(shown, places, strict=True) if at == x] for x in sorted(set(places))}
    if len(groups) > 1 and (len(groups) < len(shown) or len(found.labels) == 1):
        axes.plot(list(groups), [float(np.mean(means)) for means in groups.values()], color=COLOURS[7], lw=1, zorder=1)


def _places(axes: Any, values: Sequence[Any]) -> list[float]:
    """Return where values lie on the horizontal axis: numbers as they are, others side by side."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        if min(values) > 0 and max(values) > _LOG_FROM * min(values):
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_formatter(axis_number)
        return [float(value) for value in values]
    texts = [_as_text(value) for value in values]
    order = list(dict.fromkeys(texts))
    axes.set_xticks(range(len(order)), [shown_label(text, 18) for text in order], fontsize=8)
    axes.set_xlim(-0.5, len(order) - 0.5)
    return [float(order.index(text)) for text in texts]
