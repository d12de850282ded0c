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
TITLE_SIZE = 10
FEW = 15
MAX_SHADED = 3
LONGEST = 60
_ROW = 0.24
_DASHES = ("-", "--", ":", "-.")


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
    (line,) = axes.plot(places, band[:, 0], lw=1.6, marker="o" if len(places) < FEW else None, ms=3, **style)
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
    marker = "o" if np.isfinite(points[:, 1]).sum() < FEW else None
    points = thinned(points)
    (line,) = axes.plot(points[:, 0], points[:, 1], lw=1.4, marker=marker, markersize=3, **style)
    return line
