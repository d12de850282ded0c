"""Whether a run ended worse than it was on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqrl.reports.intervals import MIN_VALUES

MEASURES = ("success", "return")
RISE = 0.1
"""Share of its fall by which a held-out loss may rise again without a word."""


def fall_from_best(rows: Sequence[Mapping[str, Any]], kept: Sequence[str]) -> str | None:
    """Return what to tell of a run whose last evaluation is below its best one by more than their intervals.

    Success decides where it is reported, else the return. Nothing is told where one of the two evaluations has no
    interval, as with few episodes or several environments, unless all its episodes were alike. Without evaluations, it
    is told if the held-out loss rose.

    Args:
        rows: Lines of ``metrics.jsonl``.
        kept: Measures whose best checkpoint is kept (``experiment.save.best``).

    Returns:
        A sentence with both evaluations and the checkpoint to deploy; None if the run held what it had.
    """
    saved = [row for row in rows if row.get("progress/epoch", 1) > 0]  # 0 is not
    logged = {measure: [row for row in saved if f"eval/{measure}_mean" in row] for measure in MEASURES}
    lost = [measure for measure, own in logged.items() if own and own[-1][f"eval/{measure}_mean"] is None]
    for measure in [*lost, *MEASURES]:
        key = f"eval/{measure}_mean"
        found = [row for row in logged[measure] if row[key] is not None]
        if not found:
            continue
        best, last = max(found, key=lambda row: float(row[key])), logged[measure][-1]
        if measure not in lost:
            if not (_is_known(best, key) and _is_known(last, key)):
                return None
            if best.get(f"{key}_low", best[key]) <= last.get(f"{key}_high", last[key]):
                return None
        end = "not finite" if measure in lost else f"{last[key]:.4g}"
        advice = (
            f"deploy checkpoints/best_{measure}"
            if measure in kept
            else f"no checkpoint of it was kept: add {measure!r} to experiment.save.best"
        )
        return (
            f"the run ended below its best evaluation: {measure} {end} in the end, {best[key]:.4g} after "
            f"epoch {best.get('progress/epoch', 0):.0f}; {advice}"
        )
    return None if any(logged.values()) else _rise_of_loss(rows, kept)


def _rise_of_loss(rows: Sequence[Mapping[str, Any]], kept: Sequence[str]) -> str | None:
    """Return what to tell of a run without evaluations whose held-out loss rose by a tenth of what it had fallen by."""
    found = [row for row in rows if row.get("valid/total") is not None]
    saved = [row for row in found if row.get("progress/epoch", 1) > 0]
    if not saved:
        return None
    first, last = (row["valid/total"] for row in (found[0], found[-1]))
    best = min(saved, key=lambda row: float(row["valid/total"]))
    if last - best["valid/total"] <= RISE * max(abs(best["valid/total"]), first - best["valid/total"]):
        return None
    where = "checkpoints/best_valid_loss is of then" if "valid_loss" in kept else "no checkpoint of it was kept"
    return (
        f"the held-out loss rose: {last:.4g} in the end, {best['valid/total']:.4g} after epoch "
        f"{best.get('progress/epoch', 0):.0f}; {where}"
    )


def _is_known(row: Mapping[str, Any], key: str) -> bool:
    """Tell whether an evaluation has an interval, or needs none: enough episodes of one environment, all alike."""
    has_groups = any(name.endswith("/return_mean") and name != "eval/return_mean" for name in row)
    return f"{key}_low" in row or (row.get("eval/episodes", 0) >= MIN_VALUES and not has_groups)
