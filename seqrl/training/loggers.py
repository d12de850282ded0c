"""Where numbers and videos go: ``metrics.jsonl``, TensorBoard, Weights & Biases, loggers of plug-ins."""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from seqrl.configs.differences import changed_settings
from seqrl.configs.sections.run import LoggingSection
from seqrl.core.files import write_atomic
from seqrl.core.registry import LOGGERS
from seqrl.reports.series import read_metrics
from seqrl.training.robomimic_names import robomimic_names
from seqrl.training.tensorboard_logger import TensorBoardLogger
from seqrl.training.wandb_logger import WandbLogger, import_wandb

logger = logging.getLogger(__name__)


class MetricsLogger(Protocol):
    """Takes named numbers at a gradient step; one that has ``log_video(file, step)`` gets videos too."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the values."""

    def close(self) -> None:
        """Flush and close."""


@dataclass(frozen=True)
class LoggedRun:
    """The run that a logger writes about; what a logger of a plug-in is made with, besides its options.

    Attributes:
        path: The run's folder.
        config: The run file, as JSON values.
        task: Name of the environment, or of the data.
        provenance: Versions, host, command and commit (:func:`~seqrl.core.host.provenance`).
        step: Gradient steps after which a resumed run goes on; None in a new run.
        epoch: Epochs after which it goes on.
        is_evaluated: Whether the evaluation of these epochs is done; else it comes (again).
    """

    path: Path
    config: dict[str, Any]
    task: str = ""
    provenance: dict[str, str] = field(default_factory=dict)
    step: int | None = None
    epoch: int | None = None
    is_evaluated: bool = True


def check_loggers(section: LoggingSection) -> None:
    """Find out whether the loggers can be made, before anything is done for them.

    Raises:
        ConfigError: If the package of one cannot be imported.
        RegistryError: If one is unknown.
    """
    if section.wandb.enabled:
        import_wandb()
    elif section.wandb != type(section.wandb)():
        logger.warning("experiment.logging.wandb has settings, but enabled is false: nothing is logged there")
    for other in section.others:
        LOGGERS.get(other.choice()[0])


def build_loggers(section: LoggingSection, run: LoggedRun) -> list[MetricsLogger]:
    """Return the loggers that the run file asks for, and the one that is always there."""
    with contextlib.ExitStack() as stack:
        loggers: list[MetricsLogger] = []

        def add(logger: MetricsLogger) -> None:
            loggers.append(logger)
            stack.callback(logger.close)

        add(JsonlLogger(run.path / "metrics.jsonl", run.step, run.epoch, is_evaluated=run.is_evaluated))
        if section.tensorboard:
            texts, settings = {"config": run.config, "provenance": run.provenance}, changed_settings(run.config)
            add(TensorBoardLogger(run.path / "tb", run.step, texts=texts, settings=settings))
        if section.wandb.enabled:
            add(WandbLogger(run.path, section.wandb, run.config | {"provenance": run.provenance}))
        for other in section.others:
            name, options = other.choice()
            add(Guarded(LOGGERS.get(name)(run, **options), name))
        stack.pop_all()  # all are there: none is closed
        if section.robomimic_names:
            loggers[1:] = [WithRobomimicNames(other, run.task) for other in loggers[1:]]
        return loggers


def log_video(loggers: Iterable[MetricsLogger], file: Path, step: int) -> None:
    """Give a video to those loggers that take videos; a failure is a warning, as the run is worth more."""
    for metrics_logger in loggers:
        if (show := getattr(metrics_logger, "log_video", None)) is None:
            continue
        try:
            show(file, step)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            logger.warning("%s was not logged by %s: %s", file, type(metrics_logger).__name__, told)


class Guarded:
    """A logger of a plug-in, whose errors are told once, as the run is worth more.

    Args:
        inner: The logger.
        name: In ``experiment.logging.others``.
    """

    def __init__(self, inner: MetricsLogger, name: str) -> None:
        self._inner, self._name, self._is_failing = inner, name, False

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Pass on the values."""
        self._try(lambda: self._inner.log(values, step))

    def log_video(self, file: Path, step: int) -> None:
        """Pass on a video."""
        log_video([self._inner], file, step)

    def close(self) -> None:
        """Close the logger."""
        self._try(lambda: self._inner.close())

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except Exception as error:
            if not self._is_failing:
                told = f"{type(error).__name__}: {error}"
                logger.warning(
                    "the logger %r (experiment.logging.others) fails, and the run goes on: %s", self._name, told
                )
            self._is_failing = True


class WithRobomimicNames:
    """Gives a logger the numbers under robomimic's names too.

    Args:
        inner: The logger.
        task: Name of the environment.
    """

    def __init__(self, inner: MetricsLogger, task: str) -> None:
        self._inner, self._task = inner, task

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Pass on the values, and those that robomimic logs as well."""
        self._inner.log({**values, **robomimic_names(values, self._task)}, step)

    def log_video(self, file: Path, step: int) -> None:
        """Pass on a video."""
        log_video([self._inner], file, step)

    def close(self) -> None:
        """Close the logger."""
        self._inner.close()


class JsonlLogger:
    """One JSON object per line: ``{"step": 200, "loss/total": 0.1, ...}``; non-finite numbers are null.

    Args:
        file: Appended to.
        resume_step: Lines of later steps are cut off first; None begins an empty file.
        resume_epoch: So are lines of later epochs.
        is_evaluated: Whether the evaluation of ``resume_epoch`` stays; else it comes again.
    """

    def __init__(
        self, file: Path, resume_step: int | None, resume_epoch: int | None = None, *, is_evaluated: bool = True
    ) -> None:
        kept = [] if resume_step is None else [r for r in read_metrics(file) if (r.get("step") or 0) <= resume_step]
        if resume_epoch is not None:
            kept = [r for r in kept if (r.get("progress/epoch") or 0) <= resume_epoch]
        if not is_evaluated:
            kept = [r for r in kept if r.get("progress/epoch") != resume_epoch or not _is_evaluation(r)]
        write_atomic(file, "".join(json.dumps(row) + "\n" for row in kept))
        self._file = open(file, "a", encoding="utf-8")  # noqa: SIM115
        self._is_failing = False

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Append one line."""
        row: dict[str, Any] = {"step": step}
        row |= {k: float(v) if math.isfinite(v) else None for k, v in values.items()}
        self._try(lambda: print(json.dumps(row), file=self._file, flush=True))

    def close(self) -> None:
        """Close the file."""
        self._try(self._file.close)

    def _try(self, write: Callable[[], object]) -> None:
        """Write, or tell once that nothing can be; the run goes on."""
        try:
            write()
        except OSError as error:
            if not self._is_failing:
                logger.warning("%s cannot be written, so lines of it are missing: %s", self._file.name, error)
            self._is_failing = True
        else:
            self._is_failing = False


def _is_evaluation(row: Mapping[str, Any]) -> bool:
    return any(key.startswith(("eval/", "valid/")) for key in row)
