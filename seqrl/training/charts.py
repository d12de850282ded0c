"""Charts of a run: curves and stacked areas as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from seqrl.training.console import format_count
from seqrl.training.series import (
    GRADIENT_STEPS,
    MAX_GROUPS,
    Axis,
    Rows,
    merged,
    points_of,
    range_end,
    shares_of,
    thinned,
)

Names = Sequence[str] | Mapping[str, str]
COLOURS = ("#2563eb", "#dc2626", "#059669", "#9333ea", "#d97706", "#0891b2", "#be185d", "#64748b")
_MAX_LABEL = 30
_FEW = 15
_RC: dict[Any, Any] = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


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


def _figure(rows: Rows, title: str, x: Axis) -> tuple[Any, Any]:
    """Return an empty chart whose horizontal range is that of the whole run."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.1), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    end = range_end(rows, x.key) / x.unit
    if end > 0:
        axes.set_xlim(-0.02 * end, 1.02 * end)
    axes.xaxis.set_major_formatter(axis_number)
    axes.set_xlabel(x.label)
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
        axes.figure.legend(drawn, shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
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

    text = io.StringIO()
    with matplotlib.rc_context(_RC):
        figure.savefig(text, format="svg", metadata=_NO_METADATA)
    svg = text.getvalue()
    svg = re.sub(r"\n +", "\n", svg[svg.index("<svg") :])
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)
