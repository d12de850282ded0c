"""Why a run ends before its last epoch: it was asked to, or a signal came."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from seqrl.algo.processes import Processes
from seqrl.core.errors import RunInterrupted, TrainingError
from seqrl.core.signals import handling_signals

_ECHO_S = 2.0
"""Within so many seconds a second Ctrl-C is the first one, passed on by the launcher of several processes."""


class Ending:
    """Keeps what was asked for, until the run is where it can end.

    Attributes:
        reason: Why the run is to end after the epoch under way, as all agreed; None as long as it is not.
        signal: Number of the signal after which the run is to end at once, after saving; None as long as none came,
            here or, as far as was agreed, elsewhere.
        is_forced: Whether Ctrl-C came again, so that nothing more is saved.
        failure: Why the run cannot go on, as a thread of some process found out, and all agreed.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.signal: int | None = None
        self.is_forced = False
        self.failure: str | None = None
        self._failed: str | None = None
        self._asked: str | None = None
        self._is_at_once = False
        self._came, self._pid = 0.0, 0
        self._is_alone = self._is_main = True

    def ask(self, reason: str) -> None:
        """Ask for an end after the epoch under way; the first reason counts."""
        self._asked = self._asked or reason

    def fail(self, reason: str) -> None:
        """End the run with an error, at the next check of this process; for threads other than the main one."""
        self._failed = reason

    def agree(self, processes: Processes) -> int | None:
        """Let every process know what one of them knew; all have to call it, and all return the same signal, or None.

        What comes in the meantime is kept for the next time: only what all know may end a run of several processes.
        """
        known = processes.gather((self._asked, self.signal, self._failed))
        self.reason, agreed, self.failure = (
            next((v for v in each if v is not None), None) for each in zip(*known, strict=True)
        )
        if agreed is not None and self.signal is None:
            self.signal, self._came = agreed, time.monotonic()
        return agreed

    def check(self) -> None:
        """End the run if a signal has come, where no other process has to know.

        Raises:
            RunInterrupted: If so.
            TrainingError: If a thread called :meth:`fail`.
        """
        if self._failed is not None:
            raise TrainingError(self._failed)
        if self.signal is not None:
            raise RunInterrupted(self.signal)

    def agree_and_check(self, processes: Processes) -> None:
        """Let every process know of the signals and the wishes to stop; every process has to call it.

        Raises:
            RunInterrupted: If a signal has come.
            TrainingError: If a thread of any process called :meth:`fail`.
        """
        agreed = self.agree(processes)
        if self.failure is not None:
            raise TrainingError(self.failure)
        if agreed is not None:
            raise RunInterrupted(agreed)

    def checking(self, processes: Processes) -> Callable[..., None]:
        """Return what ends the run if a signal has come, whatever it is given; nothing where others have to know."""
        return lambda *_: self.check() if processes.is_alone else None

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """End the block at once when a signal comes, or has come: everything is saved.

        Raises:
            RunInterrupted: In that case.
        """
        self._is_at_once = True
        try:
            self.check()
            yield
            self.check()
        finally:
            self._is_at_once = False

    @contextlib.contextmanager
    def handling_signals(self, processes: Processes) -> Iterator[None]:
        """Take SIGTERM, Ctrl-C and SIGHUP (a closed terminal) as a wish, instead of dying, inside the block.

        Nothing is done in another thread than the main one, nor to a signal that somebody handles or ignores already.

        Args:
            processes: Of the run; the main one says what happens.
        """
        self._pid, self._is_alone, self._is_main = os.getpid(), processes.is_alone, processes.is_main
        with handling_signals(self._on_signal):
            yield

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # an environment's process, forked from this one: not its business
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            signal.raise_signal(number)
            return
        now = time.monotonic()
        if self._is_at_once:
            self.signal = number
            raise RunInterrupted(number)
        if self.signal is None:
            self.signal, self._came = number, now
            if self._is_main:
                name = signal.Signals(number).name
                again = " again" if number == signal.SIGINT else ""
                text = f"\n{name}: saving what was reached; press Ctrl-C{again} to end without saving\n"
                with contextlib.suppress(OSError):  # the terminal may be gone
                    os.write(2, text.encode())  # printing could meet a print that the signal interrupted
        elif number == signal.SIGINT and (self._is_alone or now - self._came > _ECHO_S):
            self.is_forced = True
            raise KeyboardInterrupt
