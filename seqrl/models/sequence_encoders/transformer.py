"""Causal Transformer with the stabilisers of AMAGO: sigma-reparametrisation, NormFormer norms, head scales."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqrl.core.registry import ATTENTION_SCORES, SEQUENCE_ENCODERS, Choice
from seqrl.models.mlp import make_activation, make_norm
from seqrl.models.sequence_encoders.attention import (
    AttentionScore,
    Pattern,
    RingStep,
    empty_ring,
    make_attention,
    num_slots,
)
from seqrl.models.sequence_encoders.base import SequenceEncoder, State
from seqrl.models.sequence_encoders.positions import FixedPositions, rotary_angles, rotate
from seqrl.models.sigma_linear import SigmaLinear

Rotation = tuple[Tensor, Tensor] | None


class AttentionHeads(nn.Module):
    """Projections of attention: to queries, keys and values, and from what the heads give."""

    def __init__(
        self, d_model: int, num_heads: int, linear: Callable[..., nn.Module], dropout_qkv: float,
        use_head_scale: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_heads = num_heads
        self.qkv = linear(d_model, 3 * d_model, bias=False)
        self.drop_qkv = nn.Dropout(dropout_qkv)
        self.head_scale = nn.Parameter(torch.ones(num_heads, 1)) if use_head_scale else None
        self.out = linear(d_model, d_model)

    def project(self, x: Tensor, rotation: Rotation) -> Tensor:
        """Return queries, keys and values ``(B, L, 3, N, D)``, the first two rotated where positions are rotary."""
        qkv: Tensor = self.drop_qkv(self.qkv(x)).unflatten(-1, (3, self.num_heads, -1))
        if rotation is not None:
            qkv = torch.cat([rotate(qkv[:, :, :2], *rotation), qkv[:, :, 2:]], dim=2)
        return qkv

    def merge(self, y: Tensor) -> Tensor:
        """Return the heads' outputs ``(B, L, N, D)`` scaled, joined and projected to ``(B, L, d_model)``."""
        if self.head_scale is not None:
            y = y * self.head_scale.to(y.dtype)
        merged: Tensor = self.out(y.flatten(2))
        return merged


class TransformerLayer(nn.Module):
    """``x += LN2(attn(LN1 x)); x += drop(W2 LN4(act(W1 LN3 x)))``."""

    def __init__(
        self, attention: AttentionHeads, d_model: int, d_ff: int, linear: Callable[..., nn.Module], activation: str,
        norm: str, dropout_ff: float, use_normformer: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.attention = attention
        extra = norm if use_normformer else "none"
        self.norm1, self.norm2 = make_norm(norm, d_model), make_norm(extra, d_model)
        self.norm3, self.norm4 = make_norm(norm, d_model), make_norm(extra, d_ff)
        self.ff1, self.ff2 = linear(d_model, d_ff), linear(d_ff, d_model)
        self.activation = make_activation(activation)
        self.dropout = nn.Dropout(dropout_ff)

    def forward(self, x: Tensor, rotation: Rotation, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """Return outputs; ``attend`` makes the heads' outputs of queries, keys and values."""
        qkv = self.attention.project(self.norm1(x), rotation)
        x = x + self.norm2(self.attention.merge(attend(qkv)))
        hidden = self.norm4(self.activation(self.ff1(self.norm3(x))))
        out: Tensor = x + self.dropout(self.ff2(hidden))
        return out


@SEQUENCE_ENCODERS.register("transformer")
class Transformer(SequenceEncoder):
    """Pre-norm Transformer whose layers look back on ``window_steps`` inputs.

    Acting keeps keys and values in a ring buffer, rotated at their absolute step, so a step costs the same before and
    after the window has filled, and equals the banded pass over the whole sequence.
    """

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_model: int = 256,
        num_heads: int = 8,
        d_ff: int = 1024,
        num_layers: int = 3,
        positions: str = "fixed",
        max_steps: int = 2048,
        rotary_base: float = 10_000.0,
        dropout_embedding: float = 0.05,
        dropout_ff: float = 0.05,
        dropout_attention: float = 0.0,
        dropout_qkv: float = 0.0,
        attention: str = "auto",
        num_sinks: int = 0,
        sink_bias: float = 0.0,
        logit_clip: float | None = None,
        score: Choice | None = None,
        activation: str = "leaky_relu",
        norm: str = "layer",
        use_sigma_reparam: bool = True,
        use_normformer: bool = True,
        use_head_scale: bool = True,
    ) -> None:
        super().__init__(d_input, window_steps)
        self.d_output = d_model
        self.num_heads = num_heads
        self.score: AttentionScore | None = None
        if score is not None:
            name, options = score
            self.score = ATTENTION_SCORES.get(name)(num_heads, **options)
        self.pattern = Pattern(window_steps, num_sinks, sink_bias, logit_clip, self.score, d_model // num_heads)
        self.attention = make_attention(attention, self.pattern, dropout_attention)
        self.rotary_base = rotary_base if positions == "rotary" else None
        self.max_step = max_steps - 1 if positions == "learned" else None
        linear: Callable[..., nn.Module] = SigmaLinear if use_sigma_reparam else nn.Linear
        self.input = nn.Linear(d_input, d_model)
        self.positions: nn.Module | None = None
        if positions == "fixed":
            self.positions = FixedPositions(d_model)
        elif positions == "learned":
            self.positions = nn.Embedding(max_steps, d_model)
        self.dropout = nn.Dropout(dropout_embedding)
        self.layers = nn.ModuleList(
            TransformerLayer(
                AttentionHeads(d_model, num_heads, linear, dropout_qkv, use_head_scale),
                d_model, d_ff, linear, activation, norm, dropout_ff, use_normformer,
            )
            for _ in range(num_layers)
        )  # fmt: skip
        self.norm = make_norm(norm, d_model)

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return the encodings, and the state with this step's keys and values if one was given."""
        if state is None:
            return self._sequence(x, step), None
        if x.shape[1] == 1:
            return self._step(x, step, state)
        outputs = []
        for t in range(x.shape[1]):
            y, state = self._step(x[:, t : t + 1], step[:, t : t + 1], state)
            outputs.append(y)
        return torch.cat(outputs, dim=1), state

    def _sequence(self, x: Tensor, step: Tensor) -> Tensor:
        x, rotation = self._embed(x, step)
        for layer in self.layers:
            x = layer(x, rotation, self._attend)
        normed: Tensor = self.norm(x)
        return normed

    def _attend(self, qkv: Tensor) -> Tensor:
        return self.attention.sequence(qkv, self.attention.dropout if self.training else 0.0)

    def check(self, device: torch.device, *, is_half: bool) -> None:
        """Raise a ConfigError if the attention back-end cannot train there."""
        self.attention.check(device, is_half=is_half)

    def _step(self, x: Tensor, step: Tensor, state: State) -> tuple[Tensor, State]:
        x, rotation = self._embed(x, step)
        ring = RingStep(self.attention, state, x, defers_writes=self.defers_writes)
        for i, layer in enumerate(self.layers):
            x = layer(x, rotation, functools.partial(ring.attend, keys=f"keys_{i}", values=f"values_{i}"))
        normed: Tensor = self.norm(x)
        return normed, ring.after()

    def _embed(self, x: Tensor, step: Tensor) -> tuple[Tensor, Rotation]:
        x = self.input(x)
        if self.positions is not None:
            x = x + self.positions(step).to(x.dtype)
        rotation = None
        if self.rotary_base is not None:
            rotation = rotary_angles(step, self.d_output // self.num_heads, self.rotary_base)
        return self.dropout(x), rotation

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return an empty ring buffer per layer, with a slot for each sink and input of the window, and positions."""
        names = [f"{kind}_{i}" for i in range(len(self.layers)) for kind in ("keys", "values")]
        shape = (num_rows, self.num_heads, self.d_output // self.num_heads)
        return empty_ring(self.attention, shape, *names, device=device, dtype=dtype)

    def reset_rows(self, state: State, rows: Tensor) -> State:
        """Empty the memory of some rows, as far as it has been written to."""
        position = state["position"]
        written = min(int(position.masked_fill(~rows, 0).max()), num_slots(self.pattern))
        if written:  # slots out of sight weigh nothing, but zero times something that is not finite is not zero
            numbers = rows.nonzero().squeeze(1)  # a mask would go through all rows
            for i in range(len(self.layers)):
                state[f"keys_{i}"][:, :, :written].index_fill_(0, numbers, 0)
                state[f"values_{i}"][:, :, :written].index_fill_(0, numbers, 0)
        position.masked_fill_(rows, 0)
        state["slot"].masked_fill_(rows, 0)
        return state
