"""A queue of training runs, each in a process of its own on one core, that may be stopped and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
RUNNING: set[subprocess.Popen[bytes]] = set()


def run_python(arguments: Sequence[str], log: Path, *, threads: int = 1) -> float:
    """Run a Python program from the top of the repository, and return its CPU seconds; what it says goes to ``log``.

    Raises:
        RuntimeError: With the name of the log, if it ends in an error.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as said:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        running = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment, stdout=said, stderr=said)
        RUNNING.add(running)
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
        RUNNING.discard(running)
    if running.returncode:
        raise RuntimeError(f"{log.stem}: ended with {running.returncode}; see {log}")
    return usage.ru_utime + usage.ru_stime


def interrupt(*_: object) -> NoReturn:
    """Do as Ctrl-C does, also in the background of a script, where Ctrl-C is ignored."""
    raise KeyboardInterrupt


def work(queue: Sequence[tuple[Any, ...]], train: Callable[..., str], workers: int | None) -> int:
    """Call ``train`` with each entry of the queue, print what it says, and return how many failed.

    Ctrl-C and SIGTERM end the runs under way too.
    """
    failures = 0
    before = signal.signal(signal.SIGTERM, interrupt)
    with ThreadPoolExecutor(workers) as pool:
        try:
            futures = [pool.submit(train, *run) for run in queue]
            for future in as_completed(futures):
                failures += future.exception() is not None
                print(future.exception() or future.result(), flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for running in tuple(RUNNING):
                running.terminate()
            raise SystemExit(130) from None
        finally:
            signal.signal(signal.SIGTERM, before)
    return failures
