"""Which columns of an episode are its action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError
from seqrl.core.rotations import WIDTHS, RotationBox, axis_angle


@dataclass(frozen=True)
class ActionColumns:
    """Columns that make up the action, side by side, in the order in which the environment takes them.

    Attributes:
        keys: Their names.
        rotations: Column that holds rotations -> in which form, ``axis_angle`` or ``6d``. The environment takes
            axis-angle, and policies learn six numbers (:mod:`seqrl.core.rotations`).
    """

    keys: tuple[str, ...] = ("actions",)
    rotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ActionColumns:
        """Return those that the options of a reader name."""
        return cls(tuple(options.get("action_keys") or cls.keys), options.get("action_rotations") or {})

    @property
    def is_default(self) -> bool:
        """Whether it is what every file has."""
        return self == ActionColumns()

    def joined(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the actions ``(T, ...)``, as the environment takes them, of the columns of an episode by name.

        Raises:
            DataError: If a column is of another shape than the others, or than a rotation.
        """
        parts = [self._converted(key, columns[key]) for key in self.keys]
        if len(parts) == 1:
            return parts[0]
        rows = [part[:, None] if part.ndim == 1 else part for part in parts]
        if len({len(part) for part in rows}) > 1 or any(part.ndim != 2 or part.dtype.kind != "f" for part in rows):
            shapes = ", ".join(f"{key} {part.dtype} {part.shape}" for key, part in zip(self.keys, parts, strict=True))
            raise DataError(f"action_keys: only vectors of floats of equal length can be joined: {shapes}")
        return np.concatenate(rows, axis=1)

    def space(self, space: spaces.Space[Any], columns: Mapping[str, np.ndarray]) -> spaces.Space[Any]:
        """Return the space of such actions with the rotations that are among its numbers.

        Args:
            space: Without them.
            columns: Of an episode.
        """
        if not self.rotations or not isinstance(space, spaces.Box):
            return space
        widths = [int(np.prod(self._converted(key, columns[key]).shape[1:])) for key in self.keys]
        starts = dict(zip(self.keys, np.cumsum([0, *widths[:-1]]).tolist(), strict=True))
        return RotationBox(space.low, space.high, [starts[key] for key in self.rotations])

    def _converted(self, key: str, values: np.ndarray) -> np.ndarray:
        form = self.rotations.get(key)
        if form is None:
            return values
        if values.shape[1:] != (WIDTHS[form],):
            raise DataError(f"{key} has rows of shape {values.shape[1:]}, but {form} has {WIDTHS[form]} numbers")
        return axis_angle(values).astype(values.dtype) if form == "6d" else values
