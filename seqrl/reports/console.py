"""What a person sees on the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from termcolor import colored


def format_count(n: float) -> str:
    """Return 1234567 as ``1.23M``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(n) >= size * (1.0 if unit == "k" else 0.9995):  # 999.7k has three digits as 1M
            return f"{n / size:.3g}{unit}"
    return f"{n:.0f}"


def format_megabytes(mb: float) -> str:
    """Return megabytes, or gigabytes from 1,000 on."""
    return f"{mb / 1000:.3g} GB" if mb >= 999.5 else f"{mb:.3g} MB"


def format_duration(seconds: float) -> str:
    """Return seconds as ``45 s``, ``3:20 min`` or ``2:05 h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}:{whole % 60:02d} min" if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def summary_text(title: str, groups: Mapping[str, Mapping[str, str]]) -> str:
    """Return the start-up summary: a title, and groups of aligned facts."""
    width = max((len(k) for facts in groups.values() for k in facts), default=0)
    lines = [colored(title, "cyan", attrs=["bold"])]
    for group, facts in groups.items():
        lines.append(colored(group, "yellow"))
        lines += [f"  {name:<{width}}  {value}" for name, value in facts.items()]
    return "\n".join(lines)


def evaluation_line(
    epoch: int, metrics: Mapping[str, float], *, env_steps: int = 0, left_s: float | None = None
) -> str:
    """Return one line on an evaluation or validation: success and return with intervals, held-out loss.

    Args:
        epoch: Epochs that are done.
        metrics: Of the evaluation.
        env_steps: Environment steps so far; 0 is left out.
        left_s: Seconds that the rest of the run will take; None is left out.
    """
    parts = []
    if "eval/success_mean" in metrics:
        good = colored(f"success {metrics['eval/success_mean']:.3f}", "green", attrs=["bold"])
        parts.append(good + _interval(metrics, "eval/success_mean", ".3f"))
    if "eval/return_mean" in metrics:
        parts.append(f"return {metrics['eval/return_mean']:.4g}" + _interval(metrics, "eval/return_mean", ".4g"))
    if "eval/episodes" in metrics:
        parts.append(f"{metrics['eval/episodes']:.0f} episodes")
    if "valid/total" in metrics:
        parts.append(f"valid loss {metrics['valid/total']:.4g}")
    if env_steps:
        parts.append(f"{format_count(env_steps)} env steps")
    if left_s:
        parts.append(f"{format_duration(left_s)} left")
    return f"epoch {epoch:>3}  " + "  ".join(parts)


def _interval(metrics: Mapping[str, float], name: str, form: str) -> str:
    """Return `` [low, high]`` of a metric; nothing where it has no interval, as of few or equal values."""
    ends = [metrics[key] for end in ("low", "high") if (key := f"{name}_{end}") in metrics]
    return f" [{ends[0]:{form}}, {ends[1]:{form}}]" if len(ends) == 2 else ""
