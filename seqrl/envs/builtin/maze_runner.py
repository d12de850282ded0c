"""A random maze, seen through distances to the next walls, with goals to be reached in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.grid import AGENT, DANGER, FLOOR, GOAL, KEY, MOVES, WALL, dot, picture, require_between

GOAL_RADIUS = 0.5
STEP_LENGTH = 0.5
"""Of a continuous move along one axis, in cells."""


class MazeRunner(gym.Env[Any, Any]):
    """Reach k goals of an unknown maze in order.

    All lengths are in cells; the centre of the cell in the upper left corner, which is wall, lies at (0.5, 0.5).
    Observation, a Dict of float32: ``achieved_goal`` ``(2,)``, the position (row, column); ``desired_goal`` ``(k, 2)``,
    all goals in order; ``goals_reached`` ``(1,)``, how many were; ``walls`` ``(4,)``, the distances to the next wall to
    the right, up, left and down. Actions: right, up, left, down by one cell; or, continuous, a Box ``[-1, 1]`` of width
    2: the change of row and column in halves of a cell. A move along either axis that would end in a wall is
    not made. Coming within half a cell of the
    next goal pays 1; the last one ends the episode, the time limit truncates it.

    ``info`` at the end: ``log/goals_reached`` and ``success`` (all of them).

    Args:
        size: Cells along each side, walls included; odd.
        num_goals: Goals, each in a cell of its own.
        is_continuous: Continuous moves instead of four discrete ones.
        shuffled_actions: Shuffle what the discrete actions do, or turn and mirror the continuous ones, per episode.
        time_limit: Steps of an episode; null is the square of the size for each goal.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(
        self,
        size: int = 7,
        num_goals: int = 1,
        is_continuous: bool = False,
        shuffled_actions: bool = False,
        time_limit: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if size < 5 or size % 2 == 0:
            raise ValueError(f"size must be odd and >= 5, got {size}")
        num_open = (size - 1) ** 2 // 2 - 1
        require_between("num_goals", num_goals, 1, num_open - 1)
        self.time_limit = size**2 * num_goals if time_limit is None else time_limit
        require_between("time_limit", self.time_limit, 1)
        box = {"achieved_goal": (2,), "desired_goal": (num_goals, 2), "walls": (4,)}
        entries: dict[str, spaces.Space[Any]] = {k: spaces.Box(0.0, size, s, np.float32) for k, s in box.items()}
        entries["goals_reached"] = spaces.Box(0.0, num_goals, (1,), np.float32)
        self.observation_space = spaces.Dict(entries)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32) if is_continuous else spaces.Discrete(4)
        self.render_mode = render_mode
        self.size, self.num_goals = size, num_goals
        self._is_continuous, self._is_shuffled = is_continuous, shuffled_actions
        self._walls = np.ones((size, size), bool)
        self._position: np.ndarray = np.zeros(2)
        self._goals: np.ndarray = np.zeros((num_goals, 2))
        self._controls, self._turn = np.arange(4), np.asarray(np.eye(2))
        self._num_reached, self._time = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Draw a maze, the start, the goals and the controls."""
        super().reset(seed=seed)
        self._walls = draw_maze(self.size, self.np_random)
        cells = np.argwhere(~self._walls) + 0.5
        places = cells[self.np_random.choice(len(cells), 1 + self.num_goals, replace=False)]
        self._position, self._goals = places[0], places[1:]
        if self._is_shuffled:
            self._controls = self.np_random.permutation(4)
            signs = self.np_random.choice([-1.0, 1.0], 2)
            self._turn = np.diag(signs)[self.np_random.permutation(2)]
        self._num_reached, self._time = 0, 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Move, and count the goals that are reached."""
        self._time += 1
        if self._is_continuous:
            self._move(STEP_LENGTH * (self._turn @ np.clip(np.asarray(action, np.float64), -1.0, 1.0)))
        else:
            self._move(np.array(MOVES[int(self._controls[int(action)])], np.float64))
        before = self._num_reached
        while self._num_reached < self.num_goals and self._is_at(self._goals[self._num_reached]):
            self._num_reached += 1
        success = self._num_reached == self.num_goals
        truncated = not success and self._time >= self.time_limit
        info: dict[str, Any] = {}
        if success or truncated:
            info = {"success": success, "log/goals_reached": float(self._num_reached)}
        return self._observation(), float(self._num_reached - before), success, truncated, info

    def _move(self, change: np.ndarray) -> None:
        """Move along one axis, then along the other, and on neither into a wall."""
        for axis in (0, 1):
            there = self._position.copy()
            there[axis] += change[axis]
            if not self._walls[int(there[0]), int(there[1])]:
                self._position = there

    def _is_at(self, goal: np.ndarray) -> bool:
        return bool(np.linalg.norm(self._position.astype(np.float32).astype(np.float64) - goal) <= GOAL_RADIUS)

    def _observation(self) -> dict[str, np.ndarray]:
        return {
            "achieved_goal": self._position.astype(np.float32),
            "desired_goal": self._goals.astype(np.float32),
            "goals_reached": np.array([self._num_reached], np.float32),
            "walls": self._distances(),
        }

    def _distances(self) -> np.ndarray:
        """Return ``(4,)`` float32: how far it is to the next wall in the direction of each move."""
        row, column = (int(at) for at in self._position)
        distances = []
        for down, right in MOVES:
            steps = 1
            while not self._walls[row + down * steps, column + right * steps]:
                steps += 1
            within = float((self._position - (row, column)) @ (down, right))  # of the cell, along the move
            distances.append(steps - within if down + right > 0 else steps - 1 - within)
        return np.array(distances, np.float32)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return an ``(H, W, 3)`` uint8 picture: the next goal green, later ones orange, the agent blue."""
        if self.render_mode != "rgb_array":
            return None
        cells = np.full((self.size, self.size, 3), FLOOR, np.uint8)
        cells[self._walls] = WALL
        image = picture(cells)
        scale = len(image) // self.size
        for number, (row, column) in reversed(list(enumerate(self._goals))):
            if number >= self._num_reached:
                dot(image, row * scale, column * scale, 0.4 * scale, GOAL if number == self._num_reached else KEY)
        dot(image, self._position[0] * scale, self._position[1] * scale, 0.3 * scale, AGENT)
        return image

    def draw_subgoal(self, frame: np.ndarray, subgoal: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the picture with a small red dot where a policy is on its way to, if that is an ``achieved_goal``."""
        if "achieved_goal" in subgoal:
            row, column = subgoal["achieved_goal"] * (len(frame) // self.size)
            dot(frame, row, column, 0.18 * (len(frame) // self.size), DANGER)
        return frame


def draw_maze(size: int, rng: np.random.Generator) -> np.ndarray:
    """Return ``(size, size)`` bool, True where a wall is: rooms at odd places, joined to a tree depth first."""
    walls = np.ones((size, size), bool)
    row, column = (2 * int(i) + 1 for i in rng.integers(0, size // 2, 2))
    walls[row, column] = False
    path = [(row, column)]
    while path:
        row, column = path[-1]
        ways = [(row + 2 * down, column + 2 * right) for down, right in MOVES]
        ways = [way for way in ways if min(way) > 0 and max(way) < size and walls[way]]
        if not ways:
            path.pop()
            continue
        there = ways[int(rng.integers(len(ways)))]
        walls[there] = walls[(row + there[0]) // 2, (column + there[1]) // 2] = False
        path.append(there)
    return walls
