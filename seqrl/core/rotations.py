"""Rotations among the numbers of an action: environments take three numbers, policies learn six.

Axis-angle is the axis, as long as the angle in radians. It jumps where the angle passes pi, so policies learn the first
two rows of the rotation matrix instead, which do not jump (Zhou et al., 2019, arXiv 1812.07035). robomimic and
PyTorch3D store rows; the paper takes columns, which are the rows of the inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError

WIDTHS = {"axis_angle": 3, "6d": 6}
"""Form of a rotation -> how many numbers it has."""
_SMALL = 1e-9


def six_numbers(axis_angle: np.ndarray) -> np.ndarray:
    r"""Return rotations ``(..., 3)`` as the first two rows of their matrices, ``(..., 6)``.

    Computes :math:`R = I + \frac{\sin a}{a} K + \frac{1 - \cos a}{a^2} K^2` (Rodrigues) with the angle :math:`a` in
    radians and the cross-product matrix :math:`K` of the vector, in float64.
    """
    vector = np.asarray(axis_angle, np.float64)
    angle = np.linalg.norm(vector, axis=-1)[..., None]
    first, second = np.sinc(angle / np.pi), 0.5 * np.sinc(angle / (2 * np.pi)) ** 2
    unit = np.broadcast_to(np.eye(3), (*vector.shape[:-1], 3, 3))
    # R e = e + first (v x e) + second v x (v x e) are columns; a row of R is a column of the inverse, that of -v
    rows = []
    for axis in (unit[..., 0, :], unit[..., 1, :]):
        once = np.cross(-vector, axis)
        rows.append(axis + first * once + second * np.cross(-vector, once))
    return np.concatenate(rows, axis=-1)


def axis_angle(six: np.ndarray) -> np.ndarray:
    """Return six numbers ``(..., 6)`` as axis-angle ``(..., 3)`` of an angle in [0, pi], in float64.

    Numbers that are not the rows of a rotation matrix, as those of a policy, are made orthonormal first (Gram-Schmidt);
    zeros become the rotation by nothing, and what is not finite stays so.
    """
    values = np.asarray(six, np.float64)
    first = _unit(values[..., :3], np.array([1.0, 0.0, 0.0]))
    spare = np.where(np.abs(first[..., 1:2]) < 0.9, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    second = _unit(_without(values[..., 3:], first), _unit(_without(spare, first), spare))
    quaternion = _quaternion(np.stack([first, second, np.cross(first, second)], axis=-2))
    sine = np.linalg.norm(quaternion[..., 1:], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(sine, quaternion[..., :1])
    return np.asarray(quaternion[..., 1:] * np.where(sine < _SMALL, 2.0, angle / np.maximum(sine, _SMALL)))


def _unit(vector: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Return vectors of length 1; ``otherwise`` where there is hardly any length."""
    length = np.linalg.norm(vector, axis=-1, keepdims=True)
    return np.where(length < _SMALL, otherwise, vector / np.maximum(length, _SMALL))


def _without(vector: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return what of vectors is at right angles to directions of length 1."""
    return np.asarray(vector - (vector * direction).sum(-1, keepdims=True) * direction)


def _quaternion(matrix: np.ndarray) -> np.ndarray:
    """Return the quaternions (w, x, y, z) of rotation matrices, with w >= 0.

    Each row of their outer product with themselves is the quaternion up to its length; the longest is the most exact.
    """
    m = np.moveaxis(matrix, (-2, -1), (0, 1))
    trace = m[0, 0] + m[1, 1] + m[2, 2]
    w, xyz = 1 + trace, [1 + 2 * m[i, i] - trace for i in range(3)]
    wx, wy, wz = m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
    xy, xz, yz = m[0, 1] + m[1, 0], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1]
    outer = np.array([[w, wx, wy, wz], [wx, xyz[0], xy, xz], [wy, xy, xyz[1], yz], [wz, xz, yz, xyz[2]]])
    longest = np.argmax([w, *xyz], axis=0)
    row = np.moveaxis(np.take_along_axis(outer, longest[None, None], axis=0)[0], 0, -1)
    row = row / np.linalg.norm(row, axis=-1, keepdims=True)
    return np.asarray(np.where(row[..., :1] < 0, -row, row))


class RotationBox(spaces.Box):
    """Vectors, some of whose numbers are rotations: axis-angle here, six numbers each for policies.

    Args:
        low: ``(W,)`` lower bounds.
        high: ``(W,)`` upper bounds.
        rotations: Index of the first of the three numbers of each rotation.

    Attributes:
        rotations: The same, in order.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray, rotations: Iterable[int], dtype: Any = np.float32) -> None:
        super().__init__(np.asarray(low, dtype), np.asarray(high, dtype), dtype=dtype)
        self.rotations = tuple(sorted(int(start) for start in rotations))
        ends = [0, *(start + 3 for start in self.rotations)]
        if len(self.shape) != 1 or ends[-1] > self.shape[0] or (np.subtract(self.rotations, ends[:-1]) < 0).any():
            raise ValueError(f"rotations at {list(self.rotations)} do not fit into actions of shape {self.shape}")

    def for_policies(self) -> spaces.Box:
        """Return the Box of the vectors as policies know them."""
        ones = np.ones(6, np.float32)
        low, high = (
            _spliced(self.low, self.rotations, 3, lambda _: -ones),
            _spliced(self.high, self.rotations, 3, lambda _: ones),
        )
        return spaces.Box(low, high, dtype=np.float32)

    def widened(self, actions: np.ndarray) -> np.ndarray:
        """Return vectors ``(..., W)`` as policies know them, ``(..., W + 3 R)``.

        Raises:
            DataError: If they are of another width.
        """
        _check_width(actions, self.shape[0], "the environment takes")
        return _spliced(actions, self.rotations, 3, six_numbers)

    def narrowed(self, actions: np.ndarray) -> np.ndarray:
        """Return a policy's vectors ``(..., W + 3 R)`` as the environment takes them, ``(..., W)``.

        Raises:
            DataError: If they are of another width.
        """
        _check_width(actions, self.shape[0] + 3 * len(self.rotations), "the policy gives")
        starts = [start + 3 * number for number, start in enumerate(self.rotations)]
        return _spliced(actions, starts, 6, axis_angle)

    def __repr__(self) -> str:
        """Return what Box says, and the rotations."""
        return f"{super().__repr__()} with rotations at {list(self.rotations)}"

    def __eq__(self, other: object) -> bool:
        """Tell whether another space is the same Box with the same rotations."""
        return isinstance(other, RotationBox) and self.rotations == other.rotations and super().__eq__(other)


def with_rotations(space: spaces.Space[Any], like: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return a Box with the rotations that a :class:`RotationBox` of the same shape has; else the space as it is."""
    if isinstance(space, spaces.Box) and isinstance(like, RotationBox) and space.shape == like.shape:
        return RotationBox(space.low, space.high, like.rotations, space.dtype)
    return space


def _spliced(
    values: np.ndarray, starts: Sequence[int], width: int, convert: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return vectors ``(..., W)`` with what begins at each start, of a width, converted."""
    parts, at = [], 0
    for start in starts:
        parts += [values[..., at:start], convert(values[..., start : start + width])]
        at = start + width
    return np.concatenate([*parts, values[..., at:]], axis=-1)


def _check_width(actions: np.ndarray, width: int, who: str) -> None:
    if actions.shape[-1:] != (width,):
        raise DataError(f"{who} actions of width {width}, got an array of shape {actions.shape}")
