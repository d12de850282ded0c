"""Schedules as pure functions of the step."""

from __future__ import annotations


def warmup(step: int, warmup_steps: int) -> float:
    """Return ``min((step + 1) / warmup_steps, 1)``: a linear ramp that reaches 1 after ``warmup_steps`` steps."""
    return 1.0 if warmup_steps == 0 else min((step + 1) / warmup_steps, 1.0)
