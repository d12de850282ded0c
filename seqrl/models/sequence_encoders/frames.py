"""Frames: each input is read beside the last ones before it, by any memory."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders.base import SequenceEncoder, State

FRAMES, IS_NEW = "stacked/frames", "stacked/is_new"


class Frames(SequenceEncoder):
    """Hands each input and the ``num_frames - 1`` before it to a memory; where there are none, the first is repeated.

    Args:
        memory: Takes inputs of ``num_frames`` times the width.
        num_frames: At least 2.
    """

    def __init__(self, memory: SequenceEncoder, num_frames: int) -> None:
        super().__init__(memory.d_input // num_frames, memory.window_steps)
        self.memory = memory
        self.num_frames = num_frames
        self.d_output = memory.d_output
        self.max_step = memory.max_step
        self.is_recurrent = memory.is_recurrent

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return the memory's outputs, and its next state with the frames to read the next input with."""
        past = self.num_frames - 1
        before = x[:, :1].expand(-1, past, -1)
        if state is not None:
            before = torch.where(state[IS_NEW][:, None, None], before, state[FRAMES].to(x.dtype))
        rows = torch.cat([before, x], dim=1)
        stacked = torch.cat([rows[:, i : i + x.shape[1]] for i in range(self.num_frames)], dim=-1)
        if state is None:
            return self.memory(stacked, step)  # type: ignore[no-any-return]
        encoded, inner = self.memory(stacked, step, self._of_memory(state))
        return encoded, {FRAMES: rows[:, -past:], IS_NEW: torch.zeros_like(state[IS_NEW]), **inner}

    def check(self, device: torch.device, *, is_half: bool) -> None:
        """Ask the memory."""
        self.memory.check(device, is_half=is_half)

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return an empty memory's state, without frames."""
        frames = torch.zeros(num_rows, self.num_frames - 1, self.d_input, device=device, dtype=dtype)
        is_new = torch.ones(num_rows, dtype=torch.bool, device=device)
        return {FRAMES: frames, IS_NEW: is_new, **self.memory.init_state(num_rows, device=device, dtype=dtype)}

    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Empty the memory of the rows that are True, and forget their frames."""
        state[IS_NEW] |= rows
        state[FRAMES].masked_fill_(rows[:, None, None], 0)
        own = {name: state[name] for name in (FRAMES, IS_NEW)}
        return {**own, **self.memory.reset_rows(self._of_memory(state), rows)}

    def with_empty_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Return a state without frames, and with an empty memory, in the rows that are True."""
        own = {FRAMES: state[FRAMES].masked_fill(rows[:, None, None], 0), IS_NEW: state[IS_NEW] | rows}
        return {**own, **self.memory.with_empty_rows(self._of_memory(state), rows)}

    @staticmethod
    def _of_memory(state: State) -> State:
        return {name: value for name, value in state.items() if name not in (FRAMES, IS_NEW)}


def make_sequence_encoder(name: str, d_input: int, window_steps: int, options: Mapping[str, Any]) -> SequenceEncoder:
    """Return a memory by its registered name.

    Args:
        name: Registered.
        d_input: Width of the inputs.
        window_steps: See :class:`SequenceEncoder`.
        options: Of the memory; and ``num_frames``, unless the memory has an option of that name itself.
    """
    own, kind = dict(options), SEQUENCE_ENCODERS.get(name)
    num_frames = 1 if "num_frames" in inspect.signature(kind).parameters else own.pop("num_frames", 1)
    memory: SequenceEncoder = kind(num_frames * d_input, window_steps, **own)
    return memory if num_frames == 1 else Frames(memory, num_frames)
