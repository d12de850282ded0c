"""Linear recurrent unit (Orvieto et al., 2023, arXiv 2303.06349)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, glu

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders.base import State
from seqrl.models.sequence_encoders.layers import Mixer, Residual, Stack, no_autocast, wide, wide_dtype
from seqrl.models.sequence_encoders.linear_scan import linear_scan
from seqrl.models.sequence_encoders.time_scales import log_time_scales

MAX_PHASE = math.pi / 10


class LRUMixer(Mixer):
    r"""The recurrence of the paper's section 3, and the gated linear unit of its figure 1.

    :math:`s_t = \lambda s_{t-1} + \gamma B x_t`, :math:`y_t = \mathrm{Re}(C s_t) + D x_t`, with complex
    :math:`\lambda = \exp(-e^\nu + i e^\theta)`. The paper draws :math:`|\lambda|` from a ring; here it is
    :math:`e^{-1/\tau}` with time scales :math:`\tau` from one step to the window. Phases are up to a tenth of a half
    turn, the paper's range for long memories, and :math:`\gamma` starts as :math:`\sqrt{1 - |\lambda|^2}`.
    """

    def __init__(self, d_model: int, d_state: int, window_steps: int) -> None:
        super().__init__()
        self.d_state = d_state
        self.input = nn.Linear(d_model, 2 * d_state, bias=False)  # real parts, then imaginary ones
        self.read = nn.Linear(2 * d_state, d_model, bias=False)
        self.skip = nn.Parameter(torch.randn(d_model))
        self.output = nn.Linear(d_model, 2 * d_model)
        rates = torch.exp(-log_time_scales(d_state, window_steps))
        self.log_rate = nn.Parameter(rates.log())
        self.log_phase = nn.Parameter(torch.empty(d_state).uniform_(1e-3 * MAX_PHASE, MAX_PHASE).log())
        self.log_gain = nn.Parameter(0.5 * torch.log(-torch.expm1(-2 * rates)))
        nn.init.normal_(self.input.weight, std=(2 * d_model) ** -0.5)
        nn.init.normal_(self.read.weight, std=d_state**-0.5)
        self._scan = torch.compiler.disable(linear_scan)

    def forward(self, x: Float[Tensor, "B L D"], state: State | None) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return outputs, and the next state if one was given."""
        both = wide(self.input(x)).unflatten(-1, (2, self.d_state)) * wide(self.log_gain).exp().to(x.device)
        start = both.new_zeros(len(x), 2, self.d_state) if state is None else state["memory"].to(both.dtype)
        size, phase = torch.exp(-wide(self.log_rate).exp()), wide(self.log_phase).exp()
        real, imaginary = (size * phase.cos()).to(both.dtype), (size * phase.sin()).to(both.dtype)
        if x.shape[1] == 1:
            turned = torch.stack([-start[:, 1], start[:, 0]], dim=1)
            memory = both + (real * start + imaginary * turned).unsqueeze(1)
        else:
            with no_autocast(x):
                memory = self._memory(torch.complex(real, imaginary), both, start)
        y = self.read(memory.flatten(2).to(x.dtype)) + self.skip * x
        return glu(self.output(gelu(y.to(x.dtype)))), None if state is None else {"memory": memory[:, -1]}

    def _memory(self, factor: Tensor, added: Tensor, start: Tensor) -> Tensor:
        """Return all states ``(B, L, 2, N)``: the scan is of complex numbers."""
        drive = torch.complex(added[:, :, 0], added[:, :, 1])
        states = self._scan(factor.expand_as(drive), drive, torch.complex(start[:, 0], start[:, 1]))
        return torch.stack([states.real, states.imag], dim=2)

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> State:
        """Return zeros, at least float32: real parts and imaginary ones."""
        return {"memory": torch.zeros(num_rows, 2, self.d_state, device=device, dtype=wide_dtype(dtype))}


@SEQUENCE_ENCODERS.register("lru")
class LRU(Stack):
    """Residual pre-norm layers of a linear recurrence with complex eigenvalues, which no input changes."""

    is_recurrent = True

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_model: int = 256,
        d_state: int = 256,
        num_layers: int = 3,
        dropout: float = 0.0,
        norm: str = "layer",
    ) -> None:
        layers = [
            Residual(LRUMixer(d_model, d_state, window_steps), d_model, norm=norm, dropout=dropout)
            for _ in range(num_layers)
        ]
        super().__init__(d_input, window_steps, d_model, layers, norm)
