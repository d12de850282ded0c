"""A run's folder: ``config.json``, ``metrics.jsonl``, ``log.txt``, ``checkpoints/``, ``tb/``, ``report.html``, ..."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from seqrl.configs import BaseConfig
from seqrl.configs.differences import differences, with_defaults
from seqrl.core.checkpoint_card import CheckpointCard, pointed_at, write_pointer
from seqrl.core.errors import CheckpointError, ConfigError
from seqrl.core.files import (
    FileLock,
    hidden_path,
    is_locked,
    is_temporary,
    remove_folder,
    remove_temporaries,
    write_json,
)

logger = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""How long a collector waits for a learner that may be about to write another config."""
CHANGEABLE_ON_RESUME = (
    "experiment",
    "plugins",
    "train.num_epochs",
    "train.prefetch_batches",
    "train.device",
    "train.metrics",
    "env.vectorization",
    "env.num_workers",
    "env.start_method",
    "env.max_restarts",
    "env.timeout_s",
    "collect.ray",
    "collect.replay.max_",
    "train.init_from",
    "train.allow_nonfinite",
    "algo.optimizer.rates",
)
_LOCK = "lock"
_RUNNING = "another process is running {path}; stop it first, or choose another name (--name)"
_OPEN_HERE = "an Experiment of this process has {path} open; call its close() first"
_CHECKPOINT = re.compile(r"epoch_(\d+)(_step_\d+|_unevaluated)?")
MUST_FIT = (
    "algo_name",
    "algo.",
    "observation.",
    "train.window_steps",
    "train.normalize_",
    "collect.replay.path",
    "collect.replay.max_",
)
"""What a collector's config shares with its learner's."""
LEARNER_PID = "SEQRL_LEARNER_PID"
"""Environment variable: of the learner that started this process, which ends with it."""


@contextmanager
def whole_folder() -> Iterator[None]:
    """Say of a folder in the place of a file, or the other way round, that it is in the way.

    Raises:
        ConfigError: If there is one.
    """
    try:
        yield
    except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        place = error.filename2 or error.filename
        raise ConfigError(f"{place} is in the way ({error.strerror}): move it out of the run's folder") from error


def default_name(config: BaseConfig, task: str | None) -> str:
    """Return ``<algorithm>_<memory>_<task>_seed<n>``."""
    memory = config.algo.sequence_encoder.choice()[0]
    parts = [config.algo_name, memory, task and task.split(":")[-1].split("/")[-1], f"seed{config.train.seed}"]
    return re.sub(r"[^\w.-]+", "-", "_".join(p for p in parts if p))


class RunFolder:
    """Opens a run's folder: a new one, one to overwrite, or one to resume.

    Args:
        path: The folder.
        config: Written to ``config.json``, when resuming as soon as the run has started (:meth:`settle`); compared with
            the one there then.
        resume: Go on with what is there, from the beginning if that run was stopped before it had saved anything.
        overwrite: Delete what is there as soon as the run has started (:meth:`settle`); if it cannot, that stays.

    Raises:
        ConfigError: If the folder exists and neither was asked for, if there is nothing to resume, or if the config
            differs from that of the run to resume in more than its length and logging; or if it cannot be made.
    """

    _open_here: ClassVar[set[Path]] = set()
    _lock: FileLock | None = None
    _is_unsettled = False
    _former: Path | None = None
    _unwritten: dict[str, Any] | None = None

    def __init__(self, path: Path, config: BaseConfig, *, resume: bool = False, overwrite: bool = False) -> None:
        self._set_paths(path)
        if is_running(path):
            is_here = path.resolve() in self._open_here
            raise ConfigError((_OPEN_HERE if is_here else _RUNNING).format(path=path))
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} should be the folder of the run, but is a file; choose another name")
        if resume:
            self._check_resumable(config)
        elif not self._is_bare():
            self._put_aside(overwrite)
        try:
            self._open(config, resume)
        except BaseException:
            self.release()
            raise

    def _open(self, config: BaseConfig, resume: bool) -> None:
        path, is_own = self.path, not self.path.exists()
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
                raise
            raise ConfigError(
                f"experiment.output_dir: {self.checkpoints} cannot be made ({error.strerror}); choose another folder"
            ) from error
        try:
            self._lock = FileLock(path / _LOCK)
        except BlockingIOError as error:  # two began in the same instant
            raise ConfigError(_RUNNING.format(path=path)) from error
        self._open_here.add(path.resolve())
        self._is_unsettled = is_own and not resume
        self._bring_back_last()
        for folder in (path, self.checkpoints, path / "published", path / "videos"):
            remove_temporaries(folder)
        if resume and (path / "config.json").is_file():
            self._unwritten = config.to_json()
        else:
            write_json(path / "config.json", config.to_json())
        if resume and self.last is None and (found := last_checkpoint(path)) is not None:
            self.point("last", found)  # the run was killed in between

    @classmethod
    def at(cls, path: Path) -> RunFolder:
        """Return the folder of a run that another process has opened; nothing is written."""
        folder = cls.__new__(cls)
        folder._set_paths(path)
        return folder

    def settle(self, epochs_done: int = 0) -> None:
        """Keep the folder and write its config; delete what it has overwritten, and what killed starts put aside.

        Args:
            epochs_done: By a run that goes on: its config names no fewer.
        """
        if self._unwritten is not None:
            train = self._unwritten["train"]
            train["num_epochs"] = max(train["num_epochs"], epochs_done)
            write_json(self.path / "config.json", self._unwritten)
            self._unwritten = None
        former, self._is_unsettled, self._former = self._former, False, None  # first: an interrupt takes nothing back
        for old in self.path.parent.iterdir() if former is not None else ():
            if old.name.startswith(f".{self.path.name}.") and old.name.endswith(".old") and is_temporary(old.name):
                shutil.rmtree(old, ignore_errors=True)

    def release(self) -> None:
        """Let another process go on with the run; safe to call twice.

        A new folder that was not settled goes, and what it was to overwrite comes back.
        """
        if self._lock is not None:
            self._lock.release()
            self._open_here.discard(self.path.resolve())
        try:
            if self._is_unsettled:
                remove_folder(self.path)
        finally:
            if self._former is not None and not self.path.exists():
                os.replace(self._former, self.path)
            self._is_unsettled, self._former = False, None

    def _set_paths(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"

    def _bring_back_last(self) -> None:
        """Give the checkpoint of ``last`` its name again, if a kill came while another was to take its place."""
        if self.last is None or self.last.exists():
            return
        for old in self.checkpoints.glob(f".{self.last.name}.*.old"):
            os.replace(old, self.last)
            return

    def _put_aside(self, overwrite: bool) -> None:
        if not overwrite:
            go_on = "go on with it (--resume), " if (self.checkpoints / "last").is_file() else ""
            raise ConfigError(
                f"the run folder {self.path} exists; {go_on}replace it (--overwrite), or choose another name (--name)"
            )
        if not self._is_run():
            raise ConfigError(f"{self.path} is not the folder of a run, so it is not overwritten; choose another name")
        self._former = hidden_path(self.path)  # at once, so that a kill leaves nothing under its name
        os.replace(self.path, self._former)

    def _is_run(self) -> bool:
        """Tell whether the folder was made by a run; only such a folder may be deleted."""
        try:
            saved = CheckpointCard(self.path, {}).json_object("config.json")
        except CheckpointError:
            return False
        return self.checkpoints.is_dir() and "algo_name" in saved

    def _is_bare(self) -> bool:
        """Tell whether there is nothing but what a run leaves that was killed before it had its ``config.json``."""
        names = {p.name for p in self.path.iterdir() if not is_temporary(p.name)} if self.path.exists() else set()
        is_empty = not (self.checkpoints.is_dir() and any(self.checkpoints.iterdir()))
        return is_empty and names <= {_LOCK, self.checkpoints.name}

    def _check_resumable(self, config: BaseConfig) -> None:
        if not self.path.exists():
            raise ConfigError(f"nothing to resume: {self.path} does not exist; leave --resume out")
        if last_checkpoint(self.path) is None:
            if not (self._is_bare() or self._is_run()):
                raise ConfigError(f"nothing to resume: {self.path} is not the folder of a run; choose another name")
            logger.warning("nothing was saved yet in %s: the run starts over", self.path)
            return
        saved = saved_config(self.path)
        if (algo := saved.get("algo_name")) != config.algo_name:
            raise ConfigError(f"cannot resume {self.path}: it is a run of {algo}, not of {config.algo_name}")
        if lines := changes_since(saved, config):
            hint = f"For another setting with the same networks, begin a new run with --set train.init_from={self.path}"
            raise ConfigError(f"cannot resume {self.path} with another config:\n" + "\n".join([*lines, hint]))

    # ------------------------------------------------------------------------------------ checkpoints
    def checkpoint(self, epoch: int) -> Path:
        """Return the folder of the checkpoint after ``epoch`` epochs."""
        return self.checkpoints / f"epoch_{epoch:06d}"

    def point(self, name: str, target: Path) -> None:
        """Make ``name`` (``last``, ``best_success``) stand for a checkpoint."""
        write_pointer(self.checkpoints / name, target.name)

    def unfinished(self, epoch: int, step: int, *, is_evaluated: bool) -> Path:
        """Return the folder of the checkpoint of a run that was interrupted, between epochs or within one.

        Args:
            epoch: Epochs that are done.
            step: Gradient steps of the next one that are done.
            is_evaluated: Whether the last of the epochs has been evaluated and saved.
        """
        path = self.checkpoint(epoch)
        if step:
            return path.with_name(f"{path.name}_step_{step:06d}")
        return path if is_evaluated else path.with_name(f"{path.name}_unevaluated")

    @property
    def last(self) -> Path | None:
        """The checkpoint that ``last`` names, if there is one; a CheckpointError if it is damaged."""
        pointer = self.checkpoints / "last"
        return pointed_at(pointer) if pointer.exists() else None

    def remove_unused(self, is_kept: Callable[[int], bool]) -> None:
        """Delete checkpoints that no pointer names, and what writers that were killed have left.

        Args:
            is_kept: Tells of the checkpoint after so many epochs whether it stays all the same.
        """
        remove_temporaries(self.checkpoints)
        entries = list(self.checkpoints.iterdir())
        named = {p.read_text(encoding="utf-8", errors="replace").strip() for p in entries if p.is_file()}
        for folder in entries:
            match = _CHECKPOINT.fullmatch(folder.name)
            if match and folder.name not in named and (match[2] or not is_kept(int(match[1]))):
                remove_folder(folder)


def saved_config(run: Path) -> dict[str, Any]:
    """Return what a run's ``config.json`` says, with defaults where an earlier version had no such key.

    Raises:
        CheckpointError: If it is damaged.
    """
    values: dict[str, Any] = with_defaults(CheckpointCard(run, {}).json_object("config.json"))
    return values


def changes_since(saved: dict[str, Any], config: BaseConfig, *, fixed: tuple[str, ...] = ()) -> list[str]:
    """Return a line for each setting of a saved config that differs and may not, when the run is resumed.

    Data may have moved: its checksums tell whether it is the same.

    Args:
        saved: The config.
        config: Of the run that goes on.
        fixed: Keys that may not differ either, as those of runs that are compared.
    """
    present = config.to_json()
    former, now = ((values.get("train") or {}).get("data") or [] for values in (saved, present))
    if len(former) == len(now):
        moved = [{**old, "path": new.get("path")} for old, new in zip(former, now, strict=True)]
        saved = {**saved, "train": {**saved["train"], "data": moved}} if moved else saved
    return [
        f"  {path}  was {old!r}, now {new!r}"
        for path, old, new in differences(saved, present)
        if path.startswith(fixed)
        or (not path.startswith(CHANGEABLE_ON_RESUME) and not (path == "collect.engine" and new == "auto"))
    ]


def last_checkpoint(run: Path) -> Path | None:
    """Return the checkpoint from which a run goes on: ``last``, or the newest if it was killed before there was one."""
    folder = RunFolder.at(run)
    if folder.last is not None or not folder.checkpoints.is_dir():
        return folder.last
    whole = [p for p in folder.checkpoints.iterdir() if _CHECKPOINT.fullmatch(p.name) and (p / "card.json").is_file()]
    return max(whole, default=None)


def is_running(path: Path) -> bool:
    """Tell whether a living process trains in the folder of a run."""
    for _ in range(5):  # a process that asks the same holds the lock for an instant
        if not is_locked(path / _LOCK):
            return False
        time.sleep(0.02)
    return True


def is_orphan() -> bool:
    """Tell whether the learner that started this process is gone; False in a process that none started."""
    pid = os.environ.get(LEARNER_PID)
    return pid is not None and int(pid) != os.getppid()


def join_run(path: Path, config: BaseConfig, *, timeout_s: float = 600.0) -> RunFolder:
    """Return the folder of the run that a learner has begun, or will begin soon.

    Raises:
        ConfigError: If there is none after ``timeout_s``, or if its policy or replay is another one.
    """
    end = time.monotonic() + timeout_s
    file = path / "config.json"
    published = path / "published"
    while not (
        is_running(path)
        and file.is_file()
        and (published / "weights.safetensors").is_file()
        and not (published / "finished").exists()
    ):
        if time.monotonic() > end:
            has_ended = " (the run there has ended)" if (published / "finished").exists() else ""
            raise ConfigError(f"no learner has published weights in {path} within {timeout_s:.0f} s{has_ended}")
        if is_orphan():
            raise ConfigError(f"the learner of {path} that started this process is gone")
        if end - time.monotonic() > timeout_s - 0.1:
            logger.info("waiting for a learner in %s", path)
        time.sleep(0.1)
    end = min(end, time.monotonic() + PATIENCE_S)
    while True:
        found = differences(CheckpointCard(path, {}).json_object("config.json"), config.to_json())
        unlike = [change for change in found if change[0].startswith(MUST_FIT)]
        may_change = all(name.startswith(CHANGEABLE_ON_RESUME) for name, _, _ in unlike)
        if not (unlike and may_change) or time.monotonic() > end:
            break
        time.sleep(0.1)  # the learner goes on with a run, and writes its config once it has started
    lines = [f"  {name}  is {old!r} there, and {new!r} here" for name, old, new in unlike]
    if others := [name for name, _, _ in found if name.startswith(("env.id", "env.kwargs", "env.tasks"))]:
        logger.warning("the environment differs from the learner's: %s", ", ".join(others))
    if lines:
        raise ConfigError(f"cannot collect for {path} with another policy:\n" + "\n".join(lines))
    return RunFolder.at(path)
