"""A memory of one's own: a gated linear recurrence, in the contract of SequenceEncoder.

seqrl train --config bc.json --plugin examples/memory_plugin.py --set algo.sequence_encoder.type=gated_average
seqrl train --config bc.json --plugin examples/memory_plugin.py --set algo.sequence_encoder.type=gated_average \
    --set algo.sequence_encoder.d_model=64
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from seqrl.configs import Section
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders import SequenceEncoder, State


class GatedAverageSection(Section):
    """A gated average of inputs: gates see the input alone, so the recurrence is linear."""

    type: Literal["gated_average"] = "gated_average"
    d_model: PositiveInt = Field(128, description="Width of the inputs, of the memory and of the outputs.")
    num_layers: PositiveInt = Field(2, description="Layers, each beside a connection that skips it.")


class GatedAverageLayer(nn.Module):
    """``h_t = keep_t * h_{t-1} + (1 - keep_t) * new_t`` of every unit, with ``keep_t`` and ``new_t`` from ``x_t``."""

    def __init__(self, d_model: int, window_steps: int) -> None:
        super().__init__()
        self.norm, self.gates = nn.LayerNorm(d_model), nn.Linear(d_model, 2 * d_model)
        self.out = nn.Linear(d_model, d_model)
        with torch.no_grad():  # units keep their value for one step to a window at first; see GRU._init_memory
            self.gates.bias[:d_model].uniform_(1.0, max(window_steps - 1.0, 1.0)).log_()

    def forward(self, x: Float[Tensor, "B L D"], h: Float[Tensor, "B D"]) -> tuple[Tensor, Tensor]:
        """Return the outputs and the last ``h``."""
        keep, new = self.gates(self.norm(x)).chunk(2, dim=-1)
        keep = keep.sigmoid()
        states = []
        for keep_t, add_t in zip(keep.unbind(1), ((1 - keep) * new).unbind(1), strict=True):
            h = torch.addcmul(add_t, keep_t, h)
            states.append(h)
        return x + self.out(torch.stack(states, dim=1)), h


@SEQUENCE_ENCODERS.register("gated_average", section=GatedAverageSection)
class GatedAverage(SequenceEncoder):
    """Layers of :class:`GatedAverageLayer` (Feng et al., 2024, arXiv 2410.01201); the memory is unbounded in time."""

    is_recurrent = True

    def __init__(self, d_input: int, window_steps: int, *, d_model: int = 128, num_layers: int = 2) -> None:
        super().__init__(d_input, window_steps)
        self.d_output = d_model
        self.embed = nn.Linear(d_input, d_model)
        self.layers = nn.ModuleList([GatedAverageLayer(d_model, window_steps) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(d_model)

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return the outputs, and each layer's ``h`` ``(B, layers, D)`` after the last input if one was given."""
        y = self.embed(x)
        before = y.new_zeros(len(y), len(self.layers), y.shape[-1]) if state is None else state["h"]
        after = []
        for layer, h in zip(self.layers, before.unbind(1), strict=True):
            y, h_last = layer(y, h)
            after.append(h_last)
        return self.norm(y), None if state is None else {"h": torch.stack(after, dim=1)}

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return zeros; the inherited reset_rows puts them back."""
        return {"h": torch.zeros(num_rows, len(self.layers), self.d_output, device=device, dtype=dtype)}
