"""What all scripts share: exit codes, messages instead of tracebacks, logging."""

from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from seqrl.core.errors import SeqrlError, TrainingError


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that an argument holds; argparse reports anything else."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


Main = Callable[[Sequence[str] | None], int]


def script(main: Main) -> Callable[..., int]:
    """Wrap a main function: user errors print and return 2, a failed run prints and returns 1.

    An unexpected exception keeps its traceback; Ctrl-C returns 130.
    """

    @functools.wraps(main)
    def wrapped(argv: Sequence[str] | None = None) -> int:
        _set_up_logging()
        try:
            return main(argv)
        except TrainingError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        except SeqrlError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except BrokenPipeError:
            return 0

    return wrapped


def _set_up_logging() -> None:
    """Send seqrl's messages to stderr, warnings marked; stdout is for results."""
    root = logging.getLogger("seqrl")
    if root.handlers:
        return
    handler = _TqdmHandler()
    handler.setFormatter(_Formatter())
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    root.propagate = False


class _TqdmHandler(logging.Handler):
    """Writes above a progress bar, if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        tqdm = sys.modules.get("tqdm")
        if tqdm is not None:
            tqdm.tqdm.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr)


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return mark + super().format(record)
