"""A room with an invisible key and an invisible door (after Laskin et al., 2022, and Ni et al., 2023).

Only the reward tells that the key was found, and only then the door can be. When both are, or the attempt's time is
over, the agent is put back to the middle of the same room until the horizon ends the episode: who remembers where they
were goes straight there.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.grid import AGENT, FLOOR, GOAL, KEY, MOVES, dot, picture, require_between


class DarkKeyDoor(gym.Env[np.ndarray, np.int64]):
    """Find the key, then the door, again and again until the horizon.

    Observation float32 from 0 to 1: row, column, and 1 where an attempt begins; in the light also whether the agent has
    the key, and row and column of the key and of the door: ``(3,)`` or ``(8,)``. Actions: right, up, left, down; walls
    stop it. Stepping on the key pays 1, and so does stepping on the door with the key, which ends the attempt. The next
    observation already is the first one of the next attempt; the horizon truncates the episode.

    ``info`` at the end: ``log/keys``, ``log/doors`` (how many), and ``success`` (a door was opened).

    Args:
        size: Cells along each side, usually 4 to 9.
        horizon: Steps of an episode.
        attempt_steps: Longest attempt.
        is_light: Show key and door.
        random_places: Draw key and door anew in each episode; otherwise they lie in two fixed corners.
        shuffled_actions: Shuffle what the actions do, anew in each episode.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(
        self,
        size: int = 4,
        horizon: int = 100,
        attempt_steps: int = 50,
        is_light: bool = False,
        random_places: bool = True,
        shuffled_actions: bool = False,
        render_mode: str | None = None,
    ) -> None:
        require_between("size", size, 2)
        require_between("horizon", horizon, 1)
        require_between("attempt_steps", attempt_steps, 1)
        self.observation_space = spaces.Box(0.0, 1.0, (8 if is_light else 3,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.render_mode = render_mode
        self.size, self.horizon, self.attempt_steps = size, horizon, attempt_steps
        self._is_light, self._is_random, self._is_shuffled = is_light, random_places, shuffled_actions
        self._start = (size // 2, size // 2)
        self._cell, self._key, self._door = self._start, (0, size - 1), (size - 1, 0)
        self._controls = np.arange(4)
        self._has_key, self._time, self._attempt_time = False, 0, 0
        self._keys = self._doors = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw the places and the controls, and begin the first attempt."""
        super().reset(seed=seed)
        if self._is_random:
            cells = [c for c in np.ndindex(self.size, self.size) if c != self._start]
            key, door = self.np_random.choice(len(cells), 2, replace=False)
            self._key, self._door = cells[key], cells[door]
        self._controls = self.np_random.permutation(4) if self._is_shuffled else np.arange(4)
        self._time = self._keys = self._doors = 0
        self._begin_attempt()
        return self._observation(), {}

    def _begin_attempt(self) -> None:
        self._cell, self._has_key, self._attempt_time = self._start, False, 0

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move, take the key or open the door, and begin the next attempt where this one is over."""
        self._time += 1
        self._attempt_time += 1
        move = MOVES[int(self._controls[int(action)])]
        row, column = (min(max(at + by, 0), self.size - 1) for at, by in zip(self._cell, move, strict=True))
        self._cell = (row, column)
        found_key = self._cell == self._key and not self._has_key
        opened = self._cell == self._door and self._has_key
        self._has_key |= found_key
        self._keys += found_key
        self._doors += opened
        truncated = self._time >= self.horizon
        if not truncated and (opened or self._attempt_time >= self.attempt_steps):
            self._begin_attempt()
        info: dict[str, Any] = {}
        if truncated:
            info = {"log/keys": float(self._keys), "log/doors": float(self._doors), "success": self._doors > 0}
        return self._observation(), float(found_key or opened), False, truncated, info

    def _observation(self) -> np.ndarray:
        last = self.size - 1
        seen = [self._cell[0] / last, self._cell[1] / last, float(self._attempt_time == 0)]
        if self._is_light:
            seen += [float(self._has_key), *(at / last for at in (*self._key, *self._door))]
        return np.array(seen, np.float32)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return an ``(H, W, 3)`` uint8 picture: key orange until it is taken, door green, agent blue."""
        if self.render_mode != "rgb_array":
            return None
        cells = np.full((self.size, self.size, 3), FLOOR, np.uint8)
        cells[self._door] = GOAL
        if not self._has_key:
            cells[self._key] = KEY
        image = picture(cells)
        scale = len(image) // self.size
        dot(image, (self._cell[0] + 0.5) * scale, (self._cell[1] + 0.5) * scale, 0.3 * scale, AGENT)
        return image
