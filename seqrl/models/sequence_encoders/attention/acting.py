"""One step of attention over the ring buffer: write, attend, go on to the next slot."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.models.sequence_encoders.attention.backends import Attention
from seqrl.models.sequence_encoders.attention.blocks import bias_of_past, step_unwritten
from seqrl.models.sequence_encoders.attention.ring import next_slot, num_slots, ring_slots
from seqrl.models.sequence_encoders.base import State

COUNTERS = ("position", "slot")
"""Entries of the state: inputs that each row has seen, and the slot of the next one."""


class RingStep:
    """One more input of each row, for all layers that share its position.

    Args:
        attention: Of the layers.
        state: With ``position`` and ``slot``; the buffers of the layers are written to.
        example: Tensor whose dtype a mask takes.
        defers_writes: See :class:`~seqrl.models.sequence_encoders.base.SequenceEncoder`.
    """

    def __init__(self, attention: Attention, state: State, example: Tensor, *, defers_writes: bool) -> None:
        self._attention, self._pattern, self._state = attention, attention.pattern, state
        self._position, self._slot = state["position"], state["slot"]
        self._rows = torch.arange(self._position.shape[0], device=self._position.device)
        self._slots = ring_slots(self._pattern, self._position, example)
        self._defers_writes, self._written = defers_writes, State()
        self._bias: Tensor | None = None

    def attend(self, qkv: Float[Tensor, "B 1 3 N D"], keys: str, values: str) -> Float[Tensor, "B 1 N D"]:
        """Return the heads' outputs of a layer, whose buffers are the entries ``keys`` and ``values``."""
        q, k, v = qkv[:, 0].unbind(1)
        held = self._state[keys], self._state[values]
        if self._defers_writes:
            self._written |= {keys: k.unsqueeze(2), values: v.unsqueeze(2)}
            return self._unwritten(qkv[:, 0], *held).transpose(1, 2)
        for buffer, new in zip(held, (k, v), strict=True):
            buffer[self._rows, :, self._slot] = new.to(buffer.dtype)
        seen = self._attention.step(q.unsqueeze(2), held[0].to(q.dtype), held[1].to(q.dtype), self._slots)
        return seen.transpose(1, 2)

    def _unwritten(self, qkv: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        at = self._slots.k_pos, self._position
        if self._bias is None:
            self._bias = bias_of_past(self._pattern, qkv.shape[2], *at)
        return step_unwritten(self._pattern, qkv, keys, values, *at, self._bias)

    def after(self) -> State:
        """Return the state after the step."""
        counters = {"position": self._position + 1, "slot": next_slot(self._pattern, self._slot)}
        return {**self._state, **self._written, **counters}


def empty_ring(
    attention: Attention, shape: tuple[int, int, int], *names: str, device: torch.device | str, dtype: torch.dtype
) -> State:
    """Return buffers of such names with nothing in them, and the counters.

    Args:
        attention: Of the layers.
        shape: Rows, heads, width of a head.
        names: Of the buffers.
        device: Where.
        dtype: Of the buffers.
    """
    rows, heads, width = shape
    size = (rows, heads, num_slots(attention.pattern), width)
    counters = {name: torch.zeros(rows, device=device, dtype=torch.int64) for name in COUNTERS}
    return counters | {name: torch.zeros(size, device=device, dtype=dtype) for name in names}
