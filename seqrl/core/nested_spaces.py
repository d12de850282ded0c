"""Dict and Tuple spaces: their leaves, and actions of such spaces as one flat vector of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError, EnvError

CHOICES = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
SUPPORTED = "supported are Discrete, MultiDiscrete, MultiBinary, Box, and Dict and Tuple of these"


def children(space: spaces.Space[Any]) -> list[tuple[Any, spaces.Space[Any]]] | None:
    """Return key -> space of a composite space, else None; parts of a Dict by name, as JSON keeps no other order."""
    if isinstance(space, spaces.Dict):
        return sorted(space.spaces.items(), key=lambda part: str(part[0]))
    return list(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else None


def joined(prefix: str, key: Any) -> str:
    """Return the name of a part of a space that has a name itself, or none."""
    return f"{prefix}/{key}" if prefix else str(key)


def leaves(space: spaces.Space[Any], prefix: str) -> list[tuple[str, spaces.Space[Any]]]:
    """Return name -> space of everything that has no parts; ``prefix`` is the name of a space without any."""
    return _leaves(space, "", prefix)


def _leaves(space: spaces.Space[Any], name: str, default: str) -> list[tuple[str, spaces.Space[Any]]]:
    parts = children(space)
    if parts is None:
        return [(name or default, space)]
    return [leaf for key, sub in parts for leaf in _leaves(sub, joined(name, key), default)]


def parts_given(space: spaces.Space[Any], given: Any) -> dict[str, Any]:
    """Return name -> what is given for each leaf of a space; a leaf that is missing is left out.

    Raises:
        DataError: If something else is given for a Dict or a Tuple.
    """
    return _parts_given(space, given, "")


def _parts_given(space: spaces.Space[Any], given: Any, name: str) -> dict[str, Any]:
    parts = children(space)
    if parts is None:
        return {name: given}
    if not isinstance(given, Mapping if isinstance(space, spaces.Dict) else tuple | list | np.ndarray):
        kind = "dict" if isinstance(space, spaces.Dict) else "tuple"
        whole = f"observation {name!r}" if name else "the observation"
        raise DataError(f"{whole} does not fit its space: it is no {kind}, but {type(given).__name__}")
    keys = given if isinstance(given, Mapping) else range(len(given))
    return {
        leaf: part
        for key, sub in parts
        if key in keys
        for leaf, part in _parts_given(sub, given[key], joined(name, key)).items()
    }


def action_names(space: spaces.Space[Any]) -> list[str]:
    """Return the name of each number of :func:`flat_actions`, such as ``gripper`` or ``arm[2]``."""
    names: list[str] = []
    for name, leaf in leaves(space, "action"):
        width = _width(leaf)
        names += [name] if width == 1 and not leaf.shape else [f"{name}[{i}]" for i in range(width)]
    return names


def flat_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return the space of :func:`flat_actions`: Box, MultiDiscrete or MultiBinary; a space without parts as it is.

    A space of choices and Boxes is a Tuple of a MultiDiscrete and a Tuple of the Boxes, whose numbers
    :func:`choice_columns` tells apart.

    Raises:
        EnvError: If a part is of another kind, or there is none.
    """
    if children(space) is None:
        return space
    parts = [leaf for _, leaf in leaves(space, "action")]
    wrong = [name for name, leaf in leaves(space, "action") if not isinstance(leaf, (*CHOICES, spaces.Box))]
    if not parts or wrong:
        raise EnvError(f"action space {space!r}: {', '.join(wrong) or 'it has no parts'}; {SUPPORTED}")
    boxes = [part for part in parts if isinstance(part, spaces.Box)]
    choices = [part for part in parts if isinstance(part, CHOICES)]
    if not boxes and all(isinstance(part, spaces.MultiBinary) for part in parts):
        return spaces.MultiBinary(sum(_width(part) for part in parts))
    if not boxes:
        return _joined_choices(choices)
    return spaces.Tuple((_joined_choices(choices), spaces.Tuple(boxes))) if choices else _joined_boxes(boxes)


def choice_columns(space: spaces.Space[Any]) -> np.ndarray:
    """Return which numbers of :func:`flat_actions` are choices rather than values of a Box, ``(N,)`` bool."""
    parts = [leaf for _, leaf in leaves(space, "action")]
    return np.concatenate([np.full(_width(part), isinstance(part, CHOICES)) for part in parts])


def whole_columns(space: spaces.Space[Any]) -> np.ndarray:
    """Return which numbers of the Boxes of a space are integers, ``(N,)`` bool."""
    boxes = [leaf for _, leaf in leaves(space, "action")]
    return np.concatenate([np.full(_width(box), np.issubdtype(box.dtype, np.integer)) for box in boxes])


def flat_actions(space: spaces.Space[Any], actions: Any, *lead: int) -> np.ndarray:
    """Return actions of a Dict or Tuple space as ``(*lead, N)`` numbers, part after part in the space's order.

    Args:
        space: Of one action.
        actions: As the environment takes them; every part ``(*lead, ...)``.
        lead: Leading dimensions.

    Raises:
        DataError: If a part is missing, or has another shape.
    """
    columns = []
    for name, leaf, values in _pairs(space, actions, ""):
        array = np.asarray(values)
        if array.shape != (*lead, *(leaf.shape or ())):
            raise DataError(f"action {name!r} has shape {array.shape}, expected {(*lead, *(leaf.shape or ()))}")
        columns.append(array.reshape(*lead, _width(leaf)))
    return np.concatenate(columns, axis=-1)


def nested_actions(space: spaces.Space[Any], flat: np.ndarray) -> Any:
    """Return ``(..., N)`` numbers as actions of a Dict or Tuple space: the inverse of :func:`flat_actions`.

    Each part is ``(..., *shape)`` in its own dtype; values of an integer Box are rounded.
    """
    parts = children(space)
    if parts is None:
        whole = np.rint(flat) if np.issubdtype(space.dtype, np.integer) else flat
        shaped = whole.reshape((*flat.shape[:-1], *(space.shape or ()))).astype(space.dtype)
        return shaped[()] if isinstance(space, spaces.Discrete) else shaped  # a number where it is a single one
    widths = [sum(_width(leaf) for _, leaf in leaves(sub, "")) for _, sub in parts]
    split = np.split(flat, np.cumsum(widths)[:-1], axis=-1) if parts else []
    values = [nested_actions(sub, columns) for (_, sub), columns in zip(parts, split, strict=True)]
    return tuple(values) if isinstance(space, spaces.Tuple) else dict(zip([k for k, _ in parts], values, strict=True))


def _pairs(space: spaces.Space[Any], actions: Any, name: str) -> list[tuple[str, spaces.Space[Any], Any]]:
    parts = children(space)
    if parts is None:
        return [(name, space, actions)]
    try:
        return [pair for key, sub in parts for pair in _pairs(sub, actions[key], joined(name, key))]
    except (KeyError, IndexError, TypeError) as error:
        raise DataError(f"an action of {space!r} lacks {error}: {str(actions)[:200]}") from error


def _width(leaf: spaces.Space[Any]) -> int:
    return math.prod(leaf.shape or ())


def _joined_choices(parts: list[Any]) -> spaces.MultiDiscrete:
    sizes, starts = [], []
    for part in parts:
        if isinstance(part, spaces.MultiBinary):
            sizes.append(np.full(_width(part), 2))
            starts.append(np.zeros(_width(part), np.int64))
        else:
            sizes.append(np.ravel(part.n if isinstance(part, spaces.Discrete) else part.nvec))
            starts.append(np.ravel(part.start))
    return spaces.MultiDiscrete(np.concatenate(sizes), start=np.concatenate(starts))


def _joined_boxes(parts: list[spaces.Box]) -> spaces.Box:
    dtype = np.result_type(*(part.dtype for part in parts))
    low, high = (np.concatenate([np.ravel(getattr(part, k)) for part in parts]).astype(dtype) for k in ("low", "high"))
    return spaces.Box(low, high, dtype=dtype.type)  # type: ignore[arg-type]
