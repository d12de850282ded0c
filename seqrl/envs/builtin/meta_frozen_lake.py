"""A frozen lake that is drawn anew for each episode, and crossed several times in it (after Gymnasium's FrozenLake).

The agent sees neither holes nor goal. What it learns about the lake in one attempt, and with shuffled controls about
its own moves, helps in the next one: a policy with a memory reaches the goal more often in later attempts.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.grid import AGENT, DANGER, FLOOR, GOAL, KEY, MOVES, WALL, dot, picture, require_between


class MetaFrozenLake(gym.Env[np.ndarray, np.int64]):
    """Several attempts on one unknown lake.

    Observation ``(5,)`` float32 from 0 to 1: row, column, whether the agent has just been put on the start, the share
    of the attempts that are over, and of this attempt's steps. Actions: right, up, left, down; a move off the lake does
    nothing. The goal, in the corner opposite to the start, pays 1 and ends the attempt; a hole ends it too. The next
    observation already is the first one of the next attempt; after the last attempt the episode terminates.

    ``info``: ``log/attempt_1``, ... (goal reached or not) where an attempt ends; ``log/goals`` and ``success`` (of the
    last attempt) at the end.

    Args:
        size: Cells along each side.
        attempts: Attempts in an episode.
        is_hard: Shuffle what the actions do, anew in each episode.
        hole_chance: Chance of each cell to be a hole; lakes that cannot be crossed are drawn again.
        slip_chance: Chance of a move to go to one of its two sides instead.
        break_chance: Chance of the ice to break where the agent leaves it, until the next return to the start.
        position_noise: Standard deviation, in cells, of the noise on the row and the column that are seen.
        recover_mode: A fall leads back to the start, within the same attempt.
        hide_progress: Leave the last two entries of the observation out.
        attempt_steps: Steps of an attempt; null is four times the size.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 6}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(
        self,
        size: int = 3,
        attempts: int = 5,
        is_hard: bool = False,
        hole_chance: float = 0.2,
        slip_chance: float = 0.0,
        break_chance: float = 0.0,
        position_noise: float = 0.0,
        recover_mode: bool = False,
        hide_progress: bool = False,
        attempt_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        require_between("size", size, 2, 20)
        require_between("attempts", attempts, 1)
        require_between("hole_chance", hole_chance, 0.0, 0.4)
        require_between("slip_chance", slip_chance, 0.0, 1.0)
        require_between("break_chance", break_chance, 0.0, 1.0)
        require_between("position_noise", position_noise, 0.0)
        self.attempt_steps = 4 * size if attempt_steps is None else attempt_steps
        require_between("attempt_steps", self.attempt_steps, 2 * (size - 1))
        self.observation_space = spaces.Box(0.0, 1.0, (3 if hide_progress else 5,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.render_mode = render_mode
        self.size, self.attempts = size, attempts
        self._is_hard, self._recovers, self._hides = is_hard, recover_mode, hide_progress
        self._hole_chance, self._slip_chance, self._break_chance = hole_chance, slip_chance, break_chance
        self._noise = position_noise
        self._lake = self._broken = np.zeros((size, size), bool)
        self._controls = np.arange(4)
        self._cell, self._is_start, self._time = (0, 0), True, 0
        self._reached: list[bool] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a lake and the controls, and begin the first attempt."""
        super().reset(seed=seed)
        self._lake = self._draw_lake()
        self._controls = self.np_random.permutation(4) if self._is_hard else np.arange(4)
        self._reached, self._time = [], 0
        self._go_to_start()
        return self._observation(), {}

    def _draw_lake(self) -> np.ndarray:
        """Return ``(size, size)`` bool, True where a hole is."""
        while True:
            lake = self.np_random.random((self.size, self.size)) < self._hole_chance
            lake[0, 0] = lake[-1, -1] = False
            if _can_be_crossed(lake):
                return np.asarray(lake)

    def _go_to_start(self) -> None:
        self._cell, self._is_start = (0, 0), True
        self._broken = np.zeros_like(self._lake)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move; end the attempt at the goal, in a hole or at its last step, and the episode after the last attempt."""
        self._time += 1
        self._is_start = False
        self._walk(int(self._controls[int(action)]))
        reached = self._cell == (self.size - 1, self.size - 1)
        fell = bool(self._lake[self._cell] or self._broken[self._cell])
        info: dict[str, Any] = {}
        if reached or (fell and not self._recovers) or self._time >= self.attempt_steps:
            info = self._end_attempt(reached)
        elif fell:
            self._go_to_start()
        return self._observation(), float(reached), len(self._reached) == self.attempts, False, info

    def _walk(self, move: int) -> None:
        if self._slip_chance and self.np_random.random() < self._slip_chance:
            move = (move + (1 if self.np_random.random() < 0.5 else 3)) % 4
        left, last = self._cell, self.size - 1
        row, column = (min(max(at + by, 0), last) for at, by in zip(left, MOVES[move], strict=True))
        self._cell = (row, column)
        if self._break_chance and left not in (self._cell, (0, 0)):
            self._broken[left] = self.np_random.random() < self._break_chance

    def _end_attempt(self, reached: bool) -> dict[str, Any]:
        self._reached.append(reached)
        info: dict[str, Any] = {f"log/attempt_{len(self._reached)}": float(reached)}
        if len(self._reached) == self.attempts:
            return info | {"log/goals": float(sum(self._reached)), "success": reached}
        self._time = 0
        self._go_to_start()
        return info

    def _observation(self) -> np.ndarray:
        position = np.array(self._cell, np.float64)
        if self._noise:
            position += self._noise * self.np_random.standard_normal(2)
        seen = [*np.clip(position / (self.size - 1), 0.0, 1.0), self._is_start]
        if not self._hides:
            seen += [len(self._reached) / self.attempts, self._time / self.attempt_steps]
        return np.array(seen, np.float32)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return an ``(H, W, 3)`` uint8 picture: the lake, and above it each attempt green, red or still open."""
        if self.render_mode != "rgb_array":
            return None
        cells = np.full((self.size, self.size, 3), FLOOR, np.uint8)
        cells[self._lake] = WALL
        cells[self._broken] = DANGER
        cells[0, 0], cells[-1, -1] = KEY, GOAL
        image = picture(cells)
        scale = len(image) // self.size
        dot(image, (self._cell[0] + 0.5) * scale, (self._cell[1] + 0.5) * scale, 0.3 * scale, AGENT)
        bar = np.full((12, image.shape[1], 3), FLOOR, np.uint8)
        number = np.arange(image.shape[1]) * self.attempts // image.shape[1]
        for attempt, reached in enumerate(self._reached):
            bar[:, number == attempt] = GOAL if reached else DANGER
        return np.concatenate([bar, image])


def _can_be_crossed(lake: np.ndarray) -> bool:
    """Tell whether a way without holes leads from the first to the last cell."""
    size = len(lake)
    todo, seen = [(0, 0)], {(0, 0)}
    while todo:
        row, column = todo.pop()
        for down, right in MOVES:
            cell = (row + down, column + right)
            if min(cell) >= 0 and max(cell) < size and not lake[cell] and cell not in seen:
                seen.add(cell)
                todo.append(cell)
    return (size - 1, size - 1) in seen
