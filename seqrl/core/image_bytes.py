"""Bytes where a policy was trained on images of floats, most often of 0 to 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.nested_spaces import children, joined
from seqrl.core.spaces import OBS_KEY


def images_of_bytes(space: spaces.Space[Any], obs: Any, prefix: str = "") -> list[str]:
    """Return the names of images of floats for which an observation holds bytes, and which the space keeps below 255.

    A Box of floats up to 255 is what environments of bytes often declare by mistake; then bytes are as in training.
    """
    parts = children(space)
    if parts is not None:
        return [name for key, sub in parts for name in images_of_bytes(sub, obs[key], joined(prefix, key))]
    if not isinstance(space, spaces.Box) or not is_image_of_bytes(np.asarray(obs).dtype, space.shape, space.dtype):
        return []
    top = float(space.high.max())
    return [] if math.isfinite(top) and top >= 255 else [prefix or OBS_KEY]


def is_image_of_bytes(given: np.dtype[Any], shape: tuple[int, ...], expected: np.dtype[Any] | str) -> bool:
    """Tell whether 0 to 255 was given where an image of floats, most often of 0 to 1, is expected."""
    return len(shape) == 3 and np.dtype(expected).kind == "f" and given == np.uint8
