"""Frames of any kind as pictures, and files of moving pictures: GIF always, MP4 with the extra ``video``."""

from __future__ import annotations

import importlib.util
import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image, ImageDraw, ImageFont, features

from seqrl.core.errors import ConfigError, DataError
from seqrl.core.files import hidden_path, write_atomic
from seqrl.models.timestep_encoders.images import channel_axis

VIDEO_SUFFIXES = (".gif", ".mp4")
_MOST, _FEWEST = 640, 240
_LINE, _GAP, _FONT = 16, 4, 12
_BACKGROUND, _TEXT = (24, 24, 27), (235, 235, 235)


# ------------------------------------------------------------------------------------------- pictures
def as_picture(frame: Any, limits: tuple[float, float] | None = None) -> np.ndarray:
    """Return a frame as ``(H, W, 3)`` uint8.

    One channel becomes gray, the fourth of RGBA is left out, and of any other number the last channel is shown.

    Args:
        frame: ``(H, W)``, ``(H, W, C)`` or ``(C, H, W)`` numbers.
        limits: Values that become black and white. None leaves uint8 as it is, and takes 0 and 1 for bools and for
            floats that do not exceed 1, else 0 and 255.

    Raises:
        DataError: If it has another shape, or holds no numbers.
    """
    array = np.asarray(frame)
    if array.dtype.kind not in "biuf" or array.ndim not in (2, 3) or 0 in array.shape:
        raise DataError(
            f"a frame must be an array (H, W), (H, W, C) or (C, H, W) of numbers, got {type(frame).__name__} of "
            f"{array.dtype} and shape {array.shape}"
        )
    pixels = _three_channels(array)
    if pixels.dtype == np.uint8 and limits is None:
        return np.ascontiguousarray(pixels)
    numbers = np.nan_to_num(pixels.astype(np.float64))
    if limits is None:
        is_unit = pixels.dtype == np.bool_ or (pixels.dtype.kind == "f" and numbers.max() <= 1)
        limits = (0.0, 1.0 if is_unit else 255.0)
    low, high = limits
    share = (numbers - low) / max(high - low, 1e-12)
    return np.asarray(np.rint(np.clip(share, 0.0, 1.0) * 255), np.uint8)


def _three_channels(array: np.ndarray) -> np.ndarray:
    """Return ``(H, W, 3)`` of the array's dtype."""
    if array.ndim == 2:
        return np.repeat(array[..., None], 3, axis=-1)
    is_last = array.shape[-1] in (1, 3, 4) or channel_axis(array.shape) != "first"
    pixels = array if is_last else np.moveaxis(array, 0, -1)
    if pixels.shape[-1] == 3:
        return pixels
    return pixels[..., :3] if is_last and pixels.shape[-1] == 4 else np.repeat(pixels[..., -1:], 3, axis=-1)


def fitted(picture: np.ndarray) -> np.ndarray:
    """Return a picture whose longer side is neither tiny nor beyond 640, enlarged or reduced by a whole factor."""
    longer = max(picture.shape[:2])
    if longer > _MOST:
        return np.asarray(Image.fromarray(picture).reduce(-(-longer // _MOST)))
    factor = -(-_FEWEST // longer)
    return np.repeat(np.repeat(picture, factor, axis=0), factor, axis=1) if factor > 1 else picture


def captioned(picture: np.ndarray, lines: Sequence[str]) -> np.ndarray:
    """Return a picture with lines of text below it; what is too long is cut off."""
    height, width = picture.shape[:2]
    canvas = Image.new("RGB", (width, height + _LINE * len(lines) + _GAP), _BACKGROUND)
    canvas.paste(Image.fromarray(picture), (0, 0))
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(_FONT if features.check("freetype2") else None)
    for i, line in enumerate(lines):
        draw.text((_GAP, height + _GAP // 2 + i * _LINE), line, fill=_TEXT, font=font)
    return np.asarray(canvas)


def side_by_side(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Return pictures ``(H, W, 3)`` of any sizes in a grid that is about as wide as high."""
    if len(pictures) == 1:
        return pictures[0]
    height, width = (max(p.shape[axis] for p in pictures) for axis in (0, 1))
    columns = min(len(pictures), math.ceil(math.sqrt(len(pictures) * height / width)))
    rows = -(-len(pictures) // columns)
    out = np.full((rows * (height + _GAP) - _GAP, columns * (width + _GAP) - _GAP, 3), _BACKGROUND, np.uint8)
    for i, picture in enumerate(pictures):
        top, left = i // columns * (height + _GAP), i % columns * (width + _GAP)
        out[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return out


def sized(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return a picture of that size: what is missing is dark, what is too much is cut off."""
    if picture.shape[:2] == (height, width):
        return picture
    out = np.full((height, width, 3), _BACKGROUND, np.uint8)
    part = picture[:height, :width]
    out[: part.shape[0], : part.shape[1]] = part
    return out


# ---------------------------------------------------------------------------------------------- files
def check_video_suffix(suffix: str) -> None:
    """Check that videos of a kind can be written.

    Raises:
        ConfigError: If it is neither ``.gif`` nor ``.mp4``, or ``.mp4`` and what writes it is not installed.
    """
    if suffix not in VIDEO_SUFFIXES:
        raise ConfigError(f"a video ends in {' or '.join(VIDEO_SUFFIXES)}, not in {suffix or 'nothing'!r}")
    if suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ConfigError("mp4 needs imageio-ffmpeg: pip install 'seqrl[video]'; or write a gif, which needs nothing")


class _File(Protocol):
    """Takes pictures of one size."""

    def add(self, picture: np.ndarray) -> None:
        """Take the next picture."""

    def close(self, *, is_kept: bool) -> None:
        """Put the file in its place, or leave nothing."""


class _Gif:
    """An endless GIF. Frames are kept with one byte per pixel until the end."""

    def __init__(self, path: Path, fps: float) -> None:
        self._path, self._duration_ms = path, round(100 / fps) * 10  # the format counts in 10 ms
        self._images: list[Image.Image] = []

    def add(self, picture: np.ndarray) -> None:
        self._images.append(Image.fromarray(picture).quantize(256, dither=Image.Dither.NONE))

    def close(self, *, is_kept: bool) -> None:
        if is_kept:
            data = io.BytesIO()
            self._images[0].save(
                data, "GIF", save_all=True, append_images=self._images[1:], duration=self._duration_ms, loop=0
            )
            write_atomic(self._path, data.getvalue())


class _Mp4:
    """H.264 in MP4, encoded by ffmpeg as the frames come. Width and height are even."""

    def __init__(self, path: Path, fps: float) -> None:
        import imageio.v2 as imageio

        self._path = path
        self._temporary = hidden_path(path.with_suffix(""), "tmp.mp4")
        self._writer = imageio.get_writer(
            self._temporary, format="FFMPEG", fps=fps, quality=7, macro_block_size=2, ffmpeg_log_level="error"
        )

    def add(self, picture: np.ndarray) -> None:
        self._writer.append_data(picture)

    def close(self, *, is_kept: bool) -> None:
        try:
            self._writer.close()
            if is_kept:
                os.replace(self._temporary, self._path)
        finally:
            self._temporary.unlink(missing_ok=True)


class VideoWriter:
    """Writes a video that appears under its name, whole, when the ``with`` block ends well and has added a picture.

    All pictures get the size of the first; smaller ones are padded, larger ones cut. The folder is made if absent.

    Args:
        path: Ends in ``.gif`` or ``.mp4``; an existing file is replaced.
        fps: Pictures shown per second.

    Attributes:
        path: As given.
        num_frames: Pictures so far.

    Raises:
        ConfigError: If :func:`check_video_suffix` does.
    """

    def __init__(self, path: Path, fps: float = 15.0) -> None:
        check_video_suffix(path.suffix)
        self.path = path
        self.num_frames = 0
        self._fps = fps
        self._file: _File | None = None
        self._size = (0, 0)

    def add(self, picture: np.ndarray) -> None:
        """Add a picture ``(H, W, 3)`` uint8."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            height, width = picture.shape[:2]
            if self.path.suffix == ".mp4":
                height, width = height + height % 2, width + width % 2
                self._file = _Mp4(self.path, self._fps)
            else:
                self._file = _Gif(self.path, self._fps)
            self._size = (height, width)
        self._file.add(sized(picture, *self._size))
        self.num_frames += 1

    def __enter__(self) -> VideoWriter:
        """Return self."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Finish the file, or leave none after an exception."""
        if self._file is not None:
            self._file.close(is_kept=kind is None)
