"""Text as arrays of one width, so that it is stored, batched and sent like everything else that is observed."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError

TEXT_BYTES = 256
"""Width of every entry of text: its UTF-8 bytes, and zeros behind them."""


def encode_text(text: Any) -> np.ndarray:
    """Return text, or any array of texts, as ``(..., 256)`` uint8.

    Raises:
        DataError: If one is longer than 256 bytes, or no text.
    """
    given = np.asarray(text, dtype=object)
    rows = np.zeros((given.size, TEXT_BYTES), np.uint8)
    for row, one in zip(rows, given.ravel(), strict=True):
        if not isinstance(one, str | bytes):
            raise DataError(f"expected text, got {one!r}")
        encoded = one.encode() if isinstance(one, str) else one
        if len(encoded) > TEXT_BYTES:
            raise DataError(f"text has {len(encoded)} bytes, more than {TEXT_BYTES}: {one[:60]!r}...")
        row[: len(encoded)] = np.frombuffer(encoded, np.uint8)
    return rows.reshape(*given.shape, TEXT_BYTES)


def decode_text(row: np.ndarray) -> str:
    """Return the text of one row ``(256,)`` of uint8; bytes that are no UTF-8 are replaced."""
    return row.tobytes().rstrip(b"\0").decode(errors="replace")


def has_text(space: spaces.Space[Any] | None) -> bool:
    """Tell whether an observation space holds text."""
    if isinstance(space, spaces.Dict):
        return any(map(has_text, space.spaces.values()))
    return any(map(has_text, space.spaces)) if isinstance(space, spaces.Tuple) else isinstance(space, spaces.Text)


def readable_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return the space with a Box of bytes in place of each text."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: readable_space(sub) for name, sub in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([readable_space(sub) for sub in space.spaces])
    return spaces.Box(0, 255, (TEXT_BYTES,), np.uint8) if isinstance(space, spaces.Text) else space


def readable(space: spaces.Space[Any], obs: Any) -> Any:
    """Return an observation of ``space`` as one of :func:`readable_space`."""
    if isinstance(space, spaces.Dict):
        return {name: readable(sub, obs[name]) for name, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(readable(sub, part) for sub, part in zip(space.spaces, obs, strict=True))
    return encode_text(obs) if isinstance(space, spaces.Text) else obs


def with_readable_text(obs: Any) -> Any:
    """Return an observation with each text in it as its bytes; nested dicts and tuples are searched."""
    if isinstance(obs, dict):
        return {name: with_readable_text(part) for name, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(with_readable_text(part) for part in obs)
    return encode_text(obs) if _is_text(obs) else obs


def _is_text(obs: Any) -> bool:
    if isinstance(obs, str | bytes):
        return True
    if not isinstance(obs, np.ndarray | list):
        return False
    given = np.asarray(obs)
    return given.dtype.kind in "US" or (
        given.dtype == object and all(isinstance(x, str | bytes) for x in given.ravel())
    )
