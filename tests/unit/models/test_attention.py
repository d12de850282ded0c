"""Banded attention equals a dense float64 softmax, and costs in proportion to the length."""

import math

import numpy as np
import pytest
import torch

from seqrl.models.sequence_encoders.attention import banded_attention, ring_attention

PAIRS = [
    (1, 1), (1, 5), (2, 1), (7, 1), (5, 8), (8, 8), (9, 8), (15, 8), (16, 8), (17, 8), (24, 8), (25, 8), (31, 8),
    (10, 3), (11, 3), (12, 3), (13, 3), (4, 3), (6, 2), (7, 2), (50, 7), (40, 39), (40, 40), (40, 41), (33, 16),
]  # fmt: skip


def _inputs(length, *, heads=2, width=4, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [2 * torch.randn(3, heads, length, width, generator=generator, dtype=dtype) for _ in range(3)]


def _dense(q, k, v, window):
    """Softmax over scores of all pairs, written out in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    scores = torch.einsum("bnqd,bnkd->bnqk", q, k) / math.sqrt(q.shape[-1])
    t = torch.arange(q.shape[2])
    seen = (t[None] <= t[:, None]) & (t[None] > t[:, None] - window)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True)) * seen
    return torch.einsum("bnqk,bnkd->bnqd", weights / weights.sum(-1, keepdim=True), v)


@pytest.mark.parametrize(("length", "window"), PAIRS)
def test_banded_equals_dense(length, window):
    q, k, v = _inputs(length)
    got = banded_attention(q, k, v, window)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), _dense(q, k, v, window), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("length", "window"), PAIRS)
def test_gradients_equal_dense(length, window):
    fast, slow = ([x.requires_grad_() for x in _inputs(length, dtype=torch.float64)] for _ in range(2))
    weight = torch.randn(3, 2, length, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (banded_attention(*fast, window) * weight).sum().backward()
    (_dense(*slow, window) * weight).sum().backward()
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("length", "window"), [(20, 6), (13, 4), (9, 8)])
def test_only_the_window_is_seen(length, window):
    """Changing input t moves outputs t .. t + window - 1, and no other by a single bit."""
    q, k, v = _inputs(length)
    q = q / 4
    before = banded_attention(q, k, v, window)
    for t in range(length):
        k2, v2 = k.clone(), v.clone()
        k2[:, :, t], v2[:, :, t] = -k2[:, :, t], 1e3
        moved = (banded_attention(q, k2, v2, window) != before).flatten(0, 1).transpose(0, 1).flatten(1)
        inside = range(t, min(t + window, length))
        assert np.flatnonzero(moved.any(-1).numpy()).tolist() == list(inside)
        assert moved[list(inside)].all()


def test_window_of_one_returns_the_values():
    q, k, v = _inputs(9)
    torch.testing.assert_close(banded_attention(q, k, v, 1), v)


def test_dropout_is_applied_to_the_weights():
    torch.manual_seed(0)
    q, k, v = _inputs(12, seed=3)
    kept, dropped = banded_attention(q, k, v, 4, 0.0), banded_attention(q, k, v, 4, 0.9)
    assert not torch.allclose(kept[:, :, :4], dropped[:, :, :4])
    assert not torch.allclose(kept[:, :, 4:], dropped[:, :, 4:])


def test_cost_is_linear_in_the_length(monkeypatch):
    """Counted as pairs of a query and a key that are multiplied, since clocks depend on the neighbours."""
    from seqrl.models.sequence_encoders import attention

    pairs = []

    def counting(q, k, v, **options):
        pairs.append(math.prod(q.shape[1:-1]) * k.shape[-2])
        return original(q, k, v, **options)

    original = attention.scaled_dot_product_attention
    monkeypatch.setattr(attention, "scaled_dot_product_attention", counting)

    def work(length):
        pairs.clear()
        attention.banded_attention(*_inputs(length, heads=1, width=4), 64)
        return sum(pairs)

    assert 0 < work(4096) <= 4.2 * work(1024)
    assert work(4096) <= 2.1 * 4096 * 64


@pytest.mark.parametrize("filled", [1, 3, 6])
def test_ring_sees_filled_slots_only_in_any_order(filled):
    (q, _, _), (_, k, v) = _inputs(1), _inputs(6, seed=1)
    valid = torch.zeros(3, 6, dtype=torch.bool)
    valid[:, :filled] = True
    expected = _dense(
        torch.cat([torch.zeros(3, 2, filled - 1, 4), q], dim=2), k[:, :, :filled], v[:, :, :filled], filled
    )[:, :, -1:]
    k[:, :, filled:], v[:, :, filled:] = 1e4, -1e4
    torch.testing.assert_close(ring_attention(q, k, v, valid).double(), expected, rtol=1e-4, atol=1e-5)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    shuffled = ring_attention(q, k[:, :, order], v[:, :, order], valid[:, order])
    torch.testing.assert_close(shuffled.double(), expected, rtol=1e-4, atol=1e-5)


def test_ring_validity_is_per_row():
    (q, _, _), (_, k, v) = _inputs(1), _inputs(2, seed=1)
    valid = torch.tensor([[True, False], [False, True], [True, True]])
    out = ring_attention(q, k, v, valid)
    torch.testing.assert_close(out[0, :, 0], v[0, :, 0])
    torch.testing.assert_close(out[1, :, 0], v[1, :, 1])
    assert not torch.allclose(out[2, :, 0], v[2, :, 0])
