"""Gated DeltaNet: a memory that replaces what it holds under a key (Yang et al., 2024, arXiv 2412.06464)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize, silu, softplus

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders.base import State
from seqrl.models.sequence_encoders.kernels import delta_kernel
from seqrl.models.sequence_encoders.layers import (
    Mixer,
    Residual,
    ShortConvolution,
    Stack,
    no_autocast,
    wide,
    wide_dtype,
)
from seqrl.models.sequence_encoders.matrix_memory import delta_attention, delta_step
from seqrl.models.sequence_encoders.time_scales import head_time_scales, inverse_softplus


class GatedDeltaNetMixer(Mixer):
    r"""The block of the paper's figure 1.

    :math:`S_t = \alpha_t (I - \beta_t k_t^\top k_t) S_{t-1} + \beta_t k_t^\top v_t`, :math:`y_t = q_t S_t`, per head,
    with keys and queries of length one, :math:`\beta_t = \sigma(w_\beta x_t)` and Mamba-2's
    :math:`\alpha_t = \exp(-a\,\mathrm{softplus}(w_\alpha x_t + b))`, where ``a`` and ``b`` are learned. At first the
    heads forget in one step to the window.

    The kernel of the package flash-linear-attention is used on a GPU in half precision, from an empty state, except on
    Hopper GPUs with Triton 3.4.0 to 3.7.0, where it refuses to train; with later versions it has not been tried.
    """

    def __init__(
        self, d_model: int, *, num_heads: int, d_state: int, d_conv: int, expand: int, window_steps: int
    ) -> None:
        super().__init__()
        d_inner = expand * d_model
        self.num_heads, self.d_state, self.d_inner = num_heads, d_state, d_inner
        self.widths = [num_heads * d_state, num_heads * d_state, d_inner]
        self.input = nn.Linear(d_model, sum(self.widths) + d_inner, bias=False)
        self.gates = nn.Linear(d_model, 2 * num_heads)  # of what is replaced, and of what is kept
        self.convolution = ShortConvolution(sum(self.widths), d_conv)
        self.log_a = nn.Parameter(torch.zeros(num_heads))
        self.norm = nn.RMSNorm(d_inner // num_heads)
        self.output = nn.Linear(d_inner, d_model, bias=False)
        with torch.no_grad():
            self.gates.bias[:num_heads] = 0.0
            self.gates.bias[num_heads:] = inverse_softplus(1 / head_time_scales(num_heads, window_steps))
        self._attend = torch.compiler.disable(delta_attention)

    def forward(self, x: Float[Tensor, "B L D"], state: State | None) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return outputs, and the next state if one was given."""
        inner, gate = self.input(x).split([sum(self.widths), self.d_inner], dim=-1)
        inner, past = self.convolution(inner, None if state is None else state["past"])
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)) for part in wide(inner).split(self.widths, dim=-1))
        replaced, forgotten = wide(self.gates(x)).chunk(2, dim=-1)
        log_decay = -wide(self.log_a).exp().to(q.dtype) * softplus(forgotten)
        with no_autocast(x):
            q, k = normalize(q, dim=-1), normalize(k, dim=-1)
            memory = None if state is None else state["memory"]
            kernel: Any = delta_kernel(gate) if memory is None else None
            if kernel is not None:
                parts = (part.to(gate.dtype) for part in (q, k, v))
                y, memory = kernel(*parts, log_decay, replaced.sigmoid().to(gate.dtype), scale=1.0)
            else:
                y, memory = self._remembered(q, k, v, log_decay, replaced.sigmoid(), memory)
        y = self.norm(y.to(gate.dtype)).flatten(2) * silu(gate)
        out: Tensor = self.output(y)
        if state is None:
            return out, None
        assert memory is not None
        return out, {"past": past, "memory": memory}

    def _remembered(
        self, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return what the memory gives ``(B, L, H, P)``, and the memory."""
        if memory is None:
            memory = v.new_zeros(len(v), self.num_heads, self.d_state, v.shape[-1])
        q, k, v, log_decay, beta = (part.transpose(1, 2) for part in (q, k, v, log_decay, beta))
        run = delta_step if v.shape[2] == 1 else self._attend
        y, memory = run(q, k, v, log_decay, beta, memory.to(v.dtype))
        return y.transpose(1, 2), memory

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> State:
        """Return zeros: the convolution's past, and a matrix per head, at least float32."""
        shape = (num_rows, self.num_heads, self.d_state, self.d_inner // self.num_heads)
        past = self.convolution.init_past(num_rows, device=device, dtype=dtype)
        return {"past": past, "memory": torch.zeros(shape, device=device, dtype=wide_dtype(dtype))}


@SEQUENCE_ENCODERS.register("gated_deltanet")
class GatedDeltaNet(Stack):
    """Residual pre-norm layers of Gated DeltaNet: associations that can be written over, and forgotten."""

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
        expand: int = 1,
        num_layers: int = 3,
        dropout: float = 0.0,
        norm: str = "layer",
    ) -> None:
        sizes = {"num_heads": num_heads, "d_state": d_state, "d_conv": d_conv, "expand": expand}
        mixers = [GatedDeltaNetMixer(d_model, window_steps=window_steps, **sizes) for _ in range(num_layers)]
        layers = [Residual(mixer, d_model, norm=norm, dropout=dropout) for mixer in mixers]
        super().__init__(d_input, window_steps, d_model, layers, norm)
