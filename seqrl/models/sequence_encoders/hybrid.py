"""Layers of different memories in one stack: attention recalls exactly within its window, the others for longer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqrl.core.errors import ConfigError, did_you_mean
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders.attention import Pattern, RingStep, empty_ring, make_attention
from seqrl.models.sequence_encoders.base import State
from seqrl.models.sequence_encoders.gated_deltanet import GatedDeltaNetMixer
from seqrl.models.sequence_encoders.layers import Layer, Mixer, Residual, Stack
from seqrl.models.sequence_encoders.lru import LRUMixer
from seqrl.models.sequence_encoders.mamba2 import Mamba2Mixer
from seqrl.models.sequence_encoders.min_gru import MinGRUMixer
from seqrl.models.sequence_encoders.mlstm import MLSTMMixer
from seqrl.models.sequence_encoders.positions import rotary_angles
from seqrl.models.sequence_encoders.transformer import AttentionHeads, TransformerLayer

ROTARY_BASE = 10_000.0


class AttentionLayer(Layer):
    """A layer of the Transformer with rotary positions, which also acts: keys and values are in a ring buffer."""

    defers_writes = False

    def __init__(
        self, d_model: int, *, num_heads: int, d_ff: int, window_steps: int, norm: str, dropout: float
    ) -> None:
        super().__init__()
        self.num_heads, self.d_head = num_heads, d_model // num_heads
        heads = AttentionHeads(d_model, num_heads, nn.Linear, 0.0, False)
        self.inner = TransformerLayer(heads, d_model, d_ff, nn.Linear, "gelu", norm, dropout, False)
        self.pattern = Pattern(window_steps, 0, 0.0, None, None, self.d_head)
        self.attention = make_attention("auto", self.pattern, 0.0)

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None
    ) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return outputs, and the next state if one was given."""
        rotation = rotary_angles(step, self.d_head, ROTARY_BASE)
        if state is None:
            y: Tensor = self.inner(x, rotation, lambda qkv: self.attention.sequence(qkv, 0.0))
            return y, None
        outputs = []
        for t in range(x.shape[1]):
            turned = tuple(part[:, t : t + 1] for part in rotation)
            ring = RingStep(self.attention, state, x, defers_writes=self.defers_writes)
            attend = functools.partial(ring.attend, keys="keys", values="values")
            outputs.append(self.inner(x[:, t : t + 1], turned, attend))
            state = ring.after()
        return torch.cat(outputs, dim=1), state

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> State:
        """Return an empty ring buffer."""
        shape = (num_rows, self.num_heads, self.d_head)
        return empty_ring(self.attention, shape, "keys", "values", device=device, dtype=dtype)


@SEQUENCE_ENCODERS.register("hybrid")
class Hybrid(Stack):
    """One layer for each name in ``layers``, all of the same width (after Lieber et al., 2024, Jamba, 2403.19887).

    Attention sees ``attention_window`` inputs, by default ``window_steps``; the others begin with time scales up to
    ``window_steps``.
    """

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        layers: Sequence[str] = ("mamba2", "attention", "mamba2"),
        d_model: int = 256,
        num_heads: int = 8,
        d_state: int = 64,
        d_conv: int = 4,
        expand: int = 2,
        d_ff: int = 1024,
        attention_window: int | None = None,
        dropout: float = 0.0,
        norm: str = "layer",
    ) -> None:
        matrix = {
            "num_heads": num_heads, "d_state": d_state, "d_conv": d_conv, "expand": expand, "window_steps": window_steps
        }  # fmt: skip
        mixers: dict[str, Callable[[], Mixer]] = {
            "gated_deltanet": lambda: GatedDeltaNetMixer(d_model, **matrix),
            "lru": lambda: LRUMixer(d_model, expand * d_model, window_steps),
            "mamba2": lambda: Mamba2Mixer(d_model, **matrix),
            "min_gru": lambda: MinGRUMixer(d_model, expand * d_model, window_steps),
            "mlstm": lambda: MLSTMMixer(d_model, **matrix),
        }

        def make(name: str) -> Layer:
            if name == "attention":
                seen = attention_window or window_steps
                return AttentionLayer(
                    d_model, num_heads=num_heads, d_ff=d_ff, window_steps=seen, norm=norm, dropout=dropout
                )
            if name not in mixers:
                legal = sorted([*mixers, "attention"])
                raise ConfigError(f"unknown layer {name!r}{did_you_mean(name, legal) or ';'} {', '.join(legal)}")
            return Residual(mixers[name](), d_model, norm=norm, dropout=dropout)

        super().__init__(d_input, window_steps, d_model, [make(name) for name in layers], norm)

    def check(self, device: torch.device, *, is_half: bool) -> None:
        """Raise a ConfigError if attention cannot train there."""
        for layer in self.layers:
            if isinstance(layer, AttentionLayer):
                layer.attention.check(device, is_half=is_half)
