"""An explorer of mazes: it draws a map of what it sees, and walks the shortest way that the map does not rule out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import numpy as np

from seqrl.envs.builtin.grid import MOVES

Cell = tuple[int, int]
_SIZE = 64


class MazeExpert:
    """Solves :class:`~seqrl.envs.builtin.maze_runner.MazeRunner` with its four discrete moves, not shuffled.

    Cells that it has not seen count as open until it sees a wall there. So it makes detours, and remembers them.
    """

    def __init__(self) -> None:
        self._is_open: dict[Cell, bool] = {}

    def reset(self) -> None:
        """Forget the maze."""
        self._is_open = {}

    def __call__(self, obs: Mapping[str, np.ndarray]) -> int:
        """Return the first move of the shortest way, breadth first, to the next goal."""
        here = _cell(obs["achieved_goal"])
        goals, number = obs["desired_goal"], int(obs["goals_reached"][0])
        self._look(here, obs["walls"])
        way = self._first_moves(here)
        return way.get(_cell(goals[min(number, len(goals) - 1)]), 0)

    def _look(self, here: Cell, distances: np.ndarray) -> None:
        """Put on the map what is seen: open cells, and the wall behind them."""
        self._is_open[here] = True
        for (down, right), distance in zip(MOVES, distances, strict=True):
            steps = round(float(distance) + 0.5)
            for i in range(1, steps + 1):
                self._is_open[here[0] + i * down, here[1] + i * right] = i < steps

    def _first_moves(self, start: Cell) -> dict[Cell, int]:
        """Return, for each cell that may be reached, the first move of the shortest way."""
        first: dict[Cell, int] = {}
        queue = deque([start])
        while queue:
            cell = queue.popleft()
            for move, there in self._ways(cell):
                if there not in first and there != start:
                    first[there] = first.get(cell, move)
                    queue.append(there)
        return first

    def _ways(self, cell: Cell) -> Iterator[tuple[int, Cell]]:
        for move, (down, right) in enumerate(MOVES):
            there = (cell[0] + down, cell[1] + right)
            is_post = there[0] % 2 == 0 and there[1] % 2 == 0  # walls in every maze
            if min(there) > 0 and max(there) < _SIZE and self._is_open.get(there, not is_post):
                yield move, there


def _cell(place: np.ndarray) -> Cell:
    return int(place[0]), int(place[1])
