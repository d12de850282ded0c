"""Attention by the package flash-attn, on NVIDIA GPUs in half precision (Dao, 2023, arXiv 2307.08691)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.core.errors import ConfigError
from seqrl.core.registry import ATTENTIONS
from seqrl.models.sequence_encoders.attention.backends import KEY, Attention, is_half, make_attention
from seqrl.models.sequence_encoders.attention.pattern import Pattern
from seqrl.models.sequence_encoders.attention.ring import Slots
from seqrl.models.sequence_encoders.kernels import imported_kernel

MIN_CAPABILITY = (8, 0)
MAX_WIDTH = 256


def flash_package() -> Any:
    """Return the package flash-attn, or None where it cannot be imported."""
    return imported_kernel("flash_attn")


def flash_problem(device: torch.device) -> str | None:
    """Return why flash-attn cannot be used on a device, or None."""
    if device.type != "cuda":
        return f"it needs an NVIDIA GPU, and the device is {device.type!r}"
    if flash_package() is None:
        return "the package flash-attn cannot be imported (pip install --no-build-isolation 'seqrl[flash]')"
    if torch.cuda.get_device_capability(device) < MIN_CAPABILITY:
        return "it needs an NVIDIA GPU of compute capability 8.0 or more"
    return None


@ATTENTIONS.register("flash")
class Flash(Attention):
    """The package flash-attn: packed queries, keys and values in training, its cache kernel in acting.

    Without gradients, float32 and other devices, as after a move to another machine, take PyTorch's kernels instead.
    """

    cannot = frozenset({"num_sinks", "score"})

    def __init__(self, pattern: Pattern, dropout: float) -> None:
        super().__init__(pattern, dropout)
        # Not at the import, and not in vain: it brings in the compiler, which takes a second.
        is_possible = torch.cuda.is_available()
        self._problem = torch.compiler.assume_constant_result(flash_problem) if is_possible else flash_problem

    def check(self, device: torch.device, *, is_half: bool) -> None:
        """Raise a ConfigError without the package, a GPU that it supports, and half precision."""
        problem = self._problem(device)
        if problem is None and not is_half:
            problem = "it computes in half precision only: set train.precision to 'bf16'"
        if problem is None and (self.pattern.head_width or 0) > MAX_WIDTH:
            problem = f"a head is {self.pattern.head_width} wide, and {MAX_WIDTH} is the most: raise num_heads"
        if problem is None and self.pattern.logit_clip and self.dropout:
            problem = "it cannot do logit_clip and dropout_attention together"
        if problem is not None:
            raise ConfigError(f"{KEY}: 'flash' cannot be used: {problem}; or use 'auto'")

    def sequence(self, qkv: Float[Tensor, "B L 3 N D"], dropout: float) -> Float[Tensor, "B L N D"]:
        """Return the heads' outputs."""
        if not torch.is_grad_enabled() and (not is_half(qkv) or self._problem(qkv.device) is not None):
            return make_attention("auto", self.pattern, dropout).sequence(qkv, dropout)
        self.check(qkv.device, is_half=is_half(qkv))
        y: Tensor = flash_package().flash_attn_qkvpacked_func(
            qkv,
            dropout_p=dropout,
            causal=True,
            window_size=(self.pattern.window - 1, 0) if qkv.shape[1] > self.pattern.window else (-1, -1),
            softcap=self.pattern.logit_clip or 0.0,
        )
        return y

    def step(
        self,
        q: Float[Tensor, "B N 1 D"],
        keys: Float[Tensor, "B N S D"],
        values: Float[Tensor, "B N S D"],
        slots: Slots,
    ) -> Float[Tensor, "B N 1 D"]:
        """Return the heads' outputs of one more input; the filled slots come first, so their number says it all."""
        if not is_half(q) or self._problem(q.device) is not None:
            return super().step(q, keys, values, slots)
        filled = (slots.q_pos[:, 0] + 1).clamp(max=self.pattern.window).int()
        y: Tensor = flash_package().flash_attn_with_kvcache(
            q.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            cache_seqlens=filled,
            softcap=self.pattern.logit_clip or 0.0,
        )
        return y.transpose(1, 2)
