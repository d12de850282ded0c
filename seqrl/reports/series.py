"""Lines of ``metrics.jsonl`` as points of curves."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

logger = logging.getLogger(__name__)

Rows = Sequence[dict[str, Any]]
MAX_GROUPS = 300


@dataclass(frozen=True)
class Axis:
    """What curves are drawn against.

    Attributes:
        key: In the lines of ``metrics.jsonl``.
        label: Below the chart.
        unit: Values are divided by it.
    """

    key: str
    label: str
    unit: float = 1.0


GRADIENT_STEPS = Axis("step", "gradient steps")
AXES = {
    "env_steps": Axis("progress/env_steps", "environment steps"),
    "gradient_steps": GRADIENT_STEPS,
    "epoch": Axis("progress/epoch", "epochs"),
    "wall_s": Axis("time/wall_s", "wall time (s)"),
}
"""What a person calls the axes on the command line."""


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a ``metrics.jsonl``.

    A torn last line is left out, as a kill leaves it; so are damaged ones, with a warning.
    """
    if not file.is_file():
        return []
    lines = file.read_bytes().split(b"\n")
    rows, damaged = [], []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(_row(line))
        except (ValueError, RecursionError):
            damaged += [number] if number < len(lines) else []
    if damaged:
        more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
        logger.warning("%s: line %d%s is damaged, and left out", file, damaged[0], more)
    return rows


def _row(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or not all(v is None or isinstance(v, int | float) for v in row.values()):
        raise ValueError("no numbers by name")
    return row


def _number(row: Mapping[str, Any], key: str) -> float:
    """Return a number of a line; NaN if it is missing, null or not finite."""
    value = row.get(key)
    return float(value) if value is not None and np.isfinite(value) else np.nan


def _in_order(rows: Rows, x: Axis) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Return the lines that have a place on the axis, in its order, and their places."""
    places = np.array([_number(r, x.key) for r in rows], np.float64) / x.unit
    order = [int(i) for i in np.argsort(places, kind="stable") if np.isfinite(places[i])]
    return [rows[i] for i in order], places[order]


def points_of(rows: Rows, name: str, x: Axis) -> np.ndarray:
    """Return ``(N, 4)``: place, value, and the interval's ends (NaN where there is none)."""
    kept, places = _in_order([r for r in rows if name in r], x)
    keys = (name, f"{name}_low", f"{name}_high")
    values = np.array([[_number(r, k) for k in keys] for r in kept], np.float64).reshape(-1, 3)
    return np.column_stack([places, values])


def merged(points: np.ndarray) -> np.ndarray:
    """Return one point for each place: the mean of its values, and their range instead of an interval's ends."""
    if not len(points):
        return points
    places, first = np.unique(points[:, 0], return_index=True)
    out = np.full((len(places), 4), np.nan)
    for i, values in enumerate(np.split(points[:, 1], first[1:])):
        known = values[np.isfinite(values)]
        out[i, 0] = places[i]
        if len(known):
            out[i, 1:] = known.mean(), known.min(), known.max()
    return out


def thinned(points: np.ndarray) -> np.ndarray:
    """Return the lowest and the highest point of each group of neighbours: more than a screen can show says nothing."""
    if len(points) <= 2 * MAX_GROUPS:
        return points
    kept: set[int] = set()
    for group in np.array_split(np.arange(len(points)), MAX_GROUPS):
        known = group[np.isfinite(points[group, 1])]
        some = known if len(known) else group[:1]
        kept |= {int(some[points[some, 1].argmin()]), int(some[points[some, 1].argmax()])}
    return points[sorted(kept | {0, len(points) - 1})]


def shares_of(rows: Rows, names: Sequence[str], x: Axis) -> tuple[np.ndarray, np.ndarray]:
    """Return places ``(N,)`` and shares ``(N, K)``; of many lines, means over neighbours."""
    kept, places = _in_order([r for r in rows if any(n in r for n in names)], x)
    shares = np.array([[_number(r, n) if n in r else 0.0 for n in names] for r in kept], np.float64)
    shares = shares.reshape(-1, len(names))
    if len(places) > MAX_GROUPS:
        groups = np.array_split(np.arange(len(places)), MAX_GROUPS)
        places, shares = places[[g[-1] for g in groups]], np.stack([shares[g].mean(0) for g in groups])
    return places, shares


def range_end(rows: Rows, key: str) -> float:
    """Return the largest value of a key; 0 if there is none."""
    return max((n for n in (_number(row, key) for row in rows) if np.isfinite(n)), default=0.0)


def default_axis(runs: Sequence[Rows]) -> Axis:
    """Return the axis for several runs: environment steps if all of them took some, else gradient steps."""
    axis = AXES["env_steps"]
    return axis if runs and all(range_end(rows, axis.key) > 0 for rows in runs) else GRADIENT_STEPS


def smoothed(values: np.ndarray, weight: float) -> np.ndarray:
    """Return the exponential moving average of values ``(N,)``, corrected for its start; NaN stays where it is.

    Args:
        values: In the order of the axis.
        weight: Of what came before, in ``[0, 1)``; 0 changes nothing.
    """
    out = np.full(len(values), np.nan)
    total = norm = 0.0
    for i in np.flatnonzero(np.isfinite(values)):
        total, norm = weight * total + values[i], weight * norm + 1.0
        out[i] = total / norm
    return out
