"""Learns of non-finite gradients without making the host wait for the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from seqrl.core.errors import TrainingError
from seqrl.core.tensors import SeqBatch


class NonFiniteError(TrainingError):
    """A loss or gradient was not finite. ``batches`` holds those of the step before it and of the step itself."""

    def __init__(self, message: str, batches: list[SeqBatch]) -> None:
        super().__init__(message)
        self.batches = batches


@dataclass(frozen=True)
class _Flag:
    step: int
    bad: Tensor
    event: torch.cuda.Event | None
    batches: list[SeqBatch]
    metrics: Mapping[str, Tensor]

    def told(self) -> str:
        """Return what was not finite, and what to do."""
        losses = {k: v for k, v in self.metrics.items() if k.startswith("loss/")}  # of this process's last micro-batch
        what = ", ".join(k for k, v in losses.items() if not torch.isfinite(v).all()) or "the loss or its gradient"
        return (
            f"not finite at gradient step {self.step}: {what}; the update was suppressed. Look for bad values in the "
            "data, lower algo.optimizer.learning_rate, or go on regardless with train.on_nonfinite=skip"
        )


class FiniteGuard:
    """Keeps each step's flag until its copy has reached the host, normally one step later.

    Args:
        stop: Raise when a flag is set; otherwise only count.

    Attributes:
        num_skipped: Steps whose update was suppressed, as far as is known.
    """

    def __init__(self, *, stop: bool) -> None:
        self.num_skipped = 0
        self._stop = stop
        self._pending: deque[_Flag] = deque()
        self._before: list[SeqBatch] = []

    def push(self, bad: Tensor, batches: list[SeqBatch], step: int, metrics: Mapping[str, Tensor]) -> None:
        """Take a step's flag, a bool scalar on the device, and the batches and metrics that made the step."""
        event = None
        if bad.is_cuda:
            host = torch.empty((), dtype=torch.bool, pin_memory=True)
            bad = host.copy_(bad, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._pending.append(_Flag(step, bad, event, batches, metrics))

    def check(self, *, wait: bool = False) -> None:
        """Read the flags that have arrived, or all of them if ``wait``.

        Raises:
            NonFiniteError: If one is set and the guard is to stop.
        """
        while self._pending:
            flag = self._pending[0]
            if flag.event is not None and not wait and not flag.event.query():
                return
            if flag.event is not None and wait:
                flag.event.synchronize()
            self._pending.popleft()
            if bool(flag.bad):
                self.num_skipped += 1
                if self._stop:
                    raise NonFiniteError(flag.told(), [*self._before, *flag.batches])
            self._before = flag.batches
