"""Code of the user's that runs at certain moments of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from seqrl.algo.algo import Algo
from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError
from seqrl.envs.metrics import Episode
from seqrl.training.learner import Learner
from seqrl.training.progress import Progress
from seqrl.training.run_folder import RunFolder


class Run(Protocol):
    """What callbacks use of the :class:`~seqrl.training.experiment.Experiment` that calls them.

    Attributes:
        config: The run file.
        progress: How far the run has come.
    """

    config: BaseConfig
    progress: Progress

    @property
    def algo(self) -> Algo:
        """What learns and acts."""

    @property
    def learner(self) -> Learner:
        """What takes the gradient steps, and knows the data."""

    @property
    def folder(self) -> RunFolder:
        """Where the run writes."""

    @property
    def metrics(self) -> dict[str, float]:
        """The last evaluation and validation."""

    @property
    def num_steps(self) -> int:
        """Gradient steps so far."""

    def evaluate_val(self) -> tuple[dict[str, float], list[Episode]]:
        """Return metrics and episodes of the current policy in the evaluation environments."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Give numbers to every logger."""

    def save(self) -> None:
        """Write a checkpoint now; every process has to call it."""

    def stop(self, reason: str) -> None:
        """End the run after the epoch under way."""

    def warn(self, text: str) -> None:
        """Log a warning, and keep it for the report."""


class Callback:
    """Override what you need, and pass it as ``Experiment(config, callbacks=[...])``.

    ``experiment.stop("reason")``, from any of them, ends the run after the epoch under way: it is evaluated, saved and
    reported like the last one. Under ``torchrun`` each process has its own callbacks; evaluations and checkpoints are
    the main process's.
    """

    def on_start(self, experiment: Run) -> None:
        """Called once, before the first evaluation and the first epoch."""

    def on_gradient_step(self, experiment: Run, step: int) -> None:
        """Called after every gradient step; reading a tensor here makes the host wait for the device.

        Args:
            experiment: Whose.
            step: Gradient steps so far.
        """

    def on_epoch_end(self, experiment: Run, metrics: Mapping[str, float]) -> None:
        """Called after collecting and learning, before the evaluation.

        Args:
            experiment: Whose.
            metrics: Data, speed and shares of time, as they are logged.
        """

    def on_evaluation(self, experiment: Run, metrics: Mapping[str, float]) -> None:
        """Called after each evaluation and validation.

        Args:
            experiment: Whose.
            metrics: ``eval/...`` and ``valid/...``.
        """

    def on_save(self, experiment: Run, path: Path) -> None:
        """Called after each checkpoint.

        Args:
            experiment: Whose.
            path: The checkpoint's folder.
        """

    def on_end(self, experiment: Run) -> None:
        """Called once, however the run ends, while its environments are still open."""


_ELSEWHERE = {
    "on_train_start": "on_start",
    "on_train_begin": "on_start",
    "on_step": "on_gradient_step",
    "on_epoch": "on_epoch_end",
    "on_evaluate": "on_evaluation",
    "on_checkpoint": "on_save",
    "on_train_end": "on_end",
}
"""Names of hooks in other libraries -> what they are called here."""


class Callbacks:
    """Several callbacks of a run, called in turn.

    Args:
        callbacks: One, or several in the order of the calls.
        run: What they are called with.

    Attributes:
        watch_steps: Whether any of them overrides ``on_gradient_step``.

    Raises:
        ConfigError: If one is not a :class:`Callback`, or has a hook of another library.
    """

    def __init__(self, callbacks: Callback | Iterable[Callback], run: Run) -> None:
        are_several = isinstance(callbacks, Iterable) and not isinstance(callbacks, type | Callback)
        self._all: list[Callback] = list(callbacks) if are_several else [callbacks]  # type: ignore[arg-type,list-item]
        self._run = run
        if wrong := [c for c in self._all if not isinstance(c, Callback)]:
            raise ConfigError(f"callbacks: must be objects of subclasses of seqrl.Callback, got {wrong[0]!r}")
        for callback in self._all:
            for name, own in _ELSEWHERE.items():
                if callable(getattr(callback, name, None)):
                    told = f"{type(callback).__name__}.{name} would never be called"
                    raise ConfigError(f"callbacks: {told}; did you mean {own!r}?")
        self._watchers = [c for c in self._all if type(c).on_gradient_step is not Callback.on_gradient_step]
        self.watch_steps = bool(self._watchers)

    def on_start(self) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_start(self._run)

    def on_gradient_step(self, step: int) -> None:
        """Call those that override it."""
        for callback in self._watchers:
            callback.on_gradient_step(self._run, step)

    def on_epoch_end(self, metrics: Mapping[str, float]) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_epoch_end(self._run, metrics)

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_evaluation(self._run, metrics)

    def on_save(self, path: Path) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_save(self._run, path)

    def on_end(self) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_end(self._run)
