"""Attention by PyTorch's flex_attention, which compiles any pattern into one kernel on a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from seqrl.core.registry import ATTENTIONS
from seqrl.models.sequence_encoders.attention.backends import Attention
from seqrl.models.sequence_encoders.attention.blocks import by_blocks, softmax_kernel
from seqrl.models.sequence_encoders.attention.pattern import Pattern

MIN_WIDTH = 16
"""Of a head, for the kernel."""


@functools.cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention)


def _in_tensors(pattern: Pattern, device: torch.device) -> Pattern:
    """Return the pattern with its numbers in tensors.

    The compiler makes a symbol of a number that is another one in another memory, and fails on it.
    """
    numbers = {name: getattr(pattern, name) for name in ("sink_bias", "logit_clip")}
    given: dict[str, Any] = {k: torch.full((), v, device=device) for k, v in numbers.items() if v is not None}
    return replace(pattern, **given)


@ATTENTIONS.register("flex")
class Flex(Attention):
    """Compiled flex_attention on a GPU. On a CPU, where that has no gradient, the same pattern in plain PyTorch."""

    cannot = frozenset({"dropout_attention"})

    def __init__(self, pattern: Pattern, dropout: float) -> None:
        super().__init__(pattern, dropout)
        self._mask: tuple[Any, BlockMask] | None = None

    def sequence(self, qkv: Float[Tensor, "B L 3 N D"], dropout: float) -> Float[Tensor, "B L N D"]:
        """Return the heads' outputs."""
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if qkv.is_cuda and q.shape[-1] >= MIN_WIDTH:
            y = self.flex(q, k, v, _compiled())
        else:
            y = by_blocks(q, k, v, self.pattern, softmax_kernel(self.pattern, dropout))
        return y.transpose(1, 2)

    def flex(
        self,
        q: Float[Tensor, "B N L D"],
        k: Float[Tensor, "B N L D"],
        v: Float[Tensor, "B N L D"],
        call: Callable[..., Any] = flex_attention,
    ) -> Float[Tensor, "B N L D"]:
        """Return ``call`` (flex_attention, compiled or not) of the pattern."""
        is_plain = self.pattern.has_plain_scores and not (self.pattern.num_sinks and self.pattern.sink_bias)
        adjusted = _in_tensors(self.pattern, q.device).adjusted  # flex_attention counts the arguments: no bound methods
        score_mod = None if is_plain else lambda score, b, h, i, j: adjusted(score, h, i, j)
        y: Tensor = call(q, k, v, score_mod=score_mod, block_mask=self._block_mask(q))
        return y

    def _block_mask(self, q: Tensor) -> BlockMask:
        """Return the mask, made anew only when the length or the device changes."""
        key = (q.shape[2], q.device, torch.is_inference_mode_enabled())
        if self._mask is None or self._mask[0] != key:
            heads = None if self.pattern.score is None else q.shape[1]
            visible = self.pattern.visible
            make = torch.compile(create_block_mask) if q.is_cuda else create_block_mask
            mask = make(lambda b, h, i, j: visible(h, i, j), None, heads, q.shape[2], q.shape[2], device=q.device)
            self._mask = (key, mask)
        return self._mask[1]
