"""Schedules as pure functions of the step."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence


def warmup(step: int, warmup_steps: int) -> float:
    """Return ``min((step + 1) / warmup_steps, 1)``: a linear ramp that reaches 1 after ``warmup_steps`` steps."""
    return 1.0 if warmup_steps == 0 else min((step + 1) / warmup_steps, 1.0)


def linear_decay(step: int, decay_steps: int, final_factor: float) -> float:
    """Return the factor that falls on a line from 1 at step 0 to ``final_factor`` at ``decay_steps``, and stays there.

    Args:
        step: Steps since the decay began; below 0 counts as 0.
        decay_steps: At least 1.
        final_factor: At least 0.
    """
    return final_factor + (1.0 - final_factor) * (1.0 - _share(step, decay_steps))


def cosine_decay(step: int, decay_steps: int, final_factor: float) -> float:
    """Return the factor that falls on half a cosine from 1 at step 0 to ``final_factor`` at ``decay_steps``.

    It stays there. Arguments as in :func:`linear_decay`.

    Source: Loshchilov & Hutter (2017), SGDR, arXiv 1608.03983, equation 5, without restarts.
    """
    return final_factor + (1.0 - final_factor) * 0.5 * (1.0 + math.cos(math.pi * _share(step, decay_steps)))


def multistep_decay(step: int, milestones: Sequence[int], milestone_factor: float) -> float:
    """Return ``milestone_factor`` to the power of how many of the rising ``milestones`` the step has reached."""
    return milestone_factor ** bisect_right(milestones, step)


def _share(step: int, decay_steps: int) -> float:
    return min(max(step, 0) / decay_steps, 1.0)
