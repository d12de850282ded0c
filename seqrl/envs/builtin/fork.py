"""A wall that may be passed on either side: what a policy makes of demonstrators who disagree.

Half of the demonstrators go round it on the left, half on the right. Their mean runs into it.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.grid import AGENT, FLOOR, GOAL, WALL

STEP_LENGTH = 0.2
WALL_X, WALL_HALF_WIDTH = (0.4, 0.6), 0.3
GOAL_X, ARENA_Y = 1.0, 1.0
START_HALF_WIDTH = 0.02
CORNER = np.array([0.5, 0.5])


class Fork(gym.Env[np.ndarray, np.ndarray]):
    """Walk from near (0, 0) to the line x = 1, past a wall in between.

    Observation ``(2,)`` float32: the place ``(x, y)``. Actions: Box ``[-1, 1]`` of width 2, a displacement of at most
    0.2. The wall, from (0.4, -0.3) to (0.6, 0.3), ends the episode without reward; the line with reward 1 and
    ``info["success"]``. ``info["log/right"]`` tells at the end whether the wall was passed on the right (y < 0).

    Args:
        pays: Which way is rewarded, and counts as a success: ``both``, ``right`` or ``left``.
        max_steps: Then the episode is truncated; at least 7, which the demonstrator takes.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(
        self, pays: Literal["both", "right", "left"] = "both", max_steps: int = 16, render_mode: str | None = None
    ) -> None:
        if pays not in ("both", "right", "left"):
            raise ValueError(f"pays must be 'both', 'right' or 'left', got {pays!r}")
        if max_steps < 7:
            raise ValueError(f"max_steps must be >= 7, the steps that the demonstrator takes, got {max_steps}")
        self.observation_space = spaces.Box(-ARENA_Y, ARENA_Y + STEP_LENGTH, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.render_mode = render_mode
        self.time_limit = max_steps
        self._pays = pays
        self._place = np.zeros(2)
        self._time, self._is_right = 0, False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Go back to the start."""
        super().reset(seed=seed)
        self._place = np.array([0.0, START_HALF_WIDTH * self.np_random.uniform(-1.0, 1.0)])
        self._time, self._is_right = 0, False
        return self._place.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move; end the episode at the wall, at the line or at the time limit."""
        move = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        before = self._place
        self._place = before + STEP_LENGTH * move / max(float(np.linalg.norm(move)), 1.0)
        self._place = np.clip(self._place, [-ARENA_Y, -ARENA_Y], [GOAL_X + STEP_LENGTH, ARENA_Y])
        self._time += 1
        if WALL_X[0] <= self._place[0] <= WALL_X[1]:
            self._is_right = bool(self._place[1] < 0)
        crashed = hits_wall(before, self._place)
        reached = not crashed and bool(self._place[0] >= GOAL_X)
        truncated = not (crashed or reached) and self._time >= self.time_limit
        earned = reached and self._pays in ("both", "right" if self._is_right else "left")
        is_over = crashed or reached or truncated
        info: dict[str, Any] = {}
        if is_over:
            right = float(reached and self._is_right)
            info = {"success": earned, "log/passed": float(reached), "log/right": right}
        return self._place.astype(np.float32), float(earned), crashed or reached, truncated, info

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return a ``(120, 120, 3)`` uint8 picture: wall dark, line green, point blue."""
        if self.render_mode != "rgb_array":
            return None
        x, y = np.meshgrid(np.linspace(-0.2, 1.2, 120), -np.linspace(-0.7, 0.7, 120))
        image = np.full((120, 120, 3), FLOOR, np.uint8)
        image[x >= GOAL_X] = GOAL
        image[(x >= WALL_X[0]) & (x <= WALL_X[1]) & (abs(y) <= WALL_HALF_WIDTH)] = WALL
        image[np.hypot(x - self._place[0], y - self._place[1]) <= 0.05] = AGENT
        return image


def hits_wall(begin: np.ndarray, end: np.ndarray, wall: tuple[float, float] = WALL_X) -> bool:
    """Tell whether a straight step touches the wall: checked at points 0.01 apart or closer."""
    at = begin + np.linspace(0.0, 1.0, 21)[:, None] * (end - begin)
    inside = (at[:, 0] >= wall[0]) & (at[:, 0] <= wall[1]) & (abs(at[:, 1]) <= WALL_HALF_WIDTH)
    return bool(inside.any())


class ForkDemonstrator:
    """Goes round the wall at a distance, on the left in half of the episodes and on the right in the others.

    The side is the last bit of where the episode begins, of which no network can make anything.
    """

    def __init__(self) -> None:
        self._side: float | None = None

    def reset(self) -> None:
        """Forget the side."""
        self._side = None

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Return the next displacement: to a point beside the wall, then straight on."""
        if self._side is None:
            self._side = 1.0 - 2.0 * (int(np.float32(obs[1]).view(np.uint32)) & 1)
        corner = CORNER * [1.0, self._side]
        way = corner - obs if obs[0] < CORNER[0] - 0.05 else np.array([1.0, 0.0])
        length = float(np.linalg.norm(way))
        return np.asarray(way / max(length, STEP_LENGTH), np.float32)
