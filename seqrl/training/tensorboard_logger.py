"""Numbers, settings and videos to TensorBoard, through tensorboardX."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

logger = logging.getLogger(__name__)

_RESULTS = ("eval/return_mean", "eval/success_mean", "eval/score_mean", "valid/total")


class TensorBoardLogger:
    """TensorBoard events: a scalar per number, texts, a row of hyper-parameters, and GIFs.

    Args:
        folder: For the events.
        resume_step: What comes after it was logged by a run that goes on now, and is hidden; None begins.
        texts: Name -> JSON values, shown once.
        settings: Hyper-parameters; their row gets the last results when the run ends.
    """

    def __init__(
        self,
        folder: Path,
        resume_step: int | None,
        *,
        texts: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        from tensorboardX import SummaryWriter

        purge = None if resume_step is None else resume_step + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge)
        self._settings = {name: _plain(value) for name, value in (settings or {}).items()}
        self._results: dict[str, float] = {}
        self._is_told = False
        for name, values in (texts or {}).items():
            block = "\n".join("    " + line for line in json.dumps(values, indent=2).splitlines())
            self._writer.add_text(name, block, resume_step or 0)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write one scalar per value."""
        self._results |= {name: values[name] for name in _RESULTS if name in values}
        for name, value in values.items():
            if self._is_writing():
                self._writer.add_scalar(name, value, step)

    def _is_writing(self) -> bool:
        """Tell whether the writer's thread lives: a full disk ends it, and then its queue would fill and block."""
        events: Any = getattr(getattr(self._writer, "file_writer", None), "event_writer", None)
        is_alive = not self._is_told and (events is None or bool(events._worker.is_alive()))
        if not is_alive and not self._is_told:
            events._closed = True
            events._event_queue.cancel_join_thread()  # or the process would wait at its end for what nobody reads
            logger.warning("TensorBoard's events cannot be written any more: is the disk full?")
            self._is_told = True
        return is_alive

    def log_video(self, file: Path, step: int) -> None:
        """Show a GIF among the images; other formats are left out, as TensorBoard cannot show them."""
        if file.suffix != ".gif" or not self._is_writing():
            return
        from tensorboardX.proto.summary_pb2 import Summary

        with Image.open(file) as image:
            width, height = image.size
        picture = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=file.read_bytes())
        tag = f"video/{file.stem.split('_')[0]}"  # epoch, or evaluation
        self._writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=tag, image=picture)]), step)

    def close(self) -> None:
        """Write the row of hyper-parameters and results, flush and close."""
        if not self._is_writing():
            return
        if self._settings and self._results:
            results = {f"last/{name}": value for name, value in self._results.items()}
            self._writer.add_hparams(self._settings, results, name="settings")
        self._writer.close()


def _plain(value: Any) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)
