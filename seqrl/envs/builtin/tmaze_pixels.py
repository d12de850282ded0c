"""The passive T-Maze seen through a camera: a picture is remembered, not a number.

The camera looks down the corridor. At the oracle a sign hangs there, whose arrow points up or down; every cell of the
corridor gives one and the same picture, whatever the goal; at the junction the way ends at a wall, with openings on
both sides. The rules are those of :mod:`seqrl.envs.builtin.tmaze`. Both arrows have the same colours and cover the same
area, so what tells the goal is a shape: neither a shift of colours nor a small shift of the picture changes the task.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.tmaze import TMazeExpert, TMazePassive

SIZE = 32
FINE = 8
"""Points per pixel and axis when painting, for smooth edges."""

WALL, END_WALL, FLOOR, CEILING = (150, 160, 185), (205, 130, 85), (125, 105, 80), (75, 80, 95)
SIGN, FRAME, ARROW = (245, 240, 215), (60, 50, 45), (200, 40, 45)
SIGN_HALF = 0.56
"""Half the width of the sign, where half the width of the picture is 1."""

_SEES = {
    "goal up": (1.0, 0.0, 0.0, 1.0),
    "goal down": (1.0, 0.0, 0.0, -1.0),
    "corridor": (0.0, 1.0, 0.0, 0.0),
    "junction": (0.0, 0.0, 1.0, 0.0),
}
"""Picture -> what ``TMazePassive`` shows in its place."""


@cache
def paint_pictures() -> Mapping[str, np.ndarray]:
    """Return the four pictures, ``(32, 32, 3)`` uint8 and read-only, by the name of what they show."""
    corridor = _view()
    pictures = {
        "goal up": _with_sign(corridor, 1),
        "goal down": _with_sign(corridor, -1),
        "corridor": corridor,
        "junction": _view(end=2.0, opening=1.25),
    }
    return {name: _shrunk(picture) for name, picture in pictures.items()}


def _plane() -> tuple[np.ndarray, np.ndarray]:
    """Return how far right and how far up each painted point lies, from -1 to 1."""
    axis = (np.arange(SIZE * FINE) + 0.5) / (SIZE * FINE / 2) - 1.0
    right, down = np.meshgrid(axis, axis)
    return right, -down


def _view(end: float = np.inf, opening: float = np.inf) -> np.ndarray:
    """Follow the ray of each point to what it hits first.

    Args:
        end: How far the wall is that the camera looks at, in half widths of the corridor.
        opening: How far away the walls on both sides stop.
    """
    right, up = _plane()
    to_side, to_floor = 1.0 / np.abs(right), 1.0 / np.abs(up)
    to_side[to_side > opening] = np.inf
    distances = np.stack([to_side, to_floor, np.full_like(right, end)])
    hit, distance = distances.argmin(0), distances.min(0)
    colour = np.array([WALL, FLOOR, END_WALL], np.float64)[hit]
    colour[(hit == 1) & (up > 0)] = CEILING
    light = np.exp(-0.22 * (distance - 1.0))
    light = light * np.where((hit < 2) & (np.floor(2.0 * distance) % 2 == 0), 0.86, 1.0)  # tiles and panels
    return np.asarray(colour * light[..., None])


def _with_sign(view: np.ndarray, goal: int) -> np.ndarray:
    """Return the view with a sign in its middle, whose arrow points up (1) or down (-1)."""
    right, up = _plane()
    along, across = up * goal / SIGN_HALF, np.abs(right) / SIGN_HALF
    edge = np.maximum(np.abs(along), across)
    head = (along >= 0.0) & (along <= 0.72) & (across <= 0.72 - along)
    shaft = (along >= -0.72) & (along < 0.0) & (across <= 0.2)
    picture = np.array(view)
    picture[edge <= 1.0] = FRAME
    picture[edge <= 0.88] = SIGN
    picture[head | shaft] = ARROW
    return picture


def _shrunk(picture: np.ndarray) -> np.ndarray:
    """Return the means over the points of each pixel, for reading only."""
    small = np.asarray(picture.reshape(SIZE, FINE, SIZE, FINE, 3).mean((1, 3)).round(), np.uint8)
    small.flags.writeable = False
    return small


class TMazePixels(TMazePassive):
    """``TMazePassive`` whose observations are pictures, ``(32, 32, 3)`` uint8. See the module.

    The four pictures are painted once in a process; an observation is a copy of one of them.
    """

    def __init__(
        self,
        corridor_length: int = 20,
        slack_steps: int = 0,
        penalty: float | None = None,
        balanced_goals: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(corridor_length, slack_steps, penalty, balanced_goals, render_mode)
        self.observation_space = spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)

    def _observation(self) -> np.ndarray:
        if self._x == 0:
            name = "goal up" if self._goal == 1 else "goal down"
        else:
            name = "junction" if self._x == self._junction else "corridor"
        return np.array(paint_pictures()[name])


class TMazePixelsExpert(TMazeExpert):
    """Takes a picture for the painted one that is nearest to it, and acts like the T-Maze's expert."""

    def __init__(self) -> None:
        super().__init__()
        self._painted = {name: picture.astype(np.float32) for name, picture in paint_pictures().items()}

    def __call__(self, obs: np.ndarray) -> int:
        """Return the next action."""
        seen = min(self._painted, key=lambda name: float(np.square(self._painted[name] - obs).sum()))
        return super().__call__(np.array(_SEES[seen], np.float32))
