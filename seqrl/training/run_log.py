"""What a run says, with the time, in ``log.txt``."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from seqrl.configs import BaseConfig
from seqrl.core.console import bar_class, in_notebook, show_messages
from seqrl.core.errors import RunInterrupted, SeqrlError
from seqrl.training.parts import Parts

logger = logging.getLogger(__name__)

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class RunLog(logging.Handler):
    """Appends seqrl's messages, and Python's warnings, to a file; those before :meth:`open` are kept until then.

    Args:
        warnings: Gets those of the run itself, in their order, and may hold earlier ones.
    """

    def __init__(self, warnings: list[str] | None = None) -> None:
        super().__init__()
        self.warnings = [] if warnings is None else warnings
        self._warned: set[str] = set()
        self._early: list[str] = []
        self._file: TextIO | None = None
        self._show: Any = None
        self._stop_speaking: Callable[[], None] = lambda: None

    def begin(self, *, speaks: bool = False) -> None:
        """Listen, until :meth:`close`, and print the messages too if it ``speaks``."""
        if speaks:
            self._stop_speaking = show_messages()
        logging.getLogger("seqrl").addHandler(self)
        self._show = warnings.showwarning
        warnings.showwarning = self._showwarning

    def open(self, file: Path) -> None:
        """Append to a file from now on, and write what was said before."""
        self._file = open(file, "a", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._file.write("".join(self._early))
        self._file.flush()
        self._early.clear()

    def write(self, text: str) -> None:
        """Add a message."""
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        lines = "".join(f"{now}  {line}\n" for line in _COLOUR.sub("", text).splitlines())
        if self._file is None:
            self._early.append(lines)
        else:
            with contextlib.suppress(OSError):  # the disk is full: there is nowhere to tell it but the console
                self._file.write(lines)
                self._file.flush()

    def warn(self, text: str) -> None:
        """Log a warning, and keep it for the report and the end of the run."""
        self.warnings.append(text)
        self._warned.add(text)
        logger.warning("%s", text)

    def warn_once(self, text: str, error: BaseException | None = None) -> None:
        """Log a warning that may recur, unless this process has logged it; the file gets the error's traceback too."""
        if text not in self._warned:
            self.warn(text)
            if error is not None:
                self.write("".join(traceback.format_exception(error)))

    def repeat_warnings(self) -> None:
        """Show the run's warnings once more, which may have scrolled out of sight."""
        if self.warnings:
            logger.warning("the warnings of this run:%s", "".join(f"\n  {w}" for w in dict.fromkeys(self.warnings)))

    def write_error(self, error: BaseException) -> None:
        """Add what ended the run: the message of an error that a user can cause, the traceback of any other."""
        if isinstance(error, RunInterrupted):
            return  # what was saved has been said
        if isinstance(error, SeqrlError | KeyboardInterrupt):
            self.write(f"error: {error or type(error).__name__}")
        else:
            self.write("".join(traceback.format_exception(error)))

    def emit(self, record: logging.LogRecord) -> None:
        """Add a message of the logger; where nobody else listens, show warnings as Python would without this file."""
        mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        self.write(mark + self.format(record))
        if logging.lastResort is not None and record.levelno >= logging.lastResort.level and self._is_alone():
            logging.lastResort.handle(record)

    def _is_alone(self) -> bool:
        """Tell whether only files of runs get seqrl's messages, and this is the first of them."""
        ours = logging.getLogger("seqrl")
        handlers = [*ours.handlers, *(logging.getLogger().handlers if ours.propagate else ())]
        return handlers[:1] == [self] and all(isinstance(handler, RunLog) for handler in handlers)

    def close(self) -> None:
        """Stop listening, and close the file; safe to call twice."""
        self._stop_speaking()
        logging.getLogger("seqrl").removeHandler(self)
        if self._show is not None and warnings.showwarning == self._showwarning:
            warnings.showwarning = self._show
        self._show = None
        self._early.clear()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        super().close()

    def _showwarning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        self._show(message, category, filename, lineno, file, line)
        if file is None:
            self.write(f"warning: {category.__name__}: {message} ({filename}:{lineno})")


def progress_bar(config: BaseConfig, parts: Parts, text: str, total: int, unit: str) -> Any:
    """Return a bar in the main process, on a terminal or in a notebook, unless it is not wanted."""
    wanted = config.experiment.logging.progress_bar and parts.is_verbose and parts.processes.is_main
    shown = wanted and (sys.stderr.isatty() or in_notebook())
    return bar_class()(total=total, desc=text, unit=unit, unit_scale=True, disable=not shown, leave=False)
