"""Messages of a run on a terminal or in a notebook."""

from __future__ import annotations

import logging
import os
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any, TextIO

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FIRST_COLUMN = re.compile(r" {2}\S+(?: \S+)* {2,}")
"""Of the summary of a run."""


def open_streams() -> None:
    """Let standard streams that were closed when Python began lead nowhere, before a file gets their numbers."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(handle)
        sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
        sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def in_notebook() -> bool:
    """Tell whether this process is a notebook's."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


def show_messages(*, always: bool = False) -> Callable[[], None]:
    """Print seqrl's messages to stderr, in a notebook as its output, warnings marked; return what stops that.

    Args:
        always: Print also where the user's own logging is set up to get the messages.
    """
    ours = logging.getLogger("seqrl")
    if any(isinstance(handler, Console) for handler in ours.handlers) or (not always and _somebody_listens(ours)):
        return lambda: None
    console, before = Console(), (ours.level, ours.propagate)
    ours.addHandler(console)
    ours.setLevel(logging.INFO)
    ours.propagate = False

    def stop() -> None:
        if console in ours.handlers:
            ours.removeHandler(console)
            ours.setLevel(before[0])
            ours.propagate = before[1]

    return stop


def _somebody_listens(ours: logging.Logger) -> bool:
    return ours.isEnabledFor(logging.INFO) and logging.getLogger().hasHandlers()


class Console(logging.Handler):
    """Writes above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message; nothing where the terminal, pipe or file can take none."""
        mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        text, tqdm = mark + self.format(record), sys.modules.get("tqdm")
        stream: TextIO = sys.stdout if in_notebook() else sys.stderr
        try:
            if stream.isatty():
                text = wrapped(text, os.get_terminal_size(stream.fileno()).columns or 80)
            if tqdm is not None:
                tqdm.tqdm.write(text, file=stream)
            else:
                print(text, file=stream)
        except OSError:
            pass  # it is closed, full or gone, and a run goes on: its log.txt has the message


def wrapped(text: str, columns: int) -> str:
    """Return text whose long lines are broken between words, and go on below their second column, or 4 to the right."""
    lines: list[str] = []
    for line in text.splitlines():
        column = _FIRST_COLUMN.match(line)
        indent = len(column[0]) if column else len(line) - len(line.lstrip()) + 4
        short = textwrap.wrap(
            line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )
        lines += short if len(_COLOUR.sub("", line)) > columns else [line]
    return "\n".join(lines)


def bar_class() -> Any:
    """Return tqdm's class for where this process runs: a widget in a notebook that can show one, else text."""
    from tqdm import tqdm

    if in_notebook():
        try:
            import ipywidgets  # type: ignore[import-not-found]  # noqa: F401
            from tqdm.notebook import tqdm as widget
        except ImportError:
            return tqdm
        return widget
    return tqdm
