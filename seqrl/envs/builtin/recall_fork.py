"""Two walls in a row: a hint given long before tells which way round the first one, and the second leaves the choice.

It takes a memory, for the hint, and a policy of several modes, for the second wall, whose mean runs into it.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.fork import ARENA_Y, START_HALF_WIDTH, STEP_LENGTH, WALL_HALF_WIDTH, hits_wall
from seqrl.envs.builtin.grid import AGENT, FLOOR, GOAL, WALL

WALLS_X = ((0.4, 0.6), (1.2, 1.4))
GOAL_X = 1.8
CORNERS, BETWEEN = (np.array([0.5, 0.5]), np.array([1.3, 0.5])), np.array([0.9, 0.0])
NUM_MOVES = 30


class RecallFork(gym.Env[np.ndarray, np.ndarray]):
    """Wait, then pass one wall on the side that was hinted and another on any side.

    Observation ``(4,)`` float32: the place ``(x, y)``; the hint, 1 (left, y > 0) or -1 (right), at the first step only
    and 0 after it; the share of the waiting that is left. Actions: Box ``[-1, 1]`` of width 2, a displacement of at
    most 0.2; without effect while waiting. Both walls reach from y = -0.3 to 0.3, the first from x = 0.4 to 0.6, the
    second from 1.2 to 1.4. Touching one, or passing the first on the other side than was hinted, ends the episode
    without reward; the line x = 1.8 with reward 1 and ``info["success"]``. ``info["log/second_right"]`` tells at the
    end whether the second wall was passed on the right.

    Args:
        idle_steps: How long to wait, at least 1.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(self, idle_steps: int = 50, render_mode: str | None = None) -> None:
        if idle_steps < 1:
            raise ValueError(f"idle_steps must be >= 1, got {idle_steps}")
        low, high = np.array([-ARENA_Y, -ARENA_Y, -1.0, 0.0]), np.array([GOAL_X + STEP_LENGTH, ARENA_Y, 1.0, 1.0])
        self.observation_space = spaces.Box(low.astype(np.float32), high.astype(np.float32))
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.render_mode = render_mode
        self.time_limit = idle_steps + NUM_MOVES
        self._idle_steps = idle_steps
        self._place = np.zeros(2)
        self._time, self._hint, self._sides = 0, 1.0, [0.0, 0.0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Go back to the start, and draw a hint."""
        super().reset(seed=seed)
        self._place = np.array([0.0, START_HALF_WIDTH * self.np_random.uniform(-1.0, 1.0)])
        self._hint = float(self.np_random.choice([-1.0, 1.0]))
        self._time, self._sides = 0, [0.0, 0.0]
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Wait or move; end the episode at a wall, on the wrong side, at the line or at the time limit."""
        before = self._place
        if self._time >= self._idle_steps:
            move = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
            place = before + STEP_LENGTH * move / max(float(np.linalg.norm(move)), 1.0)
            self._place = np.clip(place, [-ARENA_Y, -ARENA_Y], [GOAL_X + STEP_LENGTH, ARENA_Y])
        self._time += 1
        crashed = any(hits_wall(before, self._place, wall) for wall in WALLS_X)
        for number, (begin, end) in enumerate(WALLS_X):
            if begin <= self._place[0] <= end and not crashed:
                self._sides[number] = 1.0 if self._place[1] > 0 else -1.0
        is_wrong = self._sides[0] not in (0.0, self._hint)
        reached = not (crashed or is_wrong) and bool(self._place[0] >= GOAL_X)
        is_over = crashed or is_wrong or reached
        truncated = not is_over and self._time >= self.time_limit
        info: dict[str, Any] = {}
        if is_over or truncated:
            info = {"success": reached, "log/second_right": float(reached and self._sides[1] < 0)}
        return self._observation(), float(reached), is_over, truncated, info

    def _observation(self) -> np.ndarray:
        left = max(1.0 - self._time / self._idle_steps, 0.0)
        return np.array([*self._place, self._hint if self._time == 0 else 0.0, left], np.float32)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return a ``(100, 160, 3)`` uint8 picture: walls dark, line green, point blue."""
        if self.render_mode != "rgb_array":
            return None
        x, y = np.meshgrid(np.linspace(-0.2, 2.0, 160), -np.linspace(-0.7, 0.7, 100))
        image = np.full((100, 160, 3), FLOOR, np.uint8)
        image[x >= GOAL_X] = GOAL
        for begin, end in WALLS_X:
            image[(x >= begin) & (x <= end) & (abs(y) <= WALL_HALF_WIDTH)] = WALL
        image[np.hypot(x - self._place[0], y - self._place[1]) <= 0.05] = AGENT
        return image


class RecallForkDemonstrator:
    """Waits, passes the first wall as it was told, and the second on the left or on the right in equal parts.

    The side of the second is the last bit of where the episode begins, of which no network can make anything.
    """

    def __init__(self) -> None:
        self._sides: tuple[float, float] | None = None

    def reset(self) -> None:
        """Forget the hint and the side."""
        self._sides = None

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Return the next displacement: 0 while waiting, then to a point beside each wall, then straight on."""
        if self._sides is None:
            self._sides = (float(obs[2]), 1.0 - 2.0 * (int(np.float32(obs[1]).view(np.uint32)) & 1))
        place, step = np.asarray(obs[:2], np.float64), STEP_LENGTH
        if obs[3] > 0:
            return np.zeros(2, np.float32)
        for corner, side, then in zip(CORNERS, self._sides, (BETWEEN, None), strict=True):
            if place[0] < corner[0] - 0.05:
                return _towards(place, corner * [1.0, side], step)
            if then is not None and place[0] < then[0] - 0.05:
                return _towards(place, then, step)
        return np.array([1.0, 0.0], np.float32)


def _towards(place: np.ndarray, goal: np.ndarray, step: float) -> np.ndarray:
    way = goal - place
    return np.asarray(way / max(float(np.linalg.norm(way)), step), np.float32)
