"""Runs in processes of their own: started, watched, and ended with this process, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from seqrl.core.errors import RunInterrupted
from seqrl.core.signals import handling_signals
from seqrl.sweeps.planning import SweepRun
from seqrl.sweeps.sweep_folder import SweepFolder
from seqrl.training.run_folder import is_running

logger = logging.getLogger(__name__)

POLL_S = 0.1
LAST_LINES = 8
_SET_DEATH_SIGNAL = 1


@dataclass(frozen=True)
class Ended:
    """A run whose process has ended.

    Attributes:
        run: Which.
        exit_code: Of its process; negative for a signal.
        seconds: That it took.
        last_lines: That it printed.
    """

    run: SweepRun
    exit_code: int
    seconds: float
    last_lines: list[str]


@dataclass
class _Running:
    run: SweepRun
    process: subprocess.Popen[bytes]
    began: float
    log_begin: int
    was_stopped: bool = False


class Pool:
    """At most so many processes at once, of one thread each; ``--resume`` for what has begun.

    A run that another process still has waits until that has ended: after a kill of the sweep, its runs save first.

    Args:
        folder: Of the sweep.
        jobs: How many.
    """

    def __init__(self, folder: SweepFolder, jobs: int) -> None:
        self._folder, self._jobs = folder, jobs
        self._running: dict[str, _Running] = {}
        self._told: set[str] = set()

    @property
    def names(self) -> list[str]:
        """The names of the runs under way."""
        return list(self._running)

    @property
    def has_room(self) -> bool:
        """Whether another run may be started."""
        return len(self._running) < self._jobs

    def start(self, run: SweepRun) -> bool:
        """Start a run, unless another process still has it; return whether it was started."""
        path = self._folder.run_path(run)
        if is_running(path):
            if run.name not in self._told:
                self._told.add(run.name)
                logger.info("%s waits: a process that was started earlier is still running it", run.name)
            return False
        log = self._folder.log_file(run)
        with open(log, "ab") as said:
            begin = said.tell()
            process = subprocess.Popen(
                train_command(self._folder.run_file(run), path),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                preexec_fn=_end_with(os.getpid()) if sys.platform == "linux" else None,
                process_group=None if os.name == "nt" else 0,  # Ctrl-C is for the sweep, which tells its runs
            )
        self._running[run.name] = _Running(run, process, time.monotonic(), begin)
        return True

    def ended(self) -> list[Ended]:
        """Return the runs that have ended since the last call."""
        found = []
        for name, each in list(self._running.items()):
            if (code := each.process.poll()) is not None:
                del self._running[name]
                lines = last_lines(self._folder.log_file(each.run), each.log_begin)
                found.append(Ended(each.run, code, time.monotonic() - each.began, lines))
        return found

    def stop(self, name: str) -> None:
        """Ask a run to save and to end."""
        if (each := self._running.get(name)) is not None and not each.was_stopped:
            each.was_stopped = True
            each.process.terminate()

    def close(self, is_hurried: Callable[[], bool] = lambda: False) -> None:
        """Let all runs save and end; in a hurry, end them at once."""
        for name in self.names:
            self.stop(name)
        was_killed = False
        while any(each.process.poll() is None for each in self._running.values()):
            if is_hurried() and not was_killed:
                was_killed = True
                for each in self._running.values():
                    each.process.kill()
            time.sleep(POLL_S)


def train_command(run_file: Path, path: Path) -> list[str]:
    """Return the command that begins a run, or goes on with it."""
    command = [sys.executable, "-m", "seqrl.scripts.train", "--config", str(run_file)]
    return [*command, *(["--resume"] if path.exists() else [])]


def last_lines(log: Path, begin: int) -> list[str]:
    """Return the last lines of a log behind so many bytes."""
    with open(log, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begin, size - 100_000))
        lines = file.read().decode(errors="replace").splitlines()
    return [line.rstrip() for line in deque((line for line in lines if line.strip()), maxlen=LAST_LINES)]


def _end_with(parent: int) -> Callable[[], None]:
    """Return what a new process calls so that it gets SIGTERM when this one ends, even by SIGKILL (Linux)."""
    prctl = ctypes.CDLL(None).prctl

    def end_with_parent() -> None:
        prctl(_SET_DEATH_SIGNAL, int(signal.SIGTERM))
        if os.getppid() != parent:
            os._exit(128 + signal.SIGTERM)

    return end_with_parent


class Interrupt:
    """Signals that came while a sweep ran.

    Attributes:
        number: The first of them; None as long as none came.
        is_hurried: Whether another came.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.is_hurried = False

    def check(self) -> None:
        """End the sweep if a signal came.

        Raises:
            RunInterrupted: If so.
        """
        if self.number is not None:
            raise RunInterrupted(self.number)

    def _came(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            text = f"\n{signal.Signals(number).name}: the runs save what they reached; Ctrl-C again ends them without\n"
            with contextlib.suppress(OSError):  # the terminal may be gone
                os.write(2, text.encode())
        else:
            self.is_hurried = True

    @contextlib.contextmanager
    def watched(self) -> Iterator[Interrupt]:
        """Take Ctrl-C, SIGTERM and SIGHUP as wishes inside the block; what is ignored already stays so.

        In another thread than the main one, nothing is done.
        """
        with handling_signals(self._came):
            yield self
