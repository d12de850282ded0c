"""The contract of every memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

State = dict[str, Tensor]
"""Name -> tensor whose first dimension is the row, one row per environment."""


class SequenceEncoder(nn.Module, ABC):
    """Base of all memories. Register a subclass with ``SEQUENCE_ENCODERS.register(name)``.

    A pass without a state reads whole sequences from an empty memory (training). A pass with a state goes on from
    it and returns the next one (acting); it may overwrite the state that it is given. Both give the same outputs.

    Args:
        d_input: Width of the inputs.
        window_steps: Inputs that one layer looks back on, itself included, for encoders with a bounded memory.

    Attributes:
        d_output: Width of the outputs.
        max_step: Largest step index that the encoder can take, or None.
        is_recurrent: Whether its state tells all that it remembers, at any step: a training window may begin with it.
        defers_writes: Set by who keeps the state: of entries ``(B, N, S, D)`` in which a step writes to one of the S
            slots, return ``(B, N, 1, D)``, to be written at the ``(B,)`` slots that the entry ``slot`` (of ``keys_1``:
            ``slot_1``, if there is one) named before the step.
    """

    d_output: int
    max_step: int | None = None
    is_recurrent: bool = False
    defers_writes: bool = False

    def __init__(self, d_input: int, window_steps: int) -> None:
        super().__init__()
        self.d_input = d_input
        self.window_steps = window_steps

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return outputs that depend on inputs up to their own position, and the next state if one was given."""

    def check(self, device: torch.device, *, is_half: bool) -> None:
        """Raise a ConfigError if it cannot train on this device, in half precision or not."""

    @abstractmethod
    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return the state of an empty memory for ``num_rows`` environments."""

    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Empty the memory of the rows that are True, in place, and return the state.

        The default sets every tensor to zero there.
        """
        numbers = rows.nonzero().squeeze(1)  # a mask would go through all rows
        for tensor in state.values():
            tensor.index_fill_(0, numbers, 0)
        return state

    def with_empty_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Return a state whose memory is empty in the rows that are True; gradients reach a start that is learned.

        The default sets every tensor to zero there.
        """
        return {k: v.masked_fill(rows.view(-1, *[1] * (v.dim() - 1)), 0) for k, v in state.items()}
