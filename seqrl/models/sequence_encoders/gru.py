"""Gated recurrent unit."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.mlp import make_norm
from seqrl.models.sequence_encoders.base import SequenceEncoder, State


@SEQUENCE_ENCODERS.register("gru")
class GRU(SequenceEncoder):
    """GRU layers, a linear projection and a norm (Cho et al., 2014). The memory is unbounded in time."""

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_hidden: int = 256,
        num_layers: int = 2,
        d_output: int = 256,
        dropout: float = 0.0,
        norm: str = "layer",
    ) -> None:
        super().__init__(d_input, window_steps)
        self.d_output = d_output
        self.gru = nn.GRU(d_input, d_hidden, num_layers, batch_first=True, dropout=dropout if num_layers > 1 else 0.0)
        self.projection = nn.Linear(d_hidden, d_output)
        self.norm = make_norm(norm, d_output)
        self._init_memory(d_hidden, window_steps)

    @torch.no_grad()
    def _init_memory(self, d_hidden: int, window_steps: int) -> None:
        """Spread the units' time scales from one step to the window (Tallec & Ollivier, 2018, arXiv 1804.11188).

        A unit keeps a share ``z`` of its value per step, so it forgets in about ``1 / (1 - z)`` steps; the bias of
        ``z`` is set to the logit of that. Recurrent matrices begin orthogonal.
        """
        for layer in range(self.gru.num_layers):
            scales = torch.empty(d_hidden).uniform_(1.0, max(window_steps - 1.0, 1.0))
            keep = slice(d_hidden, 2 * d_hidden)
            getattr(self.gru, f"bias_ih_l{layer}")[keep] = scales.log()
            getattr(self.gru, f"bias_hh_l{layer}")[keep] = 0.0
            for block in getattr(self.gru, f"weight_hh_l{layer}").split(d_hidden):
                nn.init.orthogonal_(block)

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return the encodings and the last hidden state."""
        hidden = None if state is None else state["hidden"].transpose(0, 1).contiguous()
        y, hidden = self.gru(x, hidden)
        encoded = self.norm(self.projection(y))
        return encoded, None if state is None else {"hidden": hidden.transpose(0, 1)}

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return zeros ``(rows, layers, d_hidden)``."""
        shape = (num_rows, self.gru.num_layers, self.gru.hidden_size)
        return {"hidden": torch.zeros(shape, device=device, dtype=dtype)}
