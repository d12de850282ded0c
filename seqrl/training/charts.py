"""Pictures of a run: curves as SVG, episodes as GIF."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Rows = Sequence[dict[str, Any]]
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#9333ea", "#d97706", "#0891b2", "#be185d", "#4d7c0f")
_FEW_POINTS = 15


@dataclass(frozen=True)
class Axis:
    """What curves are drawn against.

    Attributes:
        key: Of the rows.
        label: Below the chart.
        unit: Values are divided by it.
    """

    key: str
    label: str
    unit: float = 1.0


GRADIENT_STEPS = Axis("step", "gradient steps")
ENV_STEPS = Axis("progress/env_steps", "environment steps")


@dataclass(frozen=True)
class Chart:
    """Which metrics make one picture.

    Attributes:
        title: Above it.
        lines: Metric -> its name in the legend.
        interval: Shade between ``<name>_low`` and ``<name>_high``.
        limits: Range of the vertical axis.
        log: Logarithmic vertical axis, if every value is positive.
    """

    title: str
    lines: Mapping[str, str]
    interval: bool = False
    limits: tuple[float, float] | None = None
    log: bool = False


def axes_of(rows: Rows) -> list[Axis]:
    """Return the axes that a run has, the most telling first: environment steps only where there are any."""
    axes = [GRADIENT_STEPS] if any(r.get("step") for r in rows) or not _largest(rows, ENV_STEPS.key) else []
    if _largest(rows, ENV_STEPS.key):
        axes.insert(0, ENV_STEPS)
    if seconds := _largest(rows, "time/wall_s"):
        axes.append(Axis("time/wall_s", "minutes", 60.0) if seconds >= 300 else Axis("time/wall_s", "seconds"))
    return axes


def _largest(rows: Rows, key: str) -> float:
    return max((r[key] for r in rows if r.get(key) is not None), default=0.0)


def curve_svg(rows: Rows, chart: Chart, axis: Axis = GRADIENT_STEPS) -> str | None:
    """Return a chart of metrics as SVG text, or None if none was logged with that axis.

    Args:
        rows: Lines of ``metrics.jsonl``.
        chart: What to draw.
        axis: Against what.
    """
    series = {n: _points(rows, n, axis) for n in chart.lines}
    series = {n: points for n, points in series.items() if len(points)}
    if not series:
        return None
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.1), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for (name, points), colour in zip(series.items(), _COLOURS, strict=False):
        x, value, low, high = points.T
        marker = "o" if len(points) < _FEW_POINTS else None
        axes.plot(x, value, color=colour, label=chart.lines[name], marker=marker, markersize=3)
        if chart.interval:
            axes.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)
    if chart.log and all((points[:, 1][np.isfinite(points[:, 1])] > 0).all() for points in series.values()):
        axes.set_yscale("log")
    if chart.limits is not None:
        axes.set_ylim(*chart.limits)
    axes.set_xlabel(axis.label)
    axes.set_title(chart.title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=8)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _points(rows: Rows, name: str, axis: Axis) -> np.ndarray:
    """Return ``(N, 4)``: position, value, and the interval's ends; what is null is NaN, a gap in the line."""
    logged = [r for r in rows if name in r and r.get(axis.key) is not None]
    if all(r[name] is None for r in logged):
        return np.zeros((0, 4))
    keys = (axis.key, name, f"{name}_low", f"{name}_high")
    values = [[np.nan if r.get(k) is None else r[k] for k in keys] for r in logged]
    points = np.array(values, np.float64).reshape(-1, 4)
    points[:, 0] /= axis.unit
    return points


def gif_bytes(frames: Sequence[np.ndarray], fps: float = 12.0, max_width: int = 640) -> bytes:
    """Return an endless GIF; frames ``(H, W, 3)`` uint8 wider than ``max_width`` are thinned by a whole factor."""
    import imageio.v3 as imageio

    factor = -(-frames[0].shape[1] // max_width)
    small = np.stack([f[::factor, ::factor] for f in frames])
    data: bytes = imageio.imwrite("<bytes>", small, extension=".gif", duration=1000 / fps, loop=0)
    return data
