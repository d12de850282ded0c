"""A point in the plane is shown a goal once, has to wait, and then has to go there from memory.

The smallest continuous task that needs a memory: when the point may move at last, nothing in the observation tells the
goal, which lies anywhere on a circle. A policy without memory hits it in about one of fifteen episodes.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

GOAL_DISTANCE = 1.0
GOAL_RADIUS = 0.2
STEP_LENGTH = 0.2
ARENA = 1.5


class PointRecall(gym.Env[np.ndarray, np.ndarray]):
    """Remember a goal over a delay, then reach it.

    Observation ``(5,)`` float32: position (2), goal (2; zero after the first observation), and 1 where the point may
    move. Actions: Box ``[-1, 1]`` of width 2, a displacement of at most 0.2, ignored during the delay. The reward is
    the progress towards the goal, as a share of the way, so that the rewards of an episode that reaches it add up to 1.
    Reaching it ends the episode with ``info["success"]``.

    Args:
        delay_steps: Steps before the point may move.
        move_steps: Steps in which it may move; then the episode is truncated.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(self, delay_steps: int = 5, move_steps: int = 8, render_mode: str | None = None) -> None:
        least = math.ceil((GOAL_DISTANCE - GOAL_RADIUS) / STEP_LENGTH)
        if delay_steps < 0:
            raise ValueError(f"delay_steps must be >= 0, got {delay_steps}")
        if move_steps < least:
            raise ValueError(f"move_steps must be >= {least}, the steps of the shortest way, got {move_steps}")
        self.observation_space = spaces.Box(-ARENA, ARENA, (5,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.render_mode = render_mode
        self.delay_steps, self.time_limit = delay_steps, delay_steps + move_steps
        self._position = self._goal = np.zeros(2)
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a goal on the circle, and go back to its centre."""
        super().reset(seed=seed)
        angle = 2 * math.pi * self.np_random.random()
        self._goal = GOAL_DISTANCE * np.array([math.cos(angle), math.sin(angle)])
        self._position = np.zeros(2)
        self._time = 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move, if the delay is over; end the episode at the goal or at the time limit."""
        left = self._way_left()
        if self._time >= self.delay_steps:
            move = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
            length = max(float(np.linalg.norm(move)), 1.0)
            self._position = np.clip(self._position + STEP_LENGTH * move / length, -ARENA, ARENA)
        self._time += 1
        reached = bool(np.linalg.norm(self._position - self._goal) <= GOAL_RADIUS + 1e-6)
        truncated = not reached and self._time >= self.time_limit
        info = {"success": reached} if reached or truncated else {}
        return self._observation(), left - self._way_left(), reached, truncated, info

    def _way_left(self) -> float:
        """Return the distance to the goal's rim, as a share of that at the start."""
        distance = float(np.linalg.norm(self._position - self._goal))
        return max(distance - GOAL_RADIUS, 0.0) / (GOAL_DISTANCE - GOAL_RADIUS)

    def _observation(self) -> np.ndarray:
        hint = self._goal if self._time == 0 else np.zeros(2)
        return np.array([*self._position, *hint, self._time >= self.delay_steps], np.float32)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return a ``(120, 120, 3)`` uint8 picture: goal green (framed while it is shown), point blue."""
        if self.render_mode != "rgb_array":
            return None
        axis = np.linspace(-ARENA, ARENA, 120)
        x, y = np.meshgrid(axis, -axis)
        image = np.full((120, 120, 3), 235, np.uint8)
        to_goal = np.hypot(x - self._goal[0], y - self._goal[1])
        image[to_goal <= GOAL_RADIUS] = (70, 180, 90)
        if self._time == 0:
            image[(to_goal > GOAL_RADIUS + 0.04) & (to_goal <= GOAL_RADIUS + 0.1)] = (70, 180, 90)
        image[np.hypot(x - self._position[0], y - self._position[1]) <= 0.08] = (50, 90, 220)
        return image


class PointRecallExpert:
    """Remembers the goal and goes straight there."""

    def __init__(self) -> None:
        self._goal = np.zeros(2)

    def reset(self) -> None:
        """Forget the goal."""
        self._goal = np.zeros(2)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Return the next displacement; nothing while it may not move."""
        if np.any(obs[2:4]):
            self._goal = obs[2:4].astype(np.float64)
        if not obs[4]:
            return np.zeros(2, np.float32)
        way = (self._goal - obs[:2]) / STEP_LENGTH
        return np.asarray(way / max(float(np.linalg.norm(way)), 1.0), np.float32)
