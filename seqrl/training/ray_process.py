"""The process on a learner's host that commands Ray's actors: started with the learner, begun anew if it dies."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from seqrl.training.ending import Ending
from seqrl.training.parts import Parts
from seqrl.training.run_folder import LEARNER_PID

logger = logging.getLogger(__name__)

QUICK_S, QUICK_FAILURES = 120.0, 3
"""The run ends after so many deaths in a row, each within so many seconds of its start."""
OF_RANKS = (
    "RANK",
    "LOCAL_",
    "GROUP_",
    "ROLE_",
    "WORLD_SIZE",
    "MASTER_",
    "TORCHELASTIC_",
    "ACCELERATE_",
    "OMPI_",
    "PMI_",
)
"""Beginnings of the variables by which a process would take itself for one of the learner's ranks."""
GRACE_S = 8.0


@contextlib.contextmanager
def ray_process(parts: Parts, ending: Ending) -> Iterator[None]:
    """Run a block beside a :class:`RayProcess`, if this process commands actors."""
    is_wanted = parts.commands_actors and parts.processes.is_main
    process = RayProcess(parts.folder.path, ending) if is_wanted else None
    try:
        yield
    finally:
        if process is not None:
            process.close()


class RayProcess:
    """Runs ``seqrl train --role collect`` for a learner of ``collect.collectors`` "ray".

    It is a process of its own so that taking and writing what actors bring costs the learner nothing.

    Args:
        run: The run's folder; its ``config.json`` is there.
        ending: Of the learner, which fails if the process cannot go on.
    """

    def __init__(self, run: Path, ending: Ending) -> None:
        self._run, self._ending = run.resolve(), ending
        self._is_over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._said, self._said_before = self._run / "ray.log", 0
        self._starting = threading.Lock()
        self._thread = threading.Thread(target=self._keep_running, daemon=True, name="seqrl ray process")
        self._thread.start()

    def _command(self) -> list[str]:
        overrides = {
            "experiment.output_dir": str(self._run.parent), "experiment.logging.progress_bar": False,
            "train.device": "cpu",
        }  # fmt: skip
        sets = [part for key, value in overrides.items() for part in ("--set", f"{key}={json.dumps(value)}")]
        config = str(self._run / "config.json")
        return [sys.executable, "-m", "seqrl", "train", "--config", config, "--role", "collect",
                "--name", self._run.name, *sets]  # fmt: skip

    def _keep_running(self) -> None:
        failures = 0
        while True:
            begun = time.monotonic()
            try:
                if (process := self._start()) is None:
                    return
            except OSError as error:
                self._ending.fail(f"the process of Ray's collectors cannot be started: {error}")
                return
            code = process.wait()
            if code == 0 or self._is_over.is_set():
                return
            failures = failures + 1 if time.monotonic() - begun < QUICK_S else 1
            if (line := self._last_line()).startswith("error: ") or failures == QUICK_FAILURES:
                self._ending.fail(f"the process of Ray's collectors ended with {code}: {line.removeprefix('error: ')}")
                return
            logger.warning("the process of Ray's collectors died (%s) and is restarted", line)
            self._is_over.wait(1.0)

    def _start(self) -> subprocess.Popen[bytes] | None:
        """Start the process; None if there is to be none any more."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_RANKS)}
        environment |= {LEARNER_PID: str(os.getpid()), "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        with self._starting, open(self._said, "ab") as said:
            if self._is_over.is_set():
                return None
            self._said_before = said.tell()
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment,
                start_new_session=True,
            )  # fmt: skip
            return self._process

    def _last_line(self) -> str:
        """Return the last that the process said, since it was started."""
        said = self._said.read_bytes()[self._said_before :].decode(errors="replace")
        lines = said.strip().splitlines()
        return lines[-1] if lines else f"nothing in {self._said}"

    def close(self) -> None:
        """End the process and its actors, within ten seconds; safe to call twice."""
        with self._starting:
            self._is_over.set()
            process = self._process
        if process is None:
            return
        if (self._run / "published" / "finished").exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S / 2)  # it sees that as well
        if process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._thread.join(1.0)
