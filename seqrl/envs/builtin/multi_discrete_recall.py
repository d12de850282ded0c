"""Several symbols are shown once, and have to be repeated all at once some steps later.

The smallest task with observations and actions of several discrete factors that needs a memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.grid import AGENT, DANGER, FLOOR, GOAL, WALL, picture, require_between


class MultiDiscreteRecall(gym.Env[np.ndarray, np.ndarray]):
    """Remember one symbol per factor over a delay, then repeat them.

    Observation MultiDiscrete: per factor 0, or in the first observation the symbol plus 1; and last, 1 where the answer
    is due. Actions: MultiDiscrete, one symbol per factor; they are ignored until the answer is due. The answer ends the
    episode; it pays the share of the factors that are right, and is a success if all are.

    ``info`` at the end: ``success`` and ``log/share_right``.

    Args:
        sizes: Number of symbols of each factor.
        delay_steps: Steps between the first observation and the one where the answer is due; at least 1.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(self, sizes: Sequence[int] = (2, 3, 4), delay_steps: int = 4, render_mode: str | None = None) -> None:
        require_between("delay_steps", delay_steps, 1)
        if not sizes or min(sizes) < 2:
            raise ValueError(f"sizes must be one or more numbers >= 2, got {sizes}")
        self.sizes, self.delay_steps, self.render_mode = tuple(sizes), delay_steps, render_mode
        self.observation_space = spaces.MultiDiscrete([*(n + 1 for n in self.sizes), 2])
        self.action_space = spaces.MultiDiscrete(list(self.sizes))
        self._symbols = np.zeros(len(self.sizes), np.int64)
        self._right: np.ndarray | None = None
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw the symbols, and show them."""
        super().reset(seed=seed)
        self._symbols = self.np_random.integers(0, self.sizes)
        self._right, self._time = None, 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Wait, or answer."""
        is_due = self._time == self.delay_steps
        self._time += 1
        if not is_due:
            return self._observation(), 0.0, False, False, {}
        self._right = np.asarray(action) == self._symbols
        share = float(self._right.mean())
        return self._observation(), share, True, False, {"success": share == 1.0, "log/share_right": share}

    def _observation(self) -> np.ndarray:
        shown = self._symbols + 1 if self._time == 0 else np.zeros_like(self._symbols)
        return np.array([*shown, self._time == self.delay_steps], np.int64)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return an ``(H, W, 3)`` uint8 picture: a column of squares per factor, and below what was right."""
        if self.render_mode != "rgb_array":
            return None
        cells = np.full((max(self.sizes) + 1, len(self.sizes), 3), FLOOR, np.uint8)
        for factor, size in enumerate(self.sizes):
            cells[: max(self.sizes) - size, factor] = WALL
        cells[-2 - self._symbols, np.arange(len(self.sizes))] = AGENT
        if self._right is not None:
            cells[-1, self._right] = GOAL
            cells[-1, ~self._right] = DANGER
        return picture(cells, 24 * max(cells.shape[:2]))


class MultiDiscreteRecallExpert:
    """Remembers the symbols."""

    def __init__(self) -> None:
        self._symbols: np.ndarray | None = None

    def reset(self) -> None:
        """Forget the symbols."""
        self._symbols = None

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Return the symbols in every step."""
        if self._symbols is None or obs[:-1].any():
            self._symbols = np.asarray(obs[:-1] - 1, np.int64)
        return self._symbols
