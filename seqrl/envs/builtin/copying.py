"""Some symbols are marked among many that are not, and have to be repeated in their order.

After Gu & Dao (2023), Mamba, arXiv 2312.00752 (selective copying), and Hochreiter & Schmidhuber (1997), Long short-term
memory: what is to be stored is told by the input, not by the time.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.grid import AGENT, DANGER, FLOOR, GOAL, WALL, picture, require_between

IGNORE, REMEMBER, ANSWER = range(3)


class Copying(gym.Env[np.ndarray, Any]):
    """Remember the marked symbols among distractors, then repeat them one by one.

    Observation MultiDiscrete: a symbol, and a mark: 0 ignore, 1 remember, 2 answer (the symbol is 0 then). Actions: a
    symbol, ignored until answers are due. Each right answer pays ``1 / length``; the last answer ends the episode,
    which is a success if all were right.

    ``info`` at the end: ``success`` and ``log/share_right``.

    Args:
        num_symbols: Of the alphabet, which distractors share; at least 2.
        length: Symbols to remember; at least 1.
        num_distractors: Symbols to ignore, among which the others appear at random; at least 0.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(
        self, num_symbols: int = 4, length: int = 3, num_distractors: int = 20, render_mode: str | None = None
    ) -> None:
        require_between("num_symbols", num_symbols, 2)
        require_between("length", length, 1)
        require_between("num_distractors", num_distractors, 0)
        self.num_symbols, self.length, self.num_distractors = num_symbols, length, num_distractors
        self.render_mode = render_mode
        self.observation_space = spaces.MultiDiscrete([num_symbols, 3])
        self.action_space = spaces.Discrete(num_symbols)
        self._shown = np.zeros(length + num_distractors, np.int64)
        self._is_marked = np.zeros(length + num_distractors, bool)
        self._right: list[bool] = []
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw the symbols and which of them are marked."""
        super().reset(seed=seed)
        num_shown = len(self._shown)
        self._shown = self.np_random.integers(0, self.num_symbols, num_shown)
        self._is_marked = np.isin(np.arange(num_shown), self.np_random.choice(num_shown, self.length, replace=False))
        self._right, self._time = [], 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Go on to the next symbol, or answer."""
        is_due = self._time >= len(self._shown)
        self._time += 1
        if not is_due:
            return self._observation(), 0.0, False, False, {}
        asked = self._shown[self._is_marked][len(self._right)]
        self._right.append(int(action) == asked)
        reward = self._right[-1] / self.length
        if len(self._right) < self.length:
            return self._observation(), reward, False, False, {}
        share = float(np.mean(self._right))
        return self._observation(), reward, True, False, {"success": all(self._right), "log/share_right": share}

    def _observation(self) -> np.ndarray:
        if self._time >= len(self._shown):
            return np.array([0, ANSWER], np.int64)
        mark = REMEMBER if self._is_marked[self._time] else IGNORE
        return np.array([self._shown[self._time], mark], np.int64)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return an ``(H, W, 3)`` uint8 picture: a column per symbol shown, below what was answered."""
        if self.render_mode != "rgb_array":
            return None
        cells = np.full((self.num_symbols + 1, len(self._shown), 3), FLOOR, np.uint8)
        seen = np.arange(min(self._time + 1, len(self._shown)))
        cells[-2 - self._shown[seen], seen] = np.where(self._is_marked[seen, None], AGENT, WALL)
        marked = np.flatnonzero(self._is_marked)
        for place, is_right in zip(marked, self._right, strict=False):
            cells[-1, place] = GOAL if is_right else DANGER
        return picture(cells, 24 * max(cells.shape[:2]))


class CopyingExpert:
    """Remembers the marked symbols."""

    def __init__(self) -> None:
        self._symbols: list[int] = []

    def reset(self) -> None:
        """Forget the symbols."""
        self._symbols = []

    def __call__(self, obs: np.ndarray) -> int:
        """Return the next symbol that was marked, where answers are due, and else the one that is shown."""
        symbol, mark = int(obs[0]), int(obs[1])
        if mark == ANSWER:
            return self._symbols.pop(0)
        if mark == REMEMBER:
            self._symbols.append(symbol)
        return symbol
