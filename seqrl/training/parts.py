"""The parts of a run, which nothing replaces once they are built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from seqrl.algo.algo import Algo
from seqrl.algo.processes import Processes
from seqrl.core.errors import ConfigError
from seqrl.data.store import Store, StoreWriter
from seqrl.training.collector import Collector
from seqrl.training.learner import Learner
from seqrl.training.run_folder import RunFolder
from seqrl.training.sources import Data
from seqrl.training.weights import CollectorSlot
from seqrl.training.world import World

Role = Literal["both", "learn", "collect"]


class _Later:
    """Stands for a part that is not built yet."""

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(f"{name!r} belongs to a part of the run that is not built yet: call start() first")


LATER: Any = _Later()


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """What a run is made of; :meth:`Experiment.start` builds it in this order.

    Attributes:
        role: ``both`` collects and learns in turn, ``learn`` and ``collect`` do one of the two.
        processes: Of the run; they know the device.
        data: What is learned from, besides the replay.
        world: Environments and spaces.
        algo: What learns and acts.
        folder: Where the run writes.
        slot: Where this collector writes, in the role ``collect``; else None.
        replay: What was collected; None in a run that collects nothing.
        writer: Adds to the replay; None where this process collects nothing.
        learner: Takes the gradient steps.
        collector: Acts in the training environments; None where this process collects nothing.
        commands_actors: Whether a process beside this one collects for it, by Ray's actors.
        is_verbose: Whether the run shows how far it is.
    """

    role: Role = "both"
    processes: Processes = LATER
    data: Data = field(default_factory=Data)
    world: World = LATER
    algo: Algo = LATER
    folder: RunFolder = LATER
    slot: CollectorSlot | None = None
    replay: Store | None = None
    writer: StoreWriter | None = None
    learner: Learner = LATER
    collector: Collector | None = None
    commands_actors: bool = False
    is_verbose: bool = True

    def check_built(self, call: str) -> None:
        """Refuse a call for which the parts have to be there.

        Raises:
            ConfigError: If they are not.
        """
        if self.learner is LATER:
            raise ConfigError(f"call start() before {call}")

    @property
    def is_open(self) -> bool:
        """Whether the run's folder is there, and belongs to this run."""
        return self.folder is not LATER

    @property
    def num_steps(self) -> int:
        """Gradient steps so far."""
        return self.algo.updater.num_steps
