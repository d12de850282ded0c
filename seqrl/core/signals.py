"""Signals that ask a process to end, taken as wishes instead."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def handling_signals(on_signal: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call a function at Ctrl-C, SIGTERM and SIGHUP (a closed terminal), instead of dying, inside the block.

    Nothing is done in another thread than the main one, nor to a signal that somebody handles or ignores already.
    """
    before: dict[int, Any] = {}
    for number in _SIGNALS if threading.current_thread() is threading.main_thread() else ():
        if (handler := signal.getsignal(number)) in (signal.SIG_DFL, signal.default_int_handler):
            before[number] = handler
            signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
