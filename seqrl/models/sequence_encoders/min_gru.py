"""minGRU: a GRU whose gates do not read the state (Feng et al., 2024, arXiv 2410.01201)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders.base import State
from seqrl.models.sequence_encoders.layers import Mixer, Residual, Stack, no_autocast, wide, wide_dtype
from seqrl.models.sequence_encoders.linear_scan import linear_scan
from seqrl.models.sequence_encoders.time_scales import log_time_scales


class MinGRUMixer(Mixer):
    r"""The recurrence of section 3.1 of the paper between two projections.

    :math:`h_t = (1 - z_t) h_{t-1} + z_t \tilde h_t`, with :math:`z_t = \sigma(W_z x_t + b_z)` and
    :math:`\tilde h_t = W_h x_t + b_h`. The paper's version in logarithms, which needs positive
    :math:`\tilde h`, is not needed: the scan here is exact without them.

    At first units keep their value for one step to the window, as those of the GRU do.
    """

    def __init__(self, d_model: int, d_inner: int, window_steps: int) -> None:
        super().__init__()
        self.d_inner = d_inner
        self.gates = nn.Linear(d_model, 2 * d_inner)
        self.output = nn.Linear(d_inner, d_model)
        with torch.no_grad():
            self.gates.bias[:d_inner] = -log_time_scales(d_inner, window_steps)
        self._scan = torch.compiler.disable(linear_scan)

    def forward(self, x: Float[Tensor, "B L D"], state: State | None) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return outputs, and the next state if one was given."""
        write, new = wide(self.gates(x)).chunk(2, dim=-1)
        keep, added = torch.sigmoid(-write), torch.sigmoid(write) * new
        start = added.new_zeros(len(x), self.d_inner) if state is None else state["hidden"].to(added.dtype)
        if x.shape[1] == 1:
            hidden = torch.addcmul(added, keep, start.unsqueeze(1))
        else:
            with no_autocast(x):
                hidden = self._scan(keep, added, start)
        return self.output(hidden.to(x.dtype)), None if state is None else {"hidden": hidden[:, -1]}

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> State:
        """Return zeros, at least float32."""
        return {"hidden": torch.zeros(num_rows, self.d_inner, device=device, dtype=wide_dtype(dtype))}


@SEQUENCE_ENCODERS.register("min_gru")
class MinGRU(Stack):
    """Residual pre-norm layers of minGRU: as small as a GRU, and trained by a parallel scan. Unbounded in time."""

    is_recurrent = True

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_model: int = 256,
        expand: int = 1,
        num_layers: int = 2,
        dropout: float = 0.0,
        norm: str = "layer",
    ) -> None:
        layers = [
            Residual(MinGRUMixer(d_model, expand * d_model, window_steps), d_model, norm=norm, dropout=dropout)
            for _ in range(num_layers)
        ]
        super().__init__(d_input, window_steps, d_model, layers, norm)
