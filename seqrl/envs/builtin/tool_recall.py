"""A tool and a distance are shown once; some steps later that tool has to be moved that far.

The smallest task that needs a memory and whose actions are a dict of a choice and a value.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.grid import AGENT, DANGER, FLOOR, GOAL, picture, require_between

Action = dict[str, Any]


class ToolRecall(gym.Env[np.ndarray, Action]):
    """Remember a tool and a distance over a delay, then use the one to go the other.

    Observation Box ``(num_tools + 2,)``: in the first observation a one-hot of the tool and the distance, else zeros;
    and last, 1 where the answer is due. Actions: Dict of ``tool`` Discrete and ``distance`` Box [-1, 1]; ignored until
    the answer is due. The answer ends the episode. It pays 1 minus the error of the distance, at least 0, with the
    right tool, and 0 with another one; it is a success with the right tool and an error of 0.2 at most.

    ``info`` at the end: ``success``, ``log/right_tool`` and ``log/error``.

    Args:
        num_tools: Number of tools; at least 2.
        delay_steps: Steps between the first observation and the one where the answer is due; at least 1.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(self, num_tools: int = 3, delay_steps: int = 4, render_mode: str | None = None) -> None:
        require_between("num_tools", num_tools, 2)
        require_between("delay_steps", delay_steps, 1)
        self.num_tools, self.delay_steps, self.render_mode = num_tools, delay_steps, render_mode
        self.observation_space = spaces.Box(-1.0, 1.0, (num_tools + 2,))
        self.action_space = spaces.Dict({"distance": spaces.Box(-1.0, 1.0, ()), "tool": spaces.Discrete(num_tools)})
        self._tool, self._distance, self._time = 0, 0.0, 0
        self._answer: tuple[int, float] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw tool and distance, and show them."""
        super().reset(seed=seed)
        self._tool = int(self.np_random.integers(self.num_tools))
        self._distance = float(self.np_random.uniform(-1.0, 1.0))
        self._answer, self._time = None, 0
        return self._observation(), {}

    def step(self, action: Action) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Wait, or answer."""
        is_due = self._time == self.delay_steps
        self._time += 1
        if not is_due:
            return self._observation(), 0.0, False, False, {}
        self._answer = int(action["tool"]), float(action["distance"])
        is_right, error = self._answer[0] == self._tool, abs(self._answer[1] - self._distance)
        info = {"success": is_right and error <= 0.2, "log/right_tool": float(is_right), "log/error": error}
        return self._observation(), max(0.0, 1.0 - error) * is_right, True, False, info

    def _observation(self) -> np.ndarray:
        seen = np.zeros(self.num_tools + 2, np.float32)
        if self._time == 0:
            seen[self._tool], seen[-2] = 1.0, self._distance
        seen[-1] = self._time == self.delay_steps
        return seen

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return an ``(H, W, 3)`` uint8 picture: a row per tool, the goal in one of them, and the answer."""
        if self.render_mode != "rgb_array":
            return None
        cells = np.full((self.num_tools, 21, 3), FLOOR, np.uint8)
        cells[self._tool, round(10 + 10 * self._distance)] = GOAL
        if self._answer is not None:
            tool, distance = self._answer
            cells[tool, round(10 + 10 * distance)] = AGENT if tool == self._tool else DANGER
        return picture(cells, 24 * 21)


class ToolRecallExpert:
    """Remembers tool and distance."""

    def __init__(self) -> None:
        self._answer: Action | None = None

    def reset(self) -> None:
        """Forget them."""
        self._answer = None

    def __call__(self, obs: np.ndarray) -> Action:
        """Return them in every step."""
        if self._answer is None or obs[:-2].any():
            self._answer = {"distance": np.float32(obs[-2]), "tool": int(obs[:-2].argmax())}
        return self._answer
