"""Code of the user's that runs at certain moments of an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from seqrl.core.errors import ConfigError

if TYPE_CHECKING:
    from seqrl.training.experiment import Experiment


class Callback:
    """Override what you need, and pass it as ``Experiment(config, callbacks=[...])``.

    ``experiment.stop("reason")``, from any of them, ends the run after the epoch under way: it is evaluated, saved and
    reported like the last one. Under ``torchrun`` each process has its own callbacks; evaluations and checkpoints are
    the main process's.
    """

    def on_start(self, experiment: Experiment) -> None:
        """Called once, before the first evaluation and the first epoch."""

    def on_gradient_step(self, experiment: Experiment, step: int) -> None:
        """Called after every gradient step; reading a tensor here makes the host wait for the device.

        Args:
            experiment: Whose.
            step: Gradient steps so far.
        """

    def on_epoch_end(self, experiment: Experiment, metrics: Mapping[str, float]) -> None:
        """Called after collecting and learning, before the evaluation.

        Args:
            experiment: Whose.
            metrics: Data, speed and shares of time, as they are logged.
        """

    def on_evaluation(self, experiment: Experiment, metrics: Mapping[str, float]) -> None:
        """Called after each evaluation and validation.

        Args:
            experiment: Whose.
            metrics: ``eval/...`` and ``valid/...``.
        """

    def on_save(self, experiment: Experiment, path: Path) -> None:
        """Called after each checkpoint.

        Args:
            experiment: Whose.
            path: The checkpoint's folder.
        """

    def on_end(self, experiment: Experiment) -> None:
        """Called once, however the run ends, while its environments are still open."""


class Callbacks(Callback):
    """Several callbacks, called in turn.

    Args:
        callbacks: In the order of the calls.

    Attributes:
        watch_steps: Whether any of them overrides ``on_gradient_step``.

    Raises:
        ConfigError: If one is not a :class:`Callback`.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._all = list(callbacks)
        if wrong := [c for c in self._all if not isinstance(c, Callback)]:
            raise ConfigError(f"callbacks: must be objects of subclasses of seqrl.Callback, got {wrong[0]!r}")
        self._watchers = [c for c in self._all if type(c).on_gradient_step is not Callback.on_gradient_step]
        self.watch_steps = bool(self._watchers)

    def on_start(self, experiment: Experiment) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_start(experiment)

    def on_gradient_step(self, experiment: Experiment, step: int) -> None:
        """Call those that override it."""
        for callback in self._watchers:
            callback.on_gradient_step(experiment, step)

    def on_epoch_end(self, experiment: Experiment, metrics: Mapping[str, float]) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_epoch_end(experiment, metrics)

    def on_evaluation(self, experiment: Experiment, metrics: Mapping[str, float]) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_evaluation(experiment, metrics)

    def on_save(self, experiment: Experiment, path: Path) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_save(experiment, path)

    def on_end(self, experiment: Experiment) -> None:
        """Call all."""
        for callback in self._all:
            callback.on_end(experiment)
