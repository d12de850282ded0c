"""mLSTM: the LSTM with a matrix as its cell, and exponential gates (Beck et al., 2024, xLSTM, arXiv 2405.04517)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad, silu

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders.base import State
from seqrl.models.sequence_encoders.layers import (
    Mixer,
    Residual,
    ShortConvolution,
    Stack,
    no_autocast,
    wide,
    wide_dtype,
)
from seqrl.models.sequence_encoders.matrix_memory import exponential_attention, exponential_step
from seqrl.models.sequence_encoders.time_scales import head_time_scales


class MLSTMMixer(Mixer):
    r"""The block of the paper's figure 11, with dense projections to queries, keys and values.

    :math:`C_t = f_t C_{t-1} + i_t k_t^\top v_t`, :math:`n_t = f_t n_{t-1} + i_t k_t`,
    :math:`y_t = q_t C_t / \max(|q_t n_t|, 1)`, per head, with :math:`i_t = \exp(w_i x_t + b_i)` and
    :math:`f_t = \sigma(w_f x_t + b_f)`. ``n`` is kept as one more column of ``C``. The paper starts the forget gates at
    3 to 6; here they keep a value for four steps to four windows: what is read is an average, in which an old input
    hardly counts once it has decayed.
    """

    def __init__(
        self, d_model: int, *, num_heads: int, d_state: int, d_conv: int, expand: int, window_steps: int
    ) -> None:
        super().__init__()
        d_inner = expand * d_model
        self.num_heads, self.d_state, self.d_inner = num_heads, d_state, d_inner
        self.input = nn.Linear(d_model, 2 * d_inner, bias=False)
        self.convolution = ShortConvolution(d_inner, d_conv)
        self.query_key = nn.Linear(d_inner, 2 * num_heads * d_state, bias=False)
        self.value = nn.Linear(d_inner, d_inner, bias=False)
        self.gates = nn.Linear(d_inner, 2 * num_heads)  # of input, of forgetting
        self.norm = nn.RMSNorm(d_inner // num_heads)
        self.skip = nn.Parameter(torch.ones(d_inner))
        self.output = nn.Linear(d_inner, d_model, bias=False)
        with torch.no_grad():
            self.gates.bias[:num_heads].normal_(std=0.1)
            self.gates.bias[num_heads:] = (4 * head_time_scales(num_heads, window_steps) - 1).log()
        self._attend = torch.compiler.disable(exponential_attention)

    def forward(self, x: Float[Tensor, "B L D"], state: State | None) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return outputs, and the next state if one was given."""
        u, gate = self.input(x).chunk(2, dim=-1)
        seen, past = self.convolution(u, None if state is None else state["past"])
        q, k = self.query_key(seen).chunk(2, dim=-1)
        parts = (q, k, self.value(u))
        q, k, v = (wide(part).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)
        log_input, forget = wide(self.gates(seen)).transpose(1, 2).chunk(2, dim=1)
        with no_autocast(x):
            y, memory = self._remembered(q, k, v, log_input, forget, state)
        y = self.norm(y.transpose(1, 2).to(gate.dtype)).flatten(2)
        out: Tensor = self.output((y + self.skip * seen) * silu(gate))
        return out, None if state is None else {"past": past, **memory}

    def _remembered(
        self, q: Tensor, k: Tensor, v: Tensor, log_input: Tensor, forget: Tensor, state: State | None
    ) -> tuple[Tensor, State]:
        """Return what the memory gives ``(B, H, L, P)``, and the memory."""
        v = pad(v, (0, 1), value=1.0)
        if state is None:
            shape = (len(v), self.num_heads, self.d_state, v.shape[-1])
            start = v.new_zeros(shape), v.new_zeros(shape[:2])
        else:
            start = state["memory"].to(v.dtype), state["scale"].to(v.dtype)
        run = exponential_step if v.shape[2] == 1 else self._attend
        y, scale, (memory, last) = run(q, k / math.sqrt(self.d_state), v, logsigmoid(forget), log_input, start)
        y, total = y[..., :-1], y[..., -1]
        y = y / torch.maximum(total.abs(), (-scale).exp()).unsqueeze(-1)
        return y, {"memory": memory, "scale": last}

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> State:
        """Return zeros: the convolution's past, a matrix per head, and the exponent by which it is divided."""
        shape = (num_rows, self.num_heads, self.d_state, self.d_inner // self.num_heads + 1)
        memory = torch.zeros(shape, device=device, dtype=wide_dtype(dtype))
        past = self.convolution.init_past(num_rows, device=device, dtype=dtype)
        return {"past": past, "memory": memory, "scale": memory.new_zeros(shape[:2])}


@SEQUENCE_ENCODERS.register("mlstm")
class MLSTM(Stack):
    """Residual pre-norm layers of mLSTM, the part of xLSTM that is trained in parallel."""

    is_recurrent = True

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_model: int = 256,
        num_heads: int = 4,
        d_state: int = 64,
        d_conv: int = 4,
        expand: int = 2,
        num_layers: int = 3,
        dropout: float = 0.0,
        norm: str = "layer",
    ) -> None:
        sizes = {"num_heads": num_heads, "d_state": d_state, "d_conv": d_conv, "expand": expand}
        mixers = [MLSTMMixer(d_model, window_steps=window_steps, **sizes) for _ in range(num_layers)]
        layers = [Residual(mixer, d_model, norm=norm, dropout=dropout) for mixer in mixers]
        super().__init__(d_input, window_steps, d_model, layers, norm)
