"""A sweep as an array of jobs of SLURM, by the extra ``seqrl[slurm]``.

The same command may be given at any time: it hands in what is neither finished nor in the queue, and shows the scores
so far. A job that SLURM preempts, or whose time is up, saves, and goes on when it is requeued.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib
import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqrl.core.errors import ConfigError
from seqrl.core.extras import import_extra
from seqrl.core.files import write_json
from seqrl.core.strict_json import read_object
from seqrl.sweeps.planning import Plan, SweepRun
from seqrl.sweeps.pool import train_command
from seqrl.sweeps.sweep_folder import SweepFolder
from seqrl.training.run_folder import is_running

logger = logging.getLogger(__name__)

DEFAULTS = {"timeout_min": 60, "cpus_per_task": 1, "mem_gb": 4}


def _import_submitit() -> Any:
    return import_extra("submitit", "--backend slurm needs submitit", "slurm")


class TrainJob:
    """What a job of the array does: begin a run, or go on with it.

    Args:
        run_file: Of the run.
        path: The run's folder.
    """

    def __init__(self, run_file: Path, path: Path) -> None:
        self._run_file, self._path = run_file, path
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        """Train to the end.

        Raises:
            RuntimeError: If the run fails, so that SLURM has the job as failed.
        """
        threads = os.environ.get("SLURM_CPUS_PER_TASK", "1")
        environment = {"OMP_NUM_THREADS": threads} | dict(os.environ)
        command = train_command(self._run_file, self._path)
        self._process = subprocess.Popen(command, env=environment, preexec_fn=_ignore_warnings)
        if code := self._process.wait():
            raise RuntimeError(f"{self._path.name} failed (exit code {code})")
        return code

    def checkpoint(self) -> Any:
        """Let the run save, and return what is to go on with it; submitit calls it before a job is ended."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._process.pid, 0)  # wait() would wait for itself: a signal has interrupted it
        return _import_submitit().helpers.DelayedSubmission(TrainJob(self._run_file, self._path))


def _ignore_warnings() -> None:
    """Leave the signals by which SLURM warns of a job's end to submitit; they would kill the run."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def _executor(folder: SweepFolder, plan: Plan, *, is_dry: bool) -> Any:
    """Return submitit's executor with what the sweep file says.

    Raises:
        ConfigError: If there is no SLURM here, or it does not know a setting.
    """
    submitit = _import_submitit()

    class Dry(submitit.SlurmExecutor):  # type: ignore[misc]
        """One that needs no SLURM, as nothing is handed in."""

        @classmethod
        def affinity(cls) -> int:
            return 1

    try:
        executor = (Dry if is_dry else submitit.SlurmExecutor)((folder.path / "slurm").resolve())
        given = {"name": plan.section.name} | DEFAULTS | plan.section.slurm
        executor.update_parameters(**executor._convert_parameters(given))
    except RuntimeError as error:
        raise ConfigError(f"{error} --dry-run prints the array without one") from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"slurm: {error}") from error
    return executor


def script_of(folder: SweepFolder, plan: Plan, num: int) -> str:
    """Return the script that would be handed to ``sbatch`` for so many runs."""
    if not num:
        return "nothing is left to run"
    executor = _executor(folder, plan, is_dry=True)
    if num > 1:
        executor.parameters["map_count"] = num
    text: str = executor._make_submission_file_text(executor._submitit_command_str, "dry-run")
    return text


def submit(folder: SweepFolder, plan: Plan) -> str:
    """Hand in what is neither finished nor in the queue, and say so."""
    runs = plan.runs()
    executor = _executor(folder, plan, is_dry=False)
    folder.write_run_files(runs)
    jobs = _read_jobs(folder)
    queued = _queued()
    finished = {run.name for run in runs if folder.is_finished(run)}
    waiting = {run.name for run in runs if jobs.get(run.name) in queued or is_running(folder.run_path(run))} - finished
    left = [run for run in runs if run.name not in finished | waiting]
    if left:
        handed_in = _hand_in(executor, folder, left)
        jobs |= {run.name: job for run, job in zip(left, handed_in, strict=True)}
        write_json(folder.path / "slurm" / "jobs.json", jobs)
    text = f"{len(finished)} finished, {len(waiting)} in the queue, {len(left)} submitted"
    if not left:
        return text
    first = jobs[left[0].name].split("_")[0]
    return f"{text} as {first} (scancel {first} cancels them)"


def _hand_in(executor: Any, folder: SweepFolder, runs: Sequence[SweepRun]) -> list[str]:
    """Submit the array, and return the id of each job.

    Raises:
        ConfigError: If SLURM refuses it.
    """
    (folder.path / "slurm").mkdir(exist_ok=True)
    errors = importlib.import_module("submitit.core.utils")
    here = [(folder.run_file(run).resolve(), folder.run_path(run)) for run in runs]
    try:
        with executor.batch():
            found = [executor.submit(TrainJob(file, path)) for file, path in here]
    except (errors.FailedJobError, errors.FailedSubmissionError, OSError) as error:
        raise ConfigError(f"SLURM refused the array: {error}") from error
    return [str(job.job_id) for job in found]


def _read_jobs(folder: SweepFolder) -> dict[str, str]:
    found = read_object(folder.path / "slurm" / "jobs.json")
    return {str(name): str(job) for name, job in found.items()}


def _queued() -> set[str]:
    """Return the ids of the user's jobs that wait or run.

    Raises:
        ConfigError: If ``squeue`` cannot tell.
    """
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={getpass.getuser()}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"squeue cannot tell which jobs are in the queue: {error}") from error
    return set(done.stdout.split())
