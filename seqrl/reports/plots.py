"""Pictures of runs: curves and stacked areas as SVG for pages, figures as PNG for files."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqrl.core.files import write_atomic
from seqrl.reports.console import format_count
from seqrl.reports.series import (
    GRADIENT_STEPS,
    MAX_GROUPS,
    Axis,
    Rows,
    merged,
    points_of,
    range_end,
    shares_of,
    smoothed,
    thinned,
)

Names = Sequence[str] | Mapping[str, str]
COLOURS = ("#2563eb", "#dc2626", "#059669", "#9333ea", "#d97706", "#0891b2", "#be185d", "#64748b")
_MAX_LABEL = 30
_FEW = 15
_BINS = 40
_RC: dict[Any, Any] = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_MARGINS = {"left": 0.12, "right": 0.98, "top": 0.91, "bottom": 0.155}
_LEGEND_ROW = 0.055
"""Height of a row of the legend below a chart; as the margins, a share of the figure."""
_CHARACTER = 0.0175
"""Width of a character beside a tick, as a share of the figure."""
DPI = 130
PANEL = (4.6, 3.2)
TITLE_SIZE = 10
MAX_SHADED = 3
LONGEST = 60
_ROW = 0.24
_DASHES = ("-", "--", ":", "-.")


# ------------------------------------------------------------------------------------------------ SVG
def curve_svg(
    rows: Rows,
    names: Names,
    title: str,
    *,
    x: Axis = GRADIENT_STEPS,
    interval: bool = False,
    limits: Any = None,
    log: bool = False,
    thin: Collection[str] = (),
) -> str | None:
    """Return a chart of metrics against an axis as SVG text, or None if none was logged.

    A null leaves a gap. Points are joined in the order of ``x``. Where several lines have the same ``x``, a curve
    without an interval goes through their mean, and a pale bar spans their range.

    Args:
        rows: Lines of ``metrics.jsonl``.
        names: Metrics to draw, or what each is called in the legend.
        title: Above the chart.
        x: The horizontal axis.
        interval: Shade between ``<name>_low`` and ``<name>_high``.
        limits: Range of the vertical axis.
        log: Logarithmic vertical axis, if every value is positive and they differ much.
        thin: Metrics that are drawn as thin lines, without an interval.
    """
    labels = names if isinstance(names, Mapping) else {n: n for n in names}
    shaded = [n for n in labels if interval and n not in thin]
    series = {n: points_of(rows, n, x) if n in shaded else merged(points_of(rows, n, x)) for n in labels}
    series = {n: points for n, points in series.items() if np.isfinite(points[:, 1]).any()}
    if not series:
        return None
    figure, axes = _figure(rows, title, x)
    colours = dict(zip(labels, COLOURS * (len(labels) // len(COLOURS) + 1), strict=False))
    drawn = [
        _draw(axes, thinned(points), colours[n], shaded=n in shaded, thin=n in thin) for n, points in series.items()
    ]
    values = np.concatenate([points[:, 1:] for points in series.values()])
    if log and np.nanmin(values) > 0:
        _scale(axes, np.nanmin(values), np.nanmax(values))
    if limits is not None:
        axes.set_ylim(*limits)
    if len(series) > 1:
        _legend(axes, drawn, [labels[n] for n in series])
    return _svg(figure)


def stack_svg(rows: Rows, names: Names, title: str, *, x: Axis = GRADIENT_STEPS) -> str | None:
    """Return a chart of shares on top of one another as SVG text, or None if none was logged.

    A line's shares hold from the line before it up to its own ``x``. A share that a line does not name counts as 0; a
    null leaves a gap.

    Args:
        rows: Lines of ``metrics.jsonl``.
        names: Shares from the bottom up, or what each is called in the legend.
        title: Above the chart.
        x: The horizontal axis.
    """
    labels = names if isinstance(names, Mapping) else {n: n for n in names}
    places, shares = shares_of(rows, list(labels), x)
    present = [i for i in range(len(labels)) if np.fmax.reduce(shares[:, i], initial=0.0) > 0]
    if not present:
        return None
    figure, axes = _figure(rows, title, x)
    edges = np.concatenate([[0.0], places])
    values = np.concatenate([shares[:1], shares])[:, present]
    colours = [COLOURS[i % len(COLOURS)] for i in present]
    areas = axes.stackplot(edges, values.T, colors=colours, step="pre", alpha=0.75, lw=0)
    axes.set_ylim(0, np.fmax.reduce(values.sum(1), initial=1.0))
    _legend(axes, areas, [list(labels.values())[i] for i in present], below=True)
    return _svg(figure)


def histogram_svg(values: np.ndarray, title: str, *, label: str = "", categories: int = 0) -> str:
    """Return a histogram as SVG text.

    Args:
        values: ``(N,)`` finite numbers.
        title: Above it.
        label: Of the horizontal axis.
        categories: The values are 0 to this many, exclusive, and each has its bar; 0 for numbers of any kind.
    """
    figure, axes = _blank(title)
    axes.set_axisbelow(True)
    if categories:
        axes.bar(np.arange(categories), np.bincount(values.astype(np.int64), minlength=categories), color=COLOURS[0])
        axes.xaxis.get_major_locator().set_params(integer=True)
    else:
        low, high = float(values.min()), float(values.max())
        axes.hist(values, bins=_BINS, range=(low, high) if high > low else None, color=COLOURS[0])
    axes.set_xlabel(label)
    axes.yaxis.set_major_formatter(axis_number)
    return _svg(figure)


def _figure(rows: Rows, title: str, x: Axis) -> tuple[Any, Any]:
    """Return an empty chart whose horizontal range is that of the whole run."""
    figure, axes = _blank(title)
    end = range_end(rows, x.key) / x.unit
    if end > 0:
        axes.set_xlim(-0.02 * end, 1.02 * end)
    axes.xaxis.set_major_formatter(axis_number)
    axes.set_xlabel(x.label)
    return figure, axes


def _blank(title: str) -> tuple[Any, Any]:
    """Return an empty chart."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.1))  # a layout engine would double the time
    figure.subplots_adjust(**_MARGINS)
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.set_title(title.replace("$", r"\$"), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return figure, axes


def _draw(axes: Any, points: np.ndarray, colour: str, *, shaded: bool, thin: bool) -> Any:
    """Draw one metric; points without a neighbour are dots, with their interval as a bar. Return the line."""
    place, value, low, high = points.T
    known = np.isfinite(value)
    joined = known & (np.append(False, known[:-1]) | np.append(known[1:], False))
    dots = np.flatnonzero(known if known.sum() < _FEW and not thin else known & ~joined)
    width = 0.8 if thin else 1.0 if len(points) > MAX_GROUPS else 1.5
    (line,) = axes.plot(place, value, color=colour, lw=width)
    if len(dots):
        line.set(marker="o", markersize=3, markevery=dots)
    if shaded:
        axes.fill_between(place, low, high, color=colour, alpha=0.18, lw=0)
    bars = (high > low) & ~(shaded & joined)
    if bars.any():
        axes.vlines(place[bars], low[bars], high[bars], color=colour, alpha=0.3, lw=1)
    return line


def _scale(axes: Any, lowest: float, highest: float) -> None:
    """Make the vertical axis of positive values logarithmic; if they are close to one another, begin it at 0."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        """Chooses the ticks that get a label as matplotlib does, and writes 0.02 instead of a power."""

        def __call__(self, value: float, position: Any = None) -> str:
            return axis_number(value) if super().__call__(value, position) else ""

    if highest < 5 * lowest:
        axes.set_ylim(0, 1.05 * highest)
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(Plain())
    axes.yaxis.set_minor_formatter(Plain(minor_thresholds=(2, 0.4)))


def _legend(axes: Any, drawn: Sequence[Any], labels: Sequence[str], *, below: bool = False) -> None:
    """Name what was drawn, inside of the axes or, if it is much, below them."""
    shown = [shown_label(label) for label in labels]
    if below or len(labels) > 3:
        columns = 4 if max(map(len, shown)) < 14 else 2
        rows = -(-len(shown) // columns)
        axes.figure.subplots_adjust(bottom=_MARGINS["bottom"] + _LEGEND_ROW * (rows + 0.5))
        axes.figure.legend(drawn, shown, loc="lower center", ncols=columns, frameon=False, fontsize=8)
    else:
        axes.legend(drawn, shown, frameon=False, fontsize=8)


def shown_label(label: str, most: int = _MAX_LABEL) -> str:
    """Return a label, cut in its middle, that matplotlib takes for neither a formula nor one to leave out."""
    short = label if len(label) <= most else f"{label[: most // 2]}...{label[-(most // 2) :]}"
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")


def axis_number(value: float, _: Any = None) -> str:
    """Return what stands beside a tick."""
    return format_count(value) if abs(value) >= 1000 else f"{value:g}"


def _svg(figure: Any) -> str:
    """Return the figure's element, without indentation, its coordinates with two decimals."""
    import matplotlib

    axis = figure.axes[0].yaxis
    longest = max(len(label) for label in axis.get_major_formatter().format_ticks(axis.get_majorticklocs()))
    figure.subplots_adjust(left=max(_MARGINS["left"], 0.035 + _CHARACTER * longest))

    text = io.StringIO()
    with matplotlib.rc_context(_RC):
        figure.savefig(text, format="svg", metadata=_NO_METADATA)
    svg = text.getvalue()
    svg = re.sub(r"\n +", "\n", svg[svg.index("<svg") :])
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)


# ------------------------------------------------------------------------------------------------ PNG
def make_figure(num_panels: int, *, columns: int = 3, size: tuple[float, float] = PANEL) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, in rows of at most ``columns``.

    Args:
        num_panels: How many.
        columns: In one row, at most; four panels that would leave one alone make two rows of two.
        size: Width and height of a panel, in inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = 2 if (num_panels, columns) == (4, 3) else min(columns, num_panels)
    height = math.ceil(num_panels / width)
    figure = Figure(figsize=(size[0] * width, size[1] * height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(height, width, i + 1) for i in range(num_panels)]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure, panels


def save_figure(figure: Any, file: Path) -> None:
    """Write a figure as PNG."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=DPI, metadata={"Software": None})
    write_atomic(file, data.getvalue())


def styles_of(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return name -> colour and, where colours repeat, another kind of line."""
    num = len(COLOURS)
    dashes = [_DASHES[i // num % len(_DASHES)] for i in range(len(names))]
    return {name: {"color": COLOURS[i % num], "ls": dashes[i]} for i, name in enumerate(names)}


def add_legend(figure: Any, lines: Mapping[str, Any]) -> None:
    """Name lines below all panels, if there is more than one; the figure grows by what the names need."""
    if len(lines) < 2:
        return
    width, height = figure.get_size_inches()
    longest = max(len(shown_label(name, LONGEST)) for name in lines)
    columns = max(1, min(len(lines), int(width / (0.55 + 0.06 * longest))))
    figure.set_size_inches(width, height + _ROW * math.ceil(len(lines) / columns))
    names = [shown_label(name, LONGEST) for name in lines]
    figure.legend(list(lines.values()), names, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def draw_band(axes: Any, places: np.ndarray, band: np.ndarray, style: Mapping[str, str]) -> Any:
    """Draw ``(N, 3)`` (estimate, low, high) as a line with a pale band, and return the line; few points are dots."""
    (line,) = axes.plot(places, band[:, 0], lw=1.6, marker="o" if len(places) < _FEW else None, ms=3, **style)
    axes.fill_between(places, band[:, 1], band[:, 2], color=style["color"], alpha=0.18, lw=0)
    return line


def label_axis(axes: Any, x: Axis) -> None:
    """Name the horizontal axis, and write its numbers short."""
    axes.set_xlabel(x.label)
    axes.xaxis.set_major_formatter(axis_number)


def plot_metrics(
    file: Path, runs: Mapping[str, Sequence[dict[str, Any]]], keys: Sequence[str], x: Axis, *, weight: float = 0.0
) -> None:
    """Write a PNG with a panel for each metric and a line for each run.

    The interval that a metric has is shaded, if there are at most three runs. With smoothing, what was logged is pale
    behind the line.

    Args:
        file: Where to.
        runs: Name -> lines of ``metrics.jsonl``.
        keys: Metrics.
        x: The horizontal axis.
        weight: Of the exponential moving average; 0 does not smooth.
    """
    figure, panels = make_figure(len(keys))
    styles = styles_of(list(runs))
    if len(runs) == 1:
        figure.suptitle(shown_label(next(iter(runs)), LONGEST), fontsize=TITLE_SIZE)
    lines: dict[str, Any] = {}
    for axes, key in zip(panels, keys, strict=True):
        axes.set_title(key.replace("$", r"\$"), fontsize=TITLE_SIZE)
        label_axis(axes, x)
        for name, rows in runs.items():
            points = points_of(rows, key, x)
            if np.isfinite(points[:, 1]).any():
                lines[name] = _draw_run(axes, points, styles[name], weight, shaded=len(runs) <= MAX_SHADED)
    add_legend(figure, {name: lines[name] for name in runs if name in lines})
    save_figure(figure, file)


def _draw_run(axes: Any, points: np.ndarray, style: Mapping[str, str], weight: float, *, shaded: bool) -> Any:
    """Draw one metric of one run, and return its line."""
    if shaded and not weight and np.isfinite(points[:, 2:]).any():
        points = thinned(points)
        axes.fill_between(points[:, 0], points[:, 2], points[:, 3], color=style["color"], alpha=0.18, lw=0)
    else:
        points = merged(points)
    if weight:
        pale = thinned(points)
        axes.plot(pale[:, 0], pale[:, 1], lw=0.8, alpha=0.25, **style)
        points = np.column_stack([points[:, 0], smoothed(points[:, 1], weight), points[:, 2:]])
    marker = "o" if np.isfinite(points[:, 1]).sum() < _FEW else None
    points = thinned(points)
    (line,) = axes.plot(points[:, 0], points[:, 1], lw=1.4, marker=marker, markersize=3, **style)
    return line
