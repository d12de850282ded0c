"""Pictures of a run: curves as SVG, episodes as GIF."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

Rows = Sequence[dict[str, Any]]
_COLOURS = ("#2563eb", "#dc2626", "#059669", "#9333ea")


def curve_svg(
    rows: Rows, names: Sequence[str], title: str, *, interval: bool = False, limits: Any = None, log: bool = False
) -> str | None:
    """Return a chart of metrics against gradient steps as SVG text, or None if none was logged.

    Args:
        rows: Lines of ``metrics.jsonl``.
        names: Metrics to draw.
        title: Above the chart.
        interval: Shade between ``<name>_low`` and ``<name>_high``.
        limits: Range of the vertical axis.
        log: Logarithmic vertical axis, if every value is positive.
    """
    series = {n: _points(rows, n) for n in names}
    series = {n: points for n, points in series.items() if len(points)}
    if not series:
        return None
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.1), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for (name, points), colour in zip(series.items(), _COLOURS, strict=False):
        step, value, low, high = points.T
        axes.plot(step, value, color=colour, label=name, marker="o" if len(points) < 15 else None, markersize=3)
        if interval:
            axes.fill_between(step, low, high, color=colour, alpha=0.18, lw=0)
    if log and all((points[:, 1] > 0).all() for points in series.values()):
        axes.set_yscale("log")
    if limits is not None:
        axes.set_ylim(*limits)
    axes.set_xlabel("gradient steps")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=8)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _points(rows: Rows, name: str) -> np.ndarray:
    """Return ``(N, 4)``: step, value, and the interval's ends (NaN where there is none)."""
    logged = [r for r in rows if r.get(name) is not None]
    keys = ("step", name, f"{name}_low", f"{name}_high")
    return np.array([[np.nan if r.get(k) is None else r[k] for k in keys] for r in logged], np.float64).reshape(-1, 4)


def gif_bytes(frames: Sequence[np.ndarray], fps: float = 12.0, max_width: int = 640) -> bytes:
    """Return an endless GIF; frames ``(H, W, 3)`` uint8 wider than ``max_width`` are thinned by a whole factor."""
    import imageio.v3 as imageio

    factor = -(-frames[0].shape[1] // max_width)
    small = np.stack([f[::factor, ::factor] for f in frames])
    data: bytes = imageio.imwrite("<bytes>", small, extension=".gif", duration=1000 / fps, loop=0)
    return data
