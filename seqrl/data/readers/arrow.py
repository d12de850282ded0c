"""Columns of Arrow tables as arrays, for the formats that are made of Arrow or Parquet files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from seqrl.core.errors import DataError

_FORMATS = ("PNG", "JPEG")
"""Others can start programs (PostScript), and no dataset needs them."""


def pyarrow_for(path: Path, extra: str) -> Any:
    """Return the module ``pyarrow`` with ``dataset`` and ``parquet`` loaded.

    Args:
        path: What is read, for the message.
        extra: Of seqrl, that brings the package.

    Raises:
        DataError: If it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.dataset
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"{path}: to read it, pip install 'seqrl[{extra}]' (pyarrow)") from error
    return pyarrow


def numbers_of(column: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return the values ``(N, *shape)`` of an Arrow array of numbers, or of lists, nested or flat, of numbers.

    Raises:
        DataError: If it holds something else, nothing in some row, or too much or too little for the shape.
    """
    num, values = len(column), column
    while hasattr(values.type, "value_type"):
        if values.null_count:
            raise DataError("a column has rows without a value")
        lengths = np.diff(values.offsets.to_numpy()) if hasattr(values, "offsets") else np.zeros(0)
        if len(lengths) and lengths.min() != lengths.max():
            raise DataError(f"rows of {column.type} have different lengths, from {lengths.min()} to {lengths.max()}")
        values = values.flatten()
    if values.null_count:
        raise DataError("a column has rows without a value")
    array: np.ndarray = values.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "biuf" or array.size != num * int(np.prod(shape)):
        raise DataError(f"{num} rows of {column.type} do not make {num} of shape {shape}")
    return array.reshape(num, *shape)


def images_of(rows: list[bytes], shape: tuple[int, ...], *, is_reduced: bool = False) -> np.ndarray:
    """Return the pictures ``(N, *shape)`` uint8 in encoded files (PNG, JPEG).

    Args:
        rows: The files.
        shape: Of a picture.
        is_reduced: They may have other sizes, and are in colour afterwards; the shape is (height, width, 3).

    Raises:
        DataError: If one has another shape.
    """
    try:
        images: list[Image.Image] = [Image.open(io.BytesIO(row), formats=_FORMATS) for row in rows]
    except Image.DecompressionBombError as error:
        raise DataError(f"an image is too large ({error})") from error
    if is_reduced:
        size = (shape[1], shape[0])
        images = [image.convert("RGB").resize(size, Image.Resampling.BOX) for image in images]
    pictures = [np.asarray(image) for image in images]
    if wrong := next((p.shape for p in pictures if p.shape != shape and (*p.shape, 1) != tuple(shape)), None):
        raise DataError(f"an image has shape {wrong}, but its space {shape}")
    return np.stack(pictures).reshape(len(rows), *shape)
