"""The processes of a run, one or as many as ``torchrun`` started, and what they tell one another."""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch

T = TypeVar("T")
_LOST = ("gloo/transport", "closed by peer", "reset by peer", "Broken pipe", "remote process exited", "was aborted")
"""In what PyTorch says where a peer is gone."""

with warnings.catch_warnings():  # its bars miss a package in notebooks, ours do not
    warnings.filterwarnings("ignore", message="IProgress not found")
    from accelerate import Accelerator as Accelerator
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedDataParallelKwargs, gather_object


class Processes:
    """What a run needs to know of its processes; with one process, nothing waits for anything.

    Args:
        device: Where this process computes, if it is the only one; else accelerate says.
        precision: Of forward passes: ``no``, ``fp16`` or ``bf16``.
        some_rest: Whether there are gradient steps in which some networks take no gradient.

    Attributes:
        accelerator: For the :class:`~seqrl.algo.updater.Updater`, which places, scales and synchronises by it.
        device: Where this process computes.
        rank: Of this process, from 0.
        number: Of processes.
        is_main: Whether this process writes, evaluates and says what happens.
        is_alone: Whether it is the only one.
    """

    def __init__(self, device: torch.device, *, precision: str = "no", some_rest: bool = False) -> None:
        self.accelerator = make_accelerator(device, precision=precision, some_rest=some_rest)
        self.rank = int(self.accelerator.process_index)
        self.number = int(self.accelerator.num_processes)
        self.is_main = bool(self.accelerator.is_main_process)
        self.is_alone = self.number == 1
        self.device: torch.device = device if self.is_alone else self.accelerator.device

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank; every process has to call it.

        Args:
            value: Anything that can be pickled.
        """
        found: list[T] = gather_object([value])
        return found

    def wait(self) -> None:
        """Wait until every process is here."""
        self.accelerator.wait_for_everyone()

    def leave(self) -> None:
        """Let go of the other processes, at the end of the program: else one may abort while it exits."""
        if not self.is_alone:
            self.accelerator.end_training()

    def has_lost_another(self, error: BaseException) -> bool:
        """Tell whether an error says that another process is gone, with which this one was exchanging something."""
        said = str(error)
        return not self.is_alone and isinstance(error, RuntimeError) and any(sign in said for sign in _LOST)

    def main_first(self) -> AbstractContextManager[Any]:
        """Return a block that the main process goes through before the others enter it."""
        block: AbstractContextManager[Any] = self.accelerator.main_process_first()
        return block


def make_accelerator(device: torch.device, *, precision: str = "no", some_rest: bool = False) -> Accelerator:
    """Return an Accelerator for one device per process.

    accelerate keeps its settings for the life of the process and refuses others. A run on its own may follow a run
    with other settings, so they are forgotten first; ranks of a distributed run keep theirs. Buffers are not
    broadcast: every rank moves them by the same sums.
    """
    if PartialState._shared_state and PartialState().num_processes == 1:
        AcceleratorState._reset_state(reset_partial_state=True)
    is_alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    return Accelerator(
        cpu=device.type == "cpu",
        mixed_precision=precision,
        device_placement=not is_alone,  # alone, the networks lie on their device already, which may be any
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False, find_unused_parameters=some_rest)],
    )
