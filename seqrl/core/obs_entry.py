"""What a policy reads of an observation, and whether a given one is that; the same with torch and in ONNX files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from seqrl.core.errors import DataError, did_you_mean

Values = Literal["finite", "unit", "any"]
"""Which numbers an entry may hold: finite; those of an image, not bytes; or any, where NaN and inf have a meaning."""

UNIT_LIMIT = 10.0
"""Images of floats with a larger number are taken for bytes (0 to 255); those in [0, 1], or standardised, have none."""


@dataclass(frozen=True)
class ObsEntry:
    """One entry that a policy reads.

    Attributes:
        label: How messages name it, such as ``observation 'state'``.
        shape: Shape of one observation.
        dtype: NumPy dtype name, as in training.
        nvec: Sizes of the categories, which are counted from 0; None if it holds numbers.
        values: Which numbers it may hold.
    """

    label: str
    shape: tuple[int, ...]
    dtype: str
    nvec: tuple[int, ...] | None = None
    values: Values = "finite"

    def check_form(self, value: np.ndarray, *, is_batched: bool) -> None:
        """Check shape and dtype of one observation, or of one per row.

        Raises:
            DataError: If they are others than in training.
        """
        if (value.shape[1:] if is_batched else value.shape) != self.shape or value.ndim != len(self.shape) + is_batched:
            raise DataError(self._shape_problem(value.shape, is_batched))
        if (kind := value.dtype.kind) not in "biuf":
            raise DataError(f"{self.label} is of dtype {value.dtype}, not numbers")
        is_image = self.nvec is None and len(self.shape) > 1
        if self.dtype == "uint8" and (kind == "f" or (is_image and value.dtype != np.uint8)):
            raise DataError(f"{self.label} is {value.dtype}, but was uint8 (0 to 255) in training; give it as uint8")

    def check_values(self, rows: np.ndarray) -> None:
        """Check the numbers of one observation per row.

        Raises:
            DataError: If one is no category, not finite, or too large for an image in [0, 1].
        """
        if self.nvec is not None:
            flat = rows.reshape(len(rows), -1)
            if not ((flat >= 0) & (flat < np.asarray(self.nvec)) & (flat == np.floor(flat))).all():
                raise DataError(
                    f"{self.label} is outside its categories {list(self.nvec)}: {rows.tolist()}, counted from the "
                    "start of its space"
                )
        elif rows.dtype.kind == "f" and self.values != "any":
            if np.count_nonzero(finite := np.isfinite(rows)) < rows.size:  # faster than all()
                row, *place = np.argwhere(~finite)[0].tolist()
                where = (f" at {place}" if place else "") + _in_row(row, rows)
                raise DataError(f"{self.label} has {rows[(row, *place)]}{where}; the policy reads finite numbers only")
            if self.values == "unit" and rows.max(initial=0.0) > UNIT_LIMIT:
                row = int(rows.reshape(len(rows), -1).max(1).argmax())
                raise DataError(f"{self.label} has {rows.max():g}{_in_row(row, rows)}, {BEYOND_UNIT}")

    def _shape_problem(self, given: tuple[int, ...], is_batched: bool) -> str:
        expected = self.shape
        shown = (
            f"({', '.join(['rows', *map(str, expected)])}{'' if expected else ','})" if is_batched else f"{expected}"
        )
        one = given[1:] if is_batched else given
        hint = ""
        if not is_batched and given[1:] == expected and given:
            hint = "; for several rows at once pass batched_ob=True"
        elif is_batched and given == expected:
            hint = "; with batched_ob=True give one row per environment, goals too; for a single one leave it out"
        elif len(expected) == 3 and one != expected and sorted(one) == sorted(expected):
            side = {0: "the channels were first", 2: "the channels were last"}.get(expected.index(min(expected)))
            hint = f"; its axes are in another order than in training{f', where {side}' if side else ''}"
        return f"{self.label} has shape {given}, expected {shown}{hint}"


BEYOND_UNIT = (
    "but images of floats are read as numbers in [0, 1]: divide them by 255, or use uint8 (0 to 255) in training and "
    "when acting; for other numbers set the image's scale to 'none' in observation.timestep_encoder"
)
"""What to say of an image of floats with larger numbers."""


def _in_row(row: int, rows: np.ndarray) -> str:
    return f" in row {row}" if len(rows) > 1 else ""


def num_rows_of(obs: Mapping[str, np.ndarray]) -> int:
    """Return how many rows the entries of an observation have, ``(rows, ...)`` each.

    Raises:
        DataError: If one has more than another, or there is none.
    """
    first, *others = obs
    if not len(obs[first]):
        raise DataError(f"{first!r} has no rows, so there is nothing to act on")
    for name in others:
        if len(obs[name]) != len(obs[first]):
            raise DataError(f"{name!r} has {counted_rows(len(obs[name]))}, but {first!r} has {len(obs[first])}")
    return len(obs[first])


def mask_rows(action_mask: Any, num_rows: int, factors: Sequence[int]) -> list[Any]:
    """Return the action mask of each row, of masks for several rows.

    A tuple of one array per factor, each of a row per environment, is put together.

    Raises:
        DataError: If there is none.
    """
    shapes = [(num_rows, size) for size in factors]
    if isinstance(action_mask, tuple) and [getattr(part, "shape", None) for part in action_mask] == shapes:
        return list(np.concatenate(action_mask, axis=-1))
    rows = list(action_mask) if np.iterable(action_mask) else [action_mask]
    if not rows:
        raise DataError(f"action_mask has no rows, but the observation has {counted_rows(num_rows)}")
    return rows


def check_rewards(rewards: np.ndarray) -> None:
    """Check the last rewards ``(B,)`` of a policy that reads them.

    Raises:
        DataError: If one is not finite.
    """
    if not (finite := np.isfinite(rewards)).all():
        row = int(np.argmin(finite))
        raise DataError(f"reward is {rewards[row]}{_in_row(row, rewards)}; the policy reads finite numbers only")


def check_finite_actions(actions: np.ndarray) -> None:
    """Check the policy's actions ``(B, A)``, so that nothing else is executed.

    Raises:
        DataError: If one is not finite.
    """
    if not (finite := np.isfinite(actions).reshape(len(actions), -1).all(1)).all():
        row = int(np.argmin(finite))
        raise DataError(f"the policy's action is {actions[row].tolist()}{_in_row(row, actions)}, which is not finite")


def check_present(read: Iterable[str], given: Iterable[str]) -> None:
    """Check that the entries which a policy reads are given.

    Raises:
        DataError: That names the others, and what is near.
    """
    given = list(given)
    if missing := sorted(set(read) - set(given)):
        named = ", ".join(map(repr, missing))
        raise DataError(
            f"the observation lacks {named}; it has {', '.join(map(str, given)) or 'nothing'}"
            + did_you_mean(missing[0], given)
        )


def counted_rows(num: int) -> str:
    """Return ``1 row`` or ``2 rows``."""
    return f"{num} row{'' if num == 1 else 's'}"


def changed_rows(num: int, before: int) -> str:
    """Return what to say of an observation of other rows than the episode's first."""
    return f"the observation has {counted_rows(num)}, but the episode began with {before}; call start_episode() first"


def checked_rows(rows: Any, num_rows: int) -> np.ndarray:
    """Return which rows begin a new episode.

    Raises:
        DataError: If they are no bools, or of another number.
    """
    flags = np.asarray(rows)
    if flags.dtype != bool:
        raise DataError(f"rows must be one bool for each row, got {flags.dtype}")
    if flags.shape != (num_rows,):
        raise DataError(f"rows has shape {flags.shape}, but the episode has {counted_rows(num_rows)}")
    return flags


def check_mask_is_given(is_given: bool, *, was_given: bool) -> None:
    """Raise a DataError if a call lacks the action mask that the one before it in the episode had."""
    if was_given and not is_given:
        raise DataError(
            "the last call had an action_mask, this one has none: pass info['action_mask'] with every observation"
        )
