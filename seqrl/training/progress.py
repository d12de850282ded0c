"""How far a run has come."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Progress:
    """How far a run has come, and how well it does; saved with every checkpoint.

    Attributes:
        epoch: Epochs that are done.
        wall_s: Seconds of the parts of the run before this one.
        env_steps: Environment name -> transitions taken in training, by all processes.
        num_episodes: Training episodes that have ended.
        num_faults: Failures of training environments.
        num_dropped: Planned gradient steps that were not taken, for want of data.
        reported: What collectors had reported at the last count.
        step_in_epoch: Gradient steps of the epoch under way that are done.
        is_in_epoch: Whether an epoch is under way, that is, it still collects or learns.
        is_evaluated: Whether the last of the epochs that are done has been evaluated (if it is time) and saved.
        metrics: The last evaluation and validation.
        metrics_epoch: Epochs that were done then; -1 before the first.
        warnings: What the run warned of, in earlier parts as far as their checkpoints kept it.
    """

    epoch: int = 0
    wall_s: float = 0.0
    env_steps: Counter[str] = field(default_factory=Counter)
    num_episodes: int = 0
    num_faults: int = 0
    num_dropped: int = 0
    reported: dict[str, Any] = field(default_factory=dict)
    step_in_epoch: int = 0
    is_in_epoch: bool = False
    is_evaluated: bool = True
    metrics: dict[str, float] = field(default_factory=dict)
    metrics_epoch: int = -1
    warnings: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.perf_counter)
    _epochs_before: int = 0

    @property
    def is_new(self) -> bool:
        """Whether nothing has been done yet."""
        return self.epoch == 0 and self.step_in_epoch == 0

    @property
    def num_env_steps(self) -> int:
        """Transitions of all environments."""
        return sum(self.env_steps.values())

    @property
    def run_s(self) -> float:
        """Seconds of the run so far, over all its parts."""
        return self.wall_s + time.perf_counter() - self._began

    def begin(self) -> None:
        """Start the clock of this part of the run."""
        self._began, self._epochs_before = time.perf_counter(), self.epoch

    def left_s(self, num_epochs: int) -> float | None:
        """Return the seconds that the rest of ``num_epochs`` will take; None before this part has done an epoch."""
        done = self.epoch - self._epochs_before
        return (time.perf_counter() - self._began) / done * (num_epochs - self.epoch) if done else None

    def end_epoch(self) -> None:
        """Count the epoch under way as done."""
        self.epoch, self.step_in_epoch, self.is_in_epoch, self.is_evaluated = self.epoch + 1, 0, False, False

    def add(self, env_steps: Counter[str], num_episodes: int, num_faults: int) -> None:
        """Count what was collected."""
        self.env_steps += env_steps
        self.num_episodes += num_episodes
        self.num_faults += num_faults

    def take_reports(self, reports: Mapping[str, dict[str, Any]]) -> None:
        """Add what collectors have done since the last call; of each, by its slot, what was ever seen counts."""
        before, slots = self.reported, dict(self.reported.get("slots", {}))
        for name, report in reports.items():
            slots[name] = dict(Counter(slots.get(name, {})) | Counter(report["env_steps"]))  # the larger of each
        steps: Counter[str] = sum((Counter(s) for s in slots.values()), Counter())
        names = ("episodes", "faults")  # a report may have got lost
        episodes, faults = (max(before.get(k, 0), sum(r[k] for r in reports.values())) for k in names)
        self.add(
            steps - Counter(before.get("env_steps", {})),
            episodes - before.get("episodes", 0),
            faults - before.get("faults", 0),
        )
        self.reported = {"env_steps": dict(steps), "episodes": episodes, "faults": faults, "slots": slots}

    def axes(self) -> dict[str, float]:
        """Return what stands in every line of the metrics."""
        axes = {
            "progress/epoch": float(self.epoch),
            "progress/env_steps": float(self.num_env_steps),
            "time/wall_s": self.run_s,
        }
        if len(self.env_steps) > 1:
            axes |= {f"progress/env_steps/{name}": float(n) for name, n in sorted(self.env_steps.items())}
        return axes

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, as JSON values; the metrics stand on its card."""
        return {
            "epoch": self.epoch,
            "step_in_epoch": self.step_in_epoch,
            "is_evaluated": self.is_evaluated,
            "wall_s": self.run_s,
            "env_steps": dict(self.env_steps),
            "num_episodes": self.num_episodes,
            "num_faults": self.num_faults,
            "num_dropped": self.num_dropped,
            "reported": self.reported,
            "warnings": list(dict.fromkeys(self.warnings)),
        }

    def load_state(self, values: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` gave; its warnings come before those of this part.

        Raises:
            KeyError: If something is missing that checkpoints have had from the first.
        """
        self.epoch, self.wall_s = values["epoch"], values["wall_s"]
        self.step_in_epoch, self.is_in_epoch = values.get("step_in_epoch", 0), False
        self.is_evaluated = values.get("is_evaluated", True)
        self.env_steps = Counter(values["env_steps"])
        self.num_episodes, self.num_faults = values["num_episodes"], values["num_faults"]
        self.num_dropped = values.get("num_dropped", 0)
        self.reported = dict(values["reported"])
        self.warnings[:0] = values.get("warnings", [])


@dataclass(frozen=True)
class RunStats:
    """What a run came to.

    Attributes:
        path: The run's folder.
        epochs: Epochs that are done.
        metrics: The last evaluation and validation.
        env_steps: Transitions taken in training environments.
        stop_reason: What :meth:`Experiment.stop` was given, if it ended the run.
    """

    path: Path
    epochs: int
    metrics: dict[str, float]
    env_steps: int = 0
    stop_reason: str | None = None
