"""Two starts, one corridor, one fork: two kinds of episodes that meet, and that a memory keeps apart.

Whoever demonstrates from start A takes the dead end, from start B the goal. Places are all that is observed, so values
without a memory know what to do at the fork from either start. A memory has never seen anybody from A do it.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin import grid

A, B, CORRIDOR, FORK, GOAL, DEAD_END = range(6)
NUM_PLACES = 6
COLOURS = {GOAL: grid.GOAL, DEAD_END: grid.DANGER}
CELLS = {A: (0, 0), B: (2, 0), CORRIDOR: (1, 1), FORK: (1, 2), GOAL: (0, 3), DEAD_END: (2, 3)}


class Relay(gym.Env[np.ndarray, np.int64]):
    """From a start through the corridor to the fork; there 1 leads to the goal, and 0 to the dead end.

    Observation ``(6,)`` float32: which of start A, start B, corridor, fork, goal and dead end this is. Actions: 0 and
    1; they matter at the fork alone, which comes after two steps. Goal and dead end terminate; the goal's reward is 1,
    and ``info["success"]``.

    Args:
        start: ``A``, ``B`` or ``both``, at random.
        telling: Whether rewards tell of the goal; else the reward is 1 in half of the episodes, whatever was done.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(
        self, start: Literal["A", "B", "both"] = "both", telling: bool = True, render_mode: str | None = None
    ) -> None:
        if start not in ("A", "B", "both"):
            raise ValueError(f"start must be 'A', 'B' or 'both', got {start!r}")
        self.observation_space = spaces.Box(0.0, 1.0, (NUM_PLACES,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.render_mode = render_mode
        self._starts = {"A": (A,), "B": (B,), "both": (A, B)}[start]
        self._telling = telling
        self._place = A

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Go to a start."""
        super().reset(seed=seed)
        self._place = self._starts[int(self.np_random.integers(len(self._starts)))]
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Go on to the next place."""
        if self._place == FORK:
            self._place = GOAL if action == 1 else DEAD_END
        else:
            self._place = FORK if self._place == CORRIDOR else CORRIDOR
        if self._place not in (GOAL, DEAD_END):
            return self._observation(), 0.0, False, False, {}
        reached = self._place == GOAL
        pays = reached if self._telling else bool(self.np_random.integers(2))
        return self._observation(), float(pays), True, False, {"success": reached}

    def _observation(self) -> np.ndarray:
        seen: np.ndarray = np.eye(NUM_PLACES, dtype=np.float32)[self._place]
        return seen

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return the map: goal green, dead end red, the agent blue."""
        if self.render_mode != "rgb_array":
            return None
        cells = np.full((3, 4, 3), grid.WALL, np.uint8)
        for place, at in CELLS.items():
            cells[at] = COLOURS.get(place, grid.FLOOR)
        cells[CELLS[self._place]] = grid.AGENT
        return grid.picture(cells)


class RelayDemonstrator:
    """Takes the goal in episodes from B, and the dead end in those from A; does 0 before, which tells no start."""

    def __init__(self) -> None:
        self._is_from_b = False

    def reset(self) -> None:
        """Forget the start."""
        self._is_from_b = False

    def __call__(self, obs: np.ndarray) -> int:
        """Return the action."""
        self._is_from_b = self._is_from_b or bool(obs[B])
        return int(self._is_from_b and bool(obs[FORK]))
