"""The pictures of ``seqrl compare``, and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqrl.core.files import write_atomic, write_json
from seqrl.reports.intervals import Difference, Estimate
from seqrl.reports.method_scores import Comparison, MethodResult
from seqrl.reports.plots import (
    COLOURS,
    LONGEST,
    TITLE_SIZE,
    add_legend,
    draw_band,
    label_axis,
    make_figure,
    save_figure,
    shown_label,
    styles_of,
)

TITLES = {"iqm": "IQM", "mean": "mean", "median": "median", "optimality_gap": "optimality gap"}
MAX_PAIRS = 15
MAX_SETTINGS = 12


def write_comparison(folder: Path, found: Comparison) -> list[Path]:
    """Write ``results.json``, ``table.md`` and the pictures, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "results.json", found.to_json())
    write_atomic(folder / "table.md", comparison_table(found) + "\n")
    for name in ("improvement.png", "efficiency.png"):  # of an earlier comparison
        (folder / name).unlink(missing_ok=True)
    _aggregates(folder / "aggregates.png", found)
    _profile(folder / "profile.png", found)
    written = ["results.json", "table.md", "aggregates.png", "profile.png"]
    if found.improvement:
        _improvement(folder / "improvement.png", found)
        written.append("improvement.png")
    if any(len(m.places) > 1 for m in found.methods):
        _efficiency(folder / "efficiency.png", found)
        written.append("efficiency.png")
    return [folder / name for name in written]


# --------------------------------------------------------------------------------------------- tables
def comparison_table(found: Comparison) -> str:
    """Return all numbers as Markdown tables whose columns are aligned."""
    options = found.options
    statistics = list(found.methods[0].aggregates)
    head = ["method", "runs", *(TITLES[s] for s in statistics)]
    rows = [[m.name, str(m.num_runs), *(format_estimate(m.aggregates[s]) for s in statistics)] for m in found.methods]
    where = f"{len(found.tasks)} tasks" if len(found.tasks) > 1 else found.tasks[0]
    parts = [
        f"{options.metric} on {where}; 95 % intervals over runs, where a task has five or more",
        markdown_table(head, rows),
        "Mean of the runs, and each of them",
        markdown_table(
            ["task", *(m.name for m in found.methods)],
            [[t, *(f"{format_estimate(m.by_task[t])}: {_scores(m, t)}" for m in found.methods)] for t in found.tasks],
        ),
    ]
    if found.improvement:
        rows = [
            [x, y, format_estimate(e), *_verdict(found.differences[x, y])] for (x, y), e in found.improvement.items()
        ]
        head = ["X", "Y", "P(X > Y)", "mean of X - mean of Y", "p (Welch)", "seeds needed"]
        parts.append(markdown_table(head, rows))
    if found.settings:
        parts += ["Where they differ", "\n".join(f"- {name}: {_shortened(s)}" for name, s in found.settings.items())]
    return "\n\n".join(parts)


def _shortened(settings: Sequence[str]) -> str:
    more = len(settings) - MAX_SETTINGS
    return ", ".join(settings[:MAX_SETTINGS]) + (f" and {more} more (settings in results.json)" if more > 0 else "")


def _scores(method: MethodResult, task: str) -> str:
    return " ".join(format_number(s.value) for s in method.scores if s.task == task)


def _verdict(difference: Difference) -> list[str]:
    """Return difference, p, and how many seeds of each method it would take to show it."""
    estimate = Estimate(difference.value, difference.low, difference.high)
    p_value = "-" if difference.p_value is None else f"{difference.p_value:.2g}"
    return [format_estimate(estimate), p_value, "-" if difference.num_seeds is None else f"{difference.num_seeds}"]


def format_estimate(value: Estimate) -> str:
    """Return ``0.912 [0.85, 0.96]``, or the value alone where it has no interval."""
    ends = [format_number(end) for end in (value.low, value.high) if end is not None]
    return format_number(value.value) + (f" [{', '.join(ends)}]" if len(ends) == 2 else "")


def format_number(value: float) -> str:
    """Return three digits, or all before the point."""
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table that can be read as text too."""
    cells = [[cell.replace("|", r"\|") for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------- pictures
def _aggregates(file: Path, found: Comparison) -> None:
    """One panel per statistic, one bar per method."""
    statistics = list(found.methods[0].aggregates)
    names = [m.name for m in found.methods]
    figure, panels = make_figure(len(statistics), columns=4, size=(2.7, 0.9 + 0.38 * len(names)))
    _widen(figure, names)
    for axes, statistic in zip(panels, statistics, strict=True):
        estimates = {m.name: m.aggregates[statistic] for m in found.methods}
        _bars(axes, estimates, {name: style["color"] for name, style in styles_of(names).items()})
        low, high = min(e.ends[0] for e in estimates.values()), max(e.ends[1] for e in estimates.values())
        margin = 0.06 * ((high - low) or 1.0)
        axes.set_xlim(low - margin, high + margin)
        axes.set_title(TITLES[statistic], fontsize=TITLE_SIZE)
        if axes is not panels[0]:
            axes.set_yticklabels([])
    figure.supxlabel(_metric(found), fontsize=9)
    save_figure(figure, file)


def _improvement(file: Path, found: Comparison) -> None:
    """One bar per pair of methods; what lies to the right of the line speaks for the first."""
    pairs = dict(list(found.improvement.items())[:MAX_PAIRS])
    estimates = {f"{shown_label(x, LONGEST)}\n> {shown_label(y, LONGEST)}": e for (x, y), e in pairs.items()}
    figure, (axes,) = make_figure(1, size=(4.4, 0.9 + 0.5 * len(pairs)))
    _widen(figure, [name for pair in pairs for name in pair])
    _bars(axes, estimates, dict.fromkeys(estimates, COLOURS[0]), shorten=False)
    axes.axvline(0.5, color="#6b7280", lw=1, ls="--")
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("P(X > Y): a run of X beats a run of Y")
    if len(pairs) < len(found.improvement):
        axes.set_title(f"{len(pairs)} of {len(found.improvement)} pairs; the table has all", fontsize=TITLE_SIZE)
    save_figure(figure, file)


def _widen(figure: Any, names: Sequence[str]) -> None:
    """Give a figure the room that names beside it need."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + 0.065 * max(len(shown_label(name, LONGEST)) for name in names), height)


def _bars(axes: Any, estimates: Mapping[str, Estimate], colours: Mapping[str, str], *, shorten: bool = True) -> None:
    """Draw intervals as pale bars and estimates as marks across them, from the top down."""
    for row, (name, e) in enumerate(estimates.items()):
        axes.barh(row, e.ends[1] - e.ends[0], left=e.ends[0], height=0.56, color=colours[name], alpha=0.35, lw=0)
        axes.vlines(e.value, row - 0.28, row + 0.28, color=colours[name], lw=2.2)
    axes.set_yticks(range(len(estimates)), [shown_label(n, LONGEST) if shorten else n for n in estimates], fontsize=8)
    axes.set_ylim(len(estimates) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(visible=False, axis="y")
    axes.locator_params(axis="x", nbins=5)


def _profile(file: Path, found: Comparison) -> None:
    """The share of runs above each score."""
    figure, (axes,) = make_figure(1, size=(5.6, 3.4))
    styles = styles_of([m.name for m in found.methods])
    lines = {m.name: draw_band(axes, found.thresholds, m.profile, styles[m.name]) for m in found.methods}
    axes.set_xlabel(f"threshold of {_metric(found)}")
    axes.set_ylabel("share of runs above")
    axes.set_ylim(-0.02, 1.02)
    add_legend(figure, lines)
    save_figure(figure, file)


def _efficiency(file: Path, found: Comparison) -> None:
    """The interquartile mean against the axis."""
    figure, (axes,) = make_figure(1, size=(5.6, 3.4))
    styles = styles_of([m.name for m in found.methods])
    known = [m for m in found.methods if len(m.places)]
    lines = {m.name: draw_band(axes, m.places, m.curve, styles[m.name]) for m in known}
    label_axis(axes, found.options.x)
    axes.set_ylabel(f"IQM of {_metric(found)}")
    add_legend(figure, lines)
    save_figure(figure, file)


def _metric(found: Comparison) -> str:
    return found.options.metric + (" (scaled)" if found.options.ranges else "")
