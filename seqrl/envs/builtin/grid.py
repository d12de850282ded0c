"""What the built-in worlds of square cells share: moves, checks of their settings, pictures."""

from __future__ import annotations

import numpy as np

RIGHT, UP, LEFT, DOWN = range(4)
MOVES = ((0, 1), (-1, 0), (0, -1), (1, 0))
"""Change of row and column by right, up, left, down."""

FLOOR, WALL, AGENT = (225, 235, 245), (45, 50, 60), (50, 90, 220)
GOAL, KEY, DANGER = (70, 180, 90), (240, 170, 60), (200, 60, 60)


def require_between(name: str, value: float, low: float, high: float = float("inf")) -> None:
    """Check that a setting lies within its limits, both included.

    Raises:
        ValueError: If it does not.
    """
    if not low <= value <= high:
        legal = f">= {low}" if high == float("inf") else f"between {low} and {high}"
        raise ValueError(f"{name} must be {legal}, got {value}")


def picture(cells: np.ndarray, longest: int = 240) -> np.ndarray:
    """Return cells ``(H, W, 3)`` uint8 enlarged to about ``longest`` pixels, with thin lines between them."""
    scale = max(2, longest // max(cells.shape[:2]) // 2 * 2)
    image = np.kron(cells, np.ones((scale, scale, 1), np.uint8))
    if scale >= 10:
        for line in (image[scale::scale], image[:, scale::scale]):
            line[...] = line * 0.85
    return image


def dot(image: np.ndarray, row: float, column: float, radius: float, colour: tuple[int, int, int]) -> None:
    """Paint a disc into a picture; all lengths are in pixels."""
    rows, columns = np.ogrid[: image.shape[0], : image.shape[1]]
    image[np.hypot(rows + 0.5 - row, columns + 0.5 - column) <= radius] = colour
