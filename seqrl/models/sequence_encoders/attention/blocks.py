"""A windowed sequence as blocks, so that time and memory are linear in its length; and the two kernels for a block."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import dropout, pad, scaled_dot_product_attention

from seqrl.models.sequence_encoders.attention.pattern import Pattern

NOWHERE = 2**62
"""Position of a key that no query sees."""

MIN_BLOCK = 64
"""Queries per block of narrow windows: smaller ones waste the processor."""

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def by_blocks(
    q: Float[Tensor, "B N L D"],
    k: Float[Tensor, "B N L D"],
    v: Float[Tensor, "B N L D"],
    pattern: Pattern,
    kernel: Kernel,
) -> Float[Tensor, "B N L D"]:
    """Apply a kernel to the first window, and to blocks of later queries with the keys that they can see.

    Args:
        q: Queries of positions 0 to L - 1.
        k: Keys.
        v: Values.
        pattern: Whose window and sinks decide which keys belong to a block.
        kernel: Called with ``q (Y, N, Q, D)``, ``k`` and ``v (Y, N, K, D)`` and positions ``(X, Q)``, ``(X, K)``, where
            X is 1 or the number of blocks, and divides Y.
    """
    length, window = q.shape[2], pattern.window
    positions = torch.arange(length, device=q.device).unsqueeze(0)
    if length <= window:
        return kernel(q, k, v, positions, positions)
    first = positions[:, :window]
    head = kernel(q[:, :, :window], k[:, :, :window], v[:, :, :window], first, first)
    block = min(max(window, MIN_BLOCK), length - window)
    num_blocks = -(-(length - window) // block)
    surplus = num_blocks * block - (length - window)
    queries = pad(q[:, :, window:], (0, 0, 0, surplus)).unflatten(2, (num_blocks, block))
    keys, values = (_with_past(x, window, block, surplus, pattern.num_sinks) for x in (k, v))
    q_pos = torch.arange(window, window + num_blocks * block, device=q.device).view(num_blocks, block)
    k_pos = q_pos[:, :1] - window + 1 + torch.arange(block + window - 1, device=q.device)
    if pattern.num_sinks:
        k_pos = torch.where(k_pos < pattern.num_sinks, NOWHERE, k_pos)  # they stand in front
        k_pos = torch.cat([positions[:, : pattern.num_sinks].expand(num_blocks, -1), k_pos], dim=1)
    elif pattern.score is None:
        q_pos, k_pos = q_pos[:1], k_pos[:1]  # every block has the same mask
    tail = kernel(queries.transpose(1, 2).flatten(0, 1), keys, values, q_pos, k_pos)
    tail = tail.unflatten(0, (-1, num_blocks)).transpose(1, 2).flatten(2, 3)[:, :, : length - window]
    return torch.cat([head, tail], dim=2)


def _with_past(x: Tensor, window: int, block: int, surplus: int, num_sinks: int) -> Tensor:
    """Return ``(B blocks, N, K, D)``: the sinks, and each block of positions from ``window`` on with its past."""
    tail = pad(x[:, :, 1:], (0, 0, 0, surplus)).unfold(2, block + window - 1, block)
    blocks = tail.permute(0, 2, 1, 4, 3)
    if num_sinks:
        sinks = x[:, None, :, :num_sinks].expand(-1, blocks.shape[1], -1, -1, -1)
        blocks = torch.cat([sinks, blocks], dim=3)
    return blocks.flatten(0, 1)


def indices(num_heads: int, q_pos: Int[Tensor, "X Q"], k_pos: Int[Tensor, "X K"]) -> tuple[Tensor, Tensor, Tensor]:
    """Return head, query and key indices that broadcast to scores ``(..., X, N, Q, K)``."""
    head = torch.arange(num_heads, device=q_pos.device).view(-1, 1, 1)
    return head, q_pos[:, None, :, None], k_pos[:, None, None, :]


def softmax_kernel(pattern: Pattern, dropout_p: float) -> Kernel:
    """Return the kernel that computes scores and softmax one after the other, and can do everything."""

    def kernel(q: Tensor, k: Tensor, v: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        at = indices(q.shape[1], q_pos, k_pos)
        scores = torch.matmul(q, k.transpose(-1, -2)).float() / math.sqrt(q.shape[-1])
        if q_pos.shape[0] != q.shape[0]:  # len() would make it a constant of an exported graph
            scores = scores.unflatten(0, (-1, q_pos.shape[0]))
        weights = pattern.adjusted(scores, *at).masked_fill(~pattern.visible(*at), -math.inf).softmax(-1)
        weights = weights.reshape(*q.shape[:3], k.shape[2])
        return torch.matmul(dropout(weights, dropout_p).to(v.dtype), v)

    return kernel


def bias_of_past(pattern: Pattern, num_heads: int, k_pos: Int[Tensor, "B S"], position: Int[Tensor, " B"]) -> Tensor:
    """Return 0 where an earlier input is seen, and minus infinity elsewhere: ``(B, 1 or N, 1, S)``.

    Args:
        pattern: Of the attention.
        num_heads: Of each layer.
        k_pos: Position of the input in each slot once the present one is written.
        position: Of the present input.
    """
    head, query, key = indices(num_heads, position[:, None], k_pos)
    unseen = ~pattern.visible(head, query, key) | (key == query)
    return torch.zeros(unseen.shape, device=unseen.device).masked_fill(unseen, -math.inf)


def step_unwritten(
    pattern: Pattern,
    qkv: Float[Tensor, "B 3 N D"],
    keys: Float[Tensor, "B N S D"],
    values: Float[Tensor, "B N S D"],
    k_pos: Int[Tensor, "B S"],
    position: Int[Tensor, " B"],
    bias: Tensor,
) -> Float[Tensor, "B N 1 D"]:
    """Return the heads' outputs of one more input from a ring buffer into which its key is not written yet.

    Equal to writing and attending then; nothing of the size of the ring is copied.

    Args:
        pattern: Of the attention.
        qkv: Query, key and value of the present input.
        keys: Ring buffer, as the last step left it.
        values: Likewise.
        k_pos: Position of the input in each slot once it is written.
        position: Of the present input.
        bias: What :func:`bias_of_past` returns.
    """
    q, k, v = qkv.unsqueeze(3).unbind(1)
    q = q / math.sqrt(q.shape[-1])
    head, query, key = indices(keys.shape[1], position[:, None], k_pos)
    past = pattern.adjusted(torch.matmul(q, keys.transpose(-1, -2)).float(), head, query, key) + bias
    own = pattern.adjusted((q * k).sum(-1, keepdim=True).float(), head, query, query)
    weights = torch.cat([past, own], dim=-1).softmax(-1).to(v.dtype)
    return torch.matmul(weights[..., :-1], values) + weights[..., -1:] * v


def sdpa_kernel(pattern: Pattern, dropout_p: float) -> Kernel:
    """Return PyTorch's fused kernel, for patterns whose scores are plain."""

    def kernel(q: Tensor, k: Tensor, v: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        if q_pos is k_pos and not (pattern.num_sinks and pattern.sink_bias):  # the first window
            return scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
        mask = additive_mask(pattern, q, q_pos, k_pos)
        if len(mask) > 1:
            mask = mask.repeat(len(q) // len(mask), 1, 1, 1)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)

    return kernel


def additive_mask(pattern: Pattern, q: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return what SDPA takes as a mask ``(X, 1, Q, K)``: True where visible, or the bias if the sinks have one."""
    head, query, key = indices(1, q_pos, k_pos)
    visible = pattern.visible(head, query, key)
    if not (pattern.num_sinks and pattern.sink_bias):
        return visible
    bias = torch.where(key < pattern.num_sinks, pattern.sink_bias, 0.0)
    return bias.masked_fill(~visible, -math.inf).to(q.dtype)
