"""The contract of an attention back-end, and those that need nothing but PyTorch."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from seqrl.core.errors import ConfigError
from seqrl.core.registry import ATTENTIONS
from seqrl.models.sequence_encoders.attention.blocks import by_blocks, sdpa_kernel, softmax_kernel
from seqrl.models.sequence_encoders.attention.pattern import Pattern
from seqrl.models.sequence_encoders.attention.ring import Slots

KEY = "algo.sequence_encoder.attention"


class Attention(ABC):
    """Computes attention by one pattern. Register a subclass with ``ATTENTIONS.register(name)``.

    Args:
        pattern: What is attended to.
        dropout: Of the attention weights, in training.

    Attributes:
        cannot: Features of patterns, or ``dropout_attention``, that the back-end lacks.
    """

    cannot: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, pattern: Pattern, dropout: float) -> None:
        self.pattern = pattern
        self.dropout = dropout

    def check(self, device: torch.device, *, is_half: bool) -> None:  # noqa: B027
        """Raise a ConfigError if it cannot train on this device, in half precision or not."""

    @abstractmethod
    def sequence(self, qkv: Float[Tensor, "B L 3 N D"], dropout: float) -> Float[Tensor, "B L N D"]:
        """Return the heads' outputs over whole sequences.

        Args:
            qkv: Queries, keys and values.
            dropout: Probability; 0 in evaluation.
        """

    def step(
        self,
        q: Float[Tensor, "B N 1 D"],
        keys: Float[Tensor, "B N S D"],
        values: Float[Tensor, "B N S D"],
        slots: Slots,
    ) -> Float[Tensor, "B N 1 D"]:
        """Return the heads' outputs of one more input, from a ring buffer."""
        if self.pattern.has_plain_scores:
            return scaled_dot_product_attention(q, keys, values, attn_mask=slots.mask)
        return softmax_kernel(self.pattern, 0.0)(q, keys, values, slots.q_pos, slots.k_pos)


@ATTENTIONS.register("sdpa")
class SDPA(Attention):
    """PyTorch's fused scaled dot product attention; windows block by block."""

    cannot = frozenset({"logit_clip", "score"})

    def sequence(self, qkv: Float[Tensor, "B L 3 N D"], dropout: float) -> Float[Tensor, "B L N D"]:
        """Return the heads' outputs."""
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return by_blocks(q, k, v, self.pattern, sdpa_kernel(self.pattern, dropout)).transpose(1, 2)


@ATTENTIONS.register("vanilla")
class Vanilla(Attention):
    """Scores and softmax one after the other, windows block by block: slower, and able to do everything."""

    def sequence(self, qkv: Float[Tensor, "B L 3 N D"], dropout: float) -> Float[Tensor, "B L N D"]:
        """Return the heads' outputs."""
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return by_blocks(q, k, v, self.pattern, softmax_kernel(self.pattern, dropout)).transpose(1, 2)


@ATTENTIONS.register("auto")
class Auto(Attention):
    """The fastest back-end that can do the pattern on the device at hand: flash, sdpa, flex or vanilla."""

    def __init__(self, pattern: Pattern, dropout: float) -> None:
        super().__init__(pattern, dropout)
        wanted = _features(pattern, dropout)
        classes = [ATTENTIONS.get(name) for name in ("flash", "sdpa", "flex", "vanilla")]
        self._able: list[Attention] = [c(pattern, dropout) for c in classes if not wanted & c.cannot]

    def chosen(self, device: torch.device, *, is_half: bool) -> Attention:
        """Return the back-end for a device and a precision."""
        for backend in self._able[:-1]:
            with contextlib.suppress(ConfigError):
                backend.check(device, is_half=is_half)
                return backend
        return self._able[-1]

    def sequence(self, qkv: Float[Tensor, "B L 3 N D"], dropout: float) -> Float[Tensor, "B L N D"]:
        """Return the heads' outputs."""
        return self.chosen(qkv.device, is_half=is_half(qkv)).sequence(qkv, dropout)

    def step(
        self,
        q: Float[Tensor, "B N 1 D"],
        keys: Float[Tensor, "B N S D"],
        values: Float[Tensor, "B N S D"],
        slots: Slots,
    ) -> Float[Tensor, "B N 1 D"]:
        """Return the heads' outputs of one more input."""
        return self.chosen(q.device, is_half=is_half(q)).step(q, keys, values, slots)


def is_half(x: Tensor) -> bool:
    """Tell whether a tensor is in half precision."""
    return x.dtype in (torch.float16, torch.bfloat16)


def _features(pattern: Pattern, dropout: float) -> set[str]:
    return pattern.features | ({"dropout_attention"} if dropout else set())


def make_attention(name: str, pattern: Pattern, dropout: float) -> Attention:
    """Return the back-end of that name.

    Raises:
        RegistryError: If there is none.
        ConfigError: If it cannot do what the pattern asks; the message says which can.
    """
    backend: Attention = ATTENTIONS.get(name)(pattern, dropout)
    wanted = _features(pattern, dropout)
    if lacking := sorted(wanted & backend.cannot):
        able = [n for n in ATTENTIONS.names() if not wanted & ATTENTIONS.get(n).cannot]
        raise ConfigError(f"{KEY}: {name!r} cannot do {', '.join(lacking)}; use {' or '.join(able)}")
    return backend
