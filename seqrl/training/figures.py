"""Figures as PNG: what those of all commands have in common, and metrics of runs."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqrl.core.files import write_atomic
from seqrl.training.charts import COLOURS, axis_number, shown_label
from seqrl.training.series import Axis, merged, points_of, smoothed, thinned

DPI = 130
PANEL = (4.6, 3.2)
_ROW = 0.24


def make_figure(num_panels: int, *, columns: int = 3, size: tuple[float, float] = PANEL) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, in rows of at most ``columns``.

    Args:
        num_panels: How many.
        columns: In one row.
        size: Width and height of a panel, in inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = min(columns, num_panels)
    height = math.ceil(num_panels / width)
    figure = Figure(figsize=(size[0] * width, size[1] * height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(height, width, i + 1) for i in range(num_panels)]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.title.set_fontsize(10)
    return figure, panels


def save_figure(figure: Any, file: Path) -> None:
    """Write a figure as PNG."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=DPI, metadata={"Software": None})
    write_atomic(file, data.getvalue())


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """Return name -> colour."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def add_legend(figure: Any, lines: Mapping[str, Any]) -> None:
    """Name lines below all panels, if there is more than one; the figure grows by what the names need."""
    if len(lines) < 2:
        return
    width, height = figure.get_size_inches()
    longest = max(len(shown_label(name)) for name in lines)
    columns = max(1, min(len(lines), int(width / (0.75 + 0.075 * longest))))
    figure.set_size_inches(width, height + _ROW * math.ceil(len(lines) / columns))
    names = [shown_label(name) for name in lines]
    figure.legend(list(lines.values()), names, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def draw_band(axes: Any, places: np.ndarray, band: np.ndarray, colour: str, **style: Any) -> Any:
    """Draw ``(N, 3)`` (estimate, low, high) as a line with a pale band, and return the line."""
    (line,) = axes.plot(places, band[:, 0], color=colour, lw=1.6, **style)
    axes.fill_between(places, band[:, 1], band[:, 2], color=colour, alpha=0.18, lw=0)
    return line


def label_axis(axes: Any, x: Axis) -> None:
    """Name the horizontal axis, and write its numbers short."""
    axes.set_xlabel(x.label)
    axes.xaxis.set_major_formatter(axis_number)


def plot_metrics(
    file: Path, runs: Mapping[str, Sequence[dict[str, Any]]], keys: Sequence[str], x: Axis, *, weight: float = 0.0
) -> None:
    """Write a PNG with a panel for each metric and a line for each run.

    The interval that a metric has is shaded. With smoothing, what was logged is pale behind the line.

    Args:
        file: Where to.
        runs: Name -> lines of ``metrics.jsonl``.
        keys: Metrics.
        x: The horizontal axis.
        weight: Of the exponential moving average; 0 does not smooth.
    """
    figure, panels = make_figure(len(keys))
    colours = colours_of(list(runs))
    lines: dict[str, Any] = {}
    for axes, key in zip(panels, keys, strict=True):
        axes.set_title(key.replace("$", r"\$"))
        label_axis(axes, x)
        for name, rows in runs.items():
            points = points_of(rows, key, x)
            if np.isfinite(points[:, 1]).any():
                lines[name] = _draw_run(axes, points, colours[name], weight)
    add_legend(figure, {name: lines[name] for name in runs if name in lines})
    save_figure(figure, file)


def _draw_run(axes: Any, points: np.ndarray, colour: str, weight: float) -> Any:
    has_interval = np.isfinite(points[:, 2:]).any()
    points = thinned(points) if has_interval and not weight else points
    if weight or not has_interval:
        points = merged(points)
    if weight:
        pale = thinned(points)
        axes.plot(pale[:, 0], pale[:, 1], color=colour, lw=0.8, alpha=0.25)
        points = np.column_stack([points[:, 0], smoothed(points[:, 1], weight), points[:, 2:]])
    elif has_interval:
        axes.fill_between(points[:, 0], points[:, 2], points[:, 3], color=colour, alpha=0.18, lw=0)
    few = np.isfinite(points[:, 1]).sum() < 15
    points = thinned(points)
    (line,) = axes.plot(points[:, 0], points[:, 1], color=colour, lw=1.4, marker="o" if few else None, markersize=3)
    return line
