"""Learns of non-finite gradients without making the host wait for the device."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from seqrl.core.errors import TrainingError
from seqrl.core.tensors import SeqBatch


class NonFiniteError(TrainingError):
    """A loss or gradient was not finite. ``batches`` holds those of the step before it and of the step itself."""

    def __init__(self, message: str, batches: list[SeqBatch]) -> None:
        super().__init__(message)
        self.batches = batches


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
        self._pending: deque[tuple[int, Tensor, torch.cuda.Event | None, list[SeqBatch]]] = deque()
        self._before: list[SeqBatch] = []

    def push(self, bad: Tensor, batches: list[SeqBatch], step: int) -> None:
        """Take a step's flag, a bool scalar on the device, and the batches that made the step."""
        event = None
        if bad.is_cuda:
            host = torch.empty((), dtype=torch.bool, pin_memory=True)
            bad = host.copy_(bad, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._pending.append((step, bad, event, batches))

    def check(self, *, wait: bool = False) -> None:
        """Read the flags that have arrived, or all of them if ``wait``.

        Raises:
            NonFiniteError: If one is set and the guard is to stop.
        """
        while self._pending:
            step, flag, event, batches = self._pending[0]
            if event is not None and not wait and not event.query():
                return
            if event is not None and wait:
                event.synchronize()
            self._pending.popleft()
            if bool(flag):
                self.num_skipped += 1
                if self._stop:
                    raise NonFiniteError(
                        f"the loss or its gradient was not finite at gradient step {step}; the update was suppressed. "
                        "Look for bad values in the data, lower algo.optimizer.learning_rate, or go on regardless with "
                        "train.on_nonfinite=skip",
                        [*self._before, *batches],
                    )
            self._before = batches
