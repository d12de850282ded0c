"""Summaries of evaluation episodes, with intervals. They hold for this checkpoint, not for the method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqrl.envs.metrics import Episode

Z_95 = 1.959963984540054
NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval.

    Attributes:
        value: Point estimate.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


def iqm(values: np.ndarray) -> float:
    """Interquartile mean: the mean of the middle half, fractional weights at its ends (Agarwal et al., 2021).

    Args:
        values: ``(N,)`` or ``(..., N)``; the last axis is averaged.
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=-1)
    n = ordered.shape[-1]
    edges = np.clip(np.arange(n + 1), n / 4, 3 * n / 4)
    weights = np.diff(edges)
    return (ordered * weights).sum(-1) / weights.sum()  # type: ignore[no-any-return]


def bottom_quintile(values: np.ndarray) -> float:
    """Mean of the worst fifth (at least one value)."""
    ordered = np.sort(np.asarray(values, np.float64))
    return float(ordered[: max(1, len(ordered) // 5)].mean())


def mean_interval(values: np.ndarray) -> Estimate:
    """Mean, with a percentile bootstrap interval from a fixed generator."""
    values = np.asarray(values, np.float64)
    means = _resamples(values).mean(-1)
    return Estimate(float(values.mean()), *percentile_interval(means))


def iqm_interval(values: np.ndarray) -> Estimate:
    """Interquartile mean, with a percentile bootstrap interval from a fixed generator."""
    values = np.asarray(values, np.float64)
    return Estimate(float(iqm(values)), *percentile_interval(np.asarray(iqm(_resamples(values)))))


def percentile_interval(values: np.ndarray) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile of a statistic's resamples."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def wilson_interval(successes: int, trials: int) -> Estimate:
    """Share of successes, with Wilson's score interval (Wilson, 1927).

    Raises:
        ValueError: If there is no trial.
    """
    if trials < 1:
        raise ValueError("wilson_interval needs at least one trial")
    share = successes / trials
    scale = 1 + Z_95**2 / trials
    centre = (share + Z_95**2 / (2 * trials)) / scale
    half = Z_95 / scale * math.sqrt(share * (1 - share) / trials + Z_95**2 / (4 * trials**2))
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half))


def summarize_episodes(episodes: Sequence[Episode], prefix: str = "eval") -> dict[str, float]:
    """Return ``group/name`` -> number for the episodes of one evaluation.

    With several environment names, each has its own group, and the plain names hold the means over names.

    Raises:
        ValueError: If there is no episode.
    """
    if not episodes:
        raise ValueError("no episode was finished")
    by_name: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_name.setdefault(episode.env_name, []).append(episode)
    parts = {name: _summary(group) for name, group in sorted(by_name.items())}
    if len(parts) == 1:
        (overall,) = parts.values()
        return {f"{prefix}/{k}": v for k, v in overall.items()}
    keys = [k for k in dict.fromkeys(k for part in parts.values() for k in part) if not k.endswith(("_low", "_high"))]
    overall = {k: float(np.mean([part[k] for part in parts.values() if k in part])) for k in keys}
    overall["episodes"] = float(len(episodes))
    each = {f"{prefix}/{name}/{k}": v for name, part in parts.items() for k, v in part.items()}
    return {f"{prefix}/{k}": v for k, v in overall.items()} | each


def _summary(episodes: Sequence[Episode]) -> dict[str, float]:
    returns = np.array([e.total_reward for e in episodes])
    mean, middle = mean_interval(returns), iqm_interval(returns)
    out = {
        "return_mean": mean.value,
        "return_mean_low": mean.low,
        "return_mean_high": mean.high,
        "return_iqm": middle.value,
        "return_iqm_low": middle.low,
        "return_iqm_high": middle.high,
        "return_bottom_quintile": bottom_quintile(returns),
        "length_mean": float(np.mean([e.length for e in episodes])),
        "episodes": float(len(episodes)),
    }
    known = [e.success for e in episodes if e.success is not None]
    if known:
        share = wilson_interval(sum(known), len(known))
        out |= {"success_mean": share.value, "success_mean_low": share.low, "success_mean_high": share.high}
    for key in sorted({k for e in episodes for k in e.log}):
        out[key] = float(np.mean([e.log[key] for e in episodes if key in e.log]))
    return out


def _resamples(values: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    return values[rng.integers(0, len(values), (NUM_RESAMPLES, len(values)))]
