"""Per-episode results from a stream of time steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from seqrl.core.types import TimeStep


@dataclass(frozen=True)
class Episode:
    """What one finished episode scored.

    Attributes:
        env_name: Task.
        row: Which of the parallel environments.
        total_reward: Undiscounted sum, environment units.
        length: Steps.
        success: Whether success was reported in any step; None if the environment did not report it.
        log: Last value of each ``log/`` entry.
    """

    env_name: str
    row: int
    total_reward: float
    length: int
    success: bool | None
    log: dict[str, float] = field(default_factory=dict)


def told_successes(episodes: Iterable[Episode]) -> list[bool]:
    """Return whether each episode of the tasks that report success was one; empty if none does.

    Environments may report a success only where there is one: an episode that tells nothing has failed, if another one
    of its task tells of success.
    """
    episodes = list(episodes)
    telling = {e.env_name for e in episodes if e.success is not None}
    return [bool(e.success) for e in episodes if e.env_name in telling]


class EpisodeMetrics:
    """Adds up rewards, successes and ``log/`` entries per row, and gives an :class:`Episode` at each end."""

    def __init__(self, num_envs: int) -> None:
        self._total = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self._success = np.zeros(num_envs, bool)
        self._log: list[dict[str, float]] = [{} for _ in range(num_envs)]
        self._known = np.zeros(num_envs, bool)

    def add(self, step: TimeStep) -> list[Episode]:
        """Take one step of all rows, and return the episodes that ended in it, without those that a fault cut off."""
        real = ~step.is_first | step.done
        self._total += np.where(real, step.reward, 0.0)
        self._length += real
        self._success |= step.success & real
        self._known |= step.success_known & real
        for key, (values, present) in step.log.items():
            for row in np.flatnonzero(present & real):
                self._log[row][key] = float(values[row])
        ended = [self._end(int(row), step.env_name[row]) for row in np.flatnonzero(step.done)]
        return ended if step.fault is None else [e for e in ended if not step.fault[e.row]]

    def _end(self, row: int, env_name: str) -> Episode:
        success = bool(self._success[row]) if self._known[row] else None
        episode = Episode(env_name, row, float(self._total[row]), int(self._length[row]), success, dict(self._log[row]))
        self._total[row], self._length[row], self._success[row], self._known[row] = 0.0, 0, False, False
        self._log[row].clear()
        return episode
