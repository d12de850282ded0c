"""Old import paths, which work with a warning until version 0.3."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

MOVED = {
    "seqrl.data.hdf5_writer": "seqrl.data.writers.robomimic",
    "seqrl.data.readers.hdf5": "seqrl.data.readers.robomimic",
    "seqrl.envs.attempts": "seqrl.envs.builtin.attempts",
    "seqrl.envs.check_play": "seqrl.envs.check.play",
    "seqrl.envs.check_values": "seqrl.envs.check.values",
    "seqrl.training.charts": "seqrl.reports.plots",
    "seqrl.training.comparison": "seqrl.reports.statistics",
    "seqrl.training.comparison_figures": "seqrl.reports.comparison_figures",
    "seqrl.training.console": "seqrl.reports.console",
    "seqrl.training.curves": "seqrl.reports.curves",
    "seqrl.training.deploy": "seqrl.rollout.from_checkpoint",
    "seqrl.training.environments": "seqrl.rollout.environments",
    "seqrl.training.evaluator": "seqrl.rollout.evaluator",
    "seqrl.training.figures": "seqrl.reports.plots",
    "seqrl.training.host_memory": "seqrl.core.host_memory",
    "seqrl.training.method_scores": "seqrl.reports.method_scores",
    "seqrl.training.playback": "seqrl.rollout.playback",
    "seqrl.training.probing": "seqrl.rollout.probing",
    "seqrl.training.replay": "seqrl.training.sources",
    "seqrl.training.report": "seqrl.reports.page",
    "seqrl.training.rollouts": "seqrl.rollout.rollouts",
    "seqrl.training.runs": "seqrl.reports.runs",
    "seqrl.training.saving": "seqrl.training.checkpoints",
    "seqrl.training.series": "seqrl.reports.series",
    "seqrl.training.spaces": "seqrl.rollout.agreement",
    "seqrl.training.statistics": "seqrl.reports.statistics",
    "seqrl.training.video": "seqrl.rollout.video",
}
"""Old module -> new module."""


class MovedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module that has moved under its old name; asked last, when nothing else has found it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to load a module that has moved; None for any other."""
        return importlib.util.spec_from_loader(name, self) if name in MOVED else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module in its new place."""
        new = MOVED[spec.name]
        warnings.warn(
            f"{spec.name} is now {new}; the old name is removed in seqrl 0.3", DeprecationWarning, stacklevel=2
        )
        return importlib.import_module(new)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module in its new place its own spec back; it has been executed."""
        module.__spec__ = importlib.util.spec_from_loader(module.__name__, module.__loader__)


def moved_names(module: str, home: str, *names: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that some names have left for another.

    Args:
        module: The module.
        home: Where they are now.
        names: Which.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        text = f"{module}.{name} is now in {home}; the old place is removed in seqrl 0.3"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(home), name)

    return find


def install() -> None:
    """Let old import paths work, in this process."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
