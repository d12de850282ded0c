"""T-Maze: remember a hint over a corridor, then turn to the side it named (Bakker, 2001; Ni et al., 2023).

::

                      G   <- goal up
    O S . . . . . . . J
                      G   <- goal down

In the passive maze the agent starts at the oracle ``O`` and walks away from it; in the active maze it starts at ``S``
and has to fetch the hint first. Nothing after the oracle tells the goal, and no observation tells the position, so a
policy without memory succeeds half of the time.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

RIGHT, UP, LEFT, DOWN = range(4)


class _TMaze(gym.Env[np.ndarray, np.int64]):
    """Both mazes.

    Observation ``(4,)`` float32: at the oracle, in the corridor, at the junction (one of them 1), and the hint
    (+1 goal up, -1 goal down), which is 0 everywhere but at the oracle. Actions: right, up, left, down.
    Turning at the junction ends the episode: reward 1 and ``info["success"]`` if to the goal, 0 otherwise. Walking
    into a wall leaves the agent where it is; a step that falls behind the direct way costs ``penalty``.

    Args:
        corridor_length: Steps from the start to the junction.
        start: Steps from the oracle to the start.
        slack_steps: Steps allowed beyond the shortest solution before the episode is truncated.
        penalty: Cost of a step behind schedule; null is ``1 / (time limit - 1)``, 0 turns it off.
        balanced_goals: Draw the goals in shuffled pairs, so that any even number of episodes has as many of each.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(
        self,
        corridor_length: int,
        start: int,
        slack_steps: int,
        penalty: float | None,
        balanced_goals: bool,
        render_mode: str | None,
    ) -> None:
        if corridor_length < 1:
            raise ValueError(f"corridor_length must be >= 1, got {corridor_length}")
        if slack_steps < 0:
            raise ValueError(f"slack_steps must be >= 0, got {slack_steps}")
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.render_mode = render_mode
        self._start = start
        self._junction = start + corridor_length
        self.time_limit = 2 * start + corridor_length + 1 + slack_steps
        self._penalty = 1.0 / max(self.time_limit - 1, 1) if penalty is None else penalty
        self._balanced = balanced_goals
        self._pending_goal: int | None = None
        self._goal, self._x, self._y, self._time, self._seen = 1, start, 0, 0, False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a goal and go back to the start. A seed also restarts the pairs of ``balanced_goals``."""
        super().reset(seed=seed)
        if seed is not None:
            self._pending_goal = None
        self._goal = self._draw_goal()
        self._x, self._y, self._time, self._seen = self._start, 0, 0, self._start == 0
        return self._observation(), {}

    def _draw_goal(self) -> int:
        if self._pending_goal is not None:
            goal, self._pending_goal = self._pending_goal, None
            return goal
        goal = 1 if self.np_random.random() < 0.5 else -1
        self._pending_goal = -goal if self._balanced else None
        return goal

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move, and end the episode on a turn at the junction or at the time limit."""
        self._time += 1
        move = int(action)
        turned = self._x == self._junction and move in (UP, DOWN)
        success = False
        reward = 0.0
        if turned:
            self._y = 1 if move == UP else -1
            success = self._y == self._goal
            reward = float(success)
        else:
            self._x = int(np.clip(self._x + {RIGHT: 1, LEFT: -1}.get(move, 0), 0, self._junction))
            self._seen |= self._x == 0
            reward = -self._penalty if self._is_behind() else 0.0
        truncated = not turned and self._time >= self.time_limit
        info = {"success": success} if turned or truncated else {}
        return self._observation(), reward, turned, truncated, info

    def _is_behind(self) -> bool:
        """Tell whether the agent is further from the end than the direct way is at this time."""
        left = self._junction - self._x if self._seen else self._x + self._junction
        return left > 2 * self._start + (self._junction - self._start) - self._time and left > 0

    def _observation(self) -> np.ndarray:
        at_oracle, at_junction = self._x == 0, self._x == self._junction
        hint = self._goal if at_oracle else 0
        return np.array([at_oracle, not (at_oracle or at_junction), at_junction, hint], np.float32)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return an ``(H, W, 3)`` uint8 picture: oracle orange, agent blue, goal green."""
        if self.render_mode != "rgb_array":
            return None
        cell = max(2, min(12, 600 // (self._junction + 3)))
        grid = np.full((5, self._junction + 3, 3), 40, np.uint8)
        grid[2, 1:-1] = 220
        grid[1, self._junction + 1] = grid[3, self._junction + 1] = 220
        grid[2, 1] = (240, 170, 60)
        grid[1 if self._goal == 1 else 3, self._junction + 1] = (70, 180, 90)
        grid[2 - self._y, self._x + 1] = (50, 90, 220)
        return np.kron(grid, np.ones((cell, cell, 1), np.uint8))


class TMazePassive(_TMaze):
    """T-Maze that starts at the oracle: pure memory, no exploration. See the module for the rules."""

    def __init__(
        self,
        corridor_length: int = 50,
        slack_steps: int = 0,
        penalty: float | None = None,
        balanced_goals: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(corridor_length, 0, slack_steps, penalty, balanced_goals, render_mode)


class TMazeActive(_TMaze):
    """T-Maze whose hint has to be fetched, ``oracle_distance`` steps in the wrong direction."""

    def __init__(
        self,
        corridor_length: int = 50,
        oracle_distance: int = 1,
        slack_steps: int = 0,
        penalty: float | None = None,
        balanced_goals: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if oracle_distance < 1:
            raise ValueError(f"oracle_distance must be >= 1, got {oracle_distance}")
        super().__init__(corridor_length, oracle_distance, slack_steps, penalty, balanced_goals, render_mode)


class TMazeExpert:
    """Goes left until it has seen the hint, then right to the junction, then to the goal."""

    def __init__(self) -> None:
        self._hint = 0.0

    def reset(self) -> None:
        """Forget the hint."""
        self._hint = 0.0

    def __call__(self, obs: np.ndarray) -> int:
        """Return the next action."""
        _, _, at_junction, hint = obs
        self._hint = float(hint) or self._hint
        if not self._hint:
            return LEFT
        if not at_junction:
            return RIGHT
        return UP if self._hint > 0 else DOWN
