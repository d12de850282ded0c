"""Banded causal attention on PyTorch's SDPA, over whole sequences and over a ring buffer."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention


def banded_attention(
    q: Float[Tensor, "B N L D"],
    k: Float[Tensor, "B N L D"],
    v: Float[Tensor, "B N L D"],
    window: int,
    dropout: float = 0.0,
) -> Float[Tensor, "B N L D"]:
    """Let position t attend to ``t - window + 1 .. t``.

    Up to ``window`` positions this is plain causal attention. The rest is computed in blocks of ``window`` queries
    against the block's keys and those of the block before, so time and memory are linear in the length.
    """
    length = q.shape[2]
    if length <= window:
        return scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
    head = scaled_dot_product_attention(
        q[:, :, :window], k[:, :, :window], v[:, :, :window], is_causal=True, dropout_p=dropout
    )
    block = min(window, length - window)
    num_blocks = -(-(length - window) // block)
    surplus = num_blocks * block - (length - window)
    queries = pad(q[:, :, window:], (0, 0, 0, surplus)).unflatten(2, (num_blocks, block))
    keys, values = (_blocks_with_past(x, window, block, num_blocks, surplus) for x in (k, v))
    mask = _band(block, block + window - 1, window, q.device)
    tail = scaled_dot_product_attention(
        queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask, dropout_p=dropout
    )
    tail = tail.transpose(1, 2).flatten(2, 3)[:, :, : length - window]
    return torch.cat([head, tail], dim=2)


def _blocks_with_past(x: Tensor, window: int, block: int, num_blocks: int, surplus: int) -> Tensor:
    """Return ``(B, N, blocks, block + window - 1, D)``: each block of positions from ``window`` on, with its past."""
    tail = pad(x[:, :, 1:], (0, 0, 0, surplus))
    return tail.unfold(2, block + window - 1, block)[:, :, :num_blocks].transpose(-1, -2)


def _band(num_queries: int, num_keys: int, window: int, device: torch.device) -> Bool[Tensor, "Q K"]:
    """Return which keys each query of a block sees; the last key is the last query's own position."""
    lag = torch.arange(num_queries, device=device)[:, None] - torch.arange(num_keys, device=device)[None]
    lag = lag + (num_keys - num_queries)
    return (lag >= 0) & (lag < window)


def ring_attention(
    q: Float[Tensor, "B N 1 D"],
    keys: Float[Tensor, "B N W D"],
    values: Float[Tensor, "B N W D"],
    valid: Bool[Tensor, "B W"],
) -> Float[Tensor, "B N 1 D"]:
    """Attend to the filled slots of a ring buffer; the order of the slots does not matter."""
    return scaled_dot_product_attention(q, keys, values, attn_mask=valid[:, None, None, :])
