"""Mamba-2: state space duality (Dao & Gu, 2024, arXiv 2405.21060)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu, softplus

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders.base import State
from seqrl.models.sequence_encoders.kernels import mamba2_kernel
from seqrl.models.sequence_encoders.layers import (
    Mixer,
    Residual,
    ShortConvolution,
    Stack,
    no_autocast,
    wide,
    wide_dtype,
)
from seqrl.models.sequence_encoders.matrix_memory import CHUNK_STEPS, decayed_attention, decayed_step
from seqrl.models.sequence_encoders.time_scales import head_time_scales, inverse_softplus

NORM_EPS = 1e-6


class Mamba2Mixer(Mixer):
    r"""The parallel block of the paper's figure 6, with one group of ``B`` and ``C`` for all heads.

    :math:`S_t = e^{-a \Delta_t} S_{t-1} + \Delta_t B_t^\top x_t`, :math:`y_t = C_t S_t + D x_t`, per head.

    Two things differ from the paper, as in :class:`~seqrl.models.sequence_encoders.mamba.Mamba` and for the same
    reason: ``B`` and ``C`` are normalised, so that the memory is as loud as the present, and the heads forget in one
    step to the window at first. A head that remembers for T steps starts with a step size of ``T ** -0.5``, so that all
    it holds is as large as one input.

    The kernel of the package mamba-ssm is used on a GPU, from an empty state; in float32 it
    rounds the inputs of its products to 10 bits.
    """

    def __init__(
        self, d_model: int, *, num_heads: int, d_state: int, d_conv: int, expand: int, window_steps: int
    ) -> None:
        super().__init__()
        d_inner = expand * d_model
        self.widths = [d_inner, d_state, d_state]
        self.num_heads, self.d_state = num_heads, d_state
        self.input = nn.Linear(d_model, 2 * d_inner + 2 * d_state + num_heads, bias=False)
        self.convolution = ShortConvolution(sum(self.widths), d_conv)
        scales = head_time_scales(num_heads, window_steps)
        self.step_bias = nn.Parameter(inverse_softplus(scales.rsqrt()))
        self.log_a = nn.Parameter(-0.5 * scales.log())
        self.skip = nn.Parameter(torch.ones(num_heads))
        self.norm = nn.RMSNorm(d_inner)
        self.output = nn.Linear(d_inner, d_model, bias=False)
        self._attend = torch.compiler.disable(decayed_attention)

    def forward(self, x: Float[Tensor, "B L D"], state: State | None) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return outputs, and the next state if one was given."""
        gate, inner, step = self.input(x).split([self.widths[0], sum(self.widths), self.num_heads], dim=-1)
        inner, past = self.convolution(inner, None if state is None else state["past"])
        u, b, c = wide(inner).split(self.widths, dim=-1)
        b, c = (rms_norm(part, part.shape[-1:], eps=NORM_EPS) for part in (b, c))
        delta, a = softplus(wide(step) + wide(self.step_bias)), wide(self.log_a).exp().to(u.dtype)
        u = u.unflatten(-1, (self.num_heads, -1))
        with no_autocast(x):
            y, memory = self._remembered(u, delta, a, b, c, None if state is None else state["memory"])
        y = (y + u * wide(self.skip).to(u.dtype).unsqueeze(-1)).flatten(2).to(gate.dtype)
        out: Tensor = self.output(self.norm(y * silu(gate)))
        return out, None if state is None else {"past": past, "memory": memory}

    def _remembered(
        self, u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return what the memory gives ``(B, L, H, P)``, and the memory."""
        kernel: Any = mamba2_kernel(u) if memory is None else None
        if kernel is not None:
            y: Tensor = kernel(u, delta, -a, b.unsqueeze(2), c.unsqueeze(2), chunk_size=CHUNK_STEPS)
            return y, u.new_zeros(())
        if memory is None:
            memory = u.new_zeros(len(u), self.num_heads, self.d_state, u.shape[-1])
        q, k = c.unsqueeze(1), b.unsqueeze(1)
        v, log_decay = (u * delta.unsqueeze(-1)).transpose(1, 2), -(a * delta).transpose(1, 2)
        run = decayed_step if v.shape[2] == 1 else self._attend
        y, memory = run(q, k, v, log_decay, memory.to(u.dtype))
        return y.transpose(1, 2), memory

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> State:
        """Return zeros: the convolution's past, and a matrix per head, at least float32."""
        shape = (num_rows, self.num_heads, self.d_state, self.widths[0] // self.num_heads)
        past = self.convolution.init_past(num_rows, device=device, dtype=dtype)
        return {"past": past, "memory": torch.zeros(shape, device=device, dtype=wide_dtype(dtype))}


@SEQUENCE_ENCODERS.register("mamba2")
class Mamba2(Stack):
    """Residual pre-norm layers of Mamba-2, whose memory is a matrix per head that forgets at a rate of its own."""

    is_recurrent = True

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_model: int = 256,
        num_heads: int = 8,
        d_state: int = 64,
        d_conv: int = 4,
        expand: int = 2,
        num_layers: int = 3,
        dropout: float = 0.0,
        norm: str = "layer",
    ) -> None:
        sizes = {"num_heads": num_heads, "d_state": d_state, "d_conv": d_conv, "expand": expand}
        mixers = [Mamba2Mixer(d_model, window_steps=window_steps, **sizes) for _ in range(num_layers)]
        layers = [Residual(mixer, d_model, norm=norm, dropout=dropout) for mixer in mixers]
        super().__init__(d_input, window_steps, d_model, layers, norm)
