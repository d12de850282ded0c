"""Memories that are a matrix: the passes in chunks equal loops over time in float64, with their gradients."""

import pytest
import torch

from seqrl.models.sequence_encoders.matrix_memory import (
    decayed_attention,
    decayed_step,
    delta_attention,
    delta_step,
    exponential_attention,
    exponential_step,
)

B, H, N, P = 2, 3, 4, 5


def inputs(length, key_heads=H):
    g = torch.Generator().manual_seed(length)
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    q, k, v = draw(B, key_heads, length, N), draw(B, key_heads, length, N), draw(B, H, length, P)
    k = k / k.norm(dim=-1, keepdim=True)
    log_decay, gate, start = -draw(B, H, length).abs(), draw(B, H, length), draw(B, H, N, P)
    return [x.requires_grad_() for x in (q, k, v, log_decay, gate, start)]


def loop(update, q, k, v, log_decay, gate, state):
    outputs = []
    for t in range(v.shape[2]):
        alpha, write = log_decay[:, :, t, None, None].exp(), gate[:, :, t, None, None]
        state = update(state, k[:, :, t, :, None], v[:, :, t, None, :], alpha, write)
        outputs.append((q[:, :, t, :, None] * state).sum(-2))
    return torch.stack(outputs, dim=2), state


def decayed(state, k, v, alpha, write):
    """Dao & Gu (2024), equation 1, with scalar decay."""
    return alpha * state + k * v


def exponential(state, k, v, alpha, write):
    """Beck et al. (2024), equation 19, as it stands: nothing is divided."""
    return alpha * state + write.exp() * k * v


def delta(state, k, v, alpha, write):
    """Yang et al. (2024), equation 10, with the matrix of keys made."""
    beta = torch.sigmoid(write)
    return alpha * (torch.eye(N, dtype=k.dtype) - beta * k @ k.transpose(-1, -2)) @ state + beta * k * v


def run_decayed(q, k, v, log_decay, gate, start, size):
    return decayed_attention(q, k, v, log_decay, start, size)


def run_exponential(q, k, v, log_decay, gate, start, size):
    exponent = torch.full((B, H), 0.7, dtype=q.dtype)
    y, scale, (last, of_last) = exponential_attention(
        q, k, v, log_decay, gate, (start * (-exponent).exp()[..., None, None], exponent), size
    )
    return y * scale.exp().unsqueeze(-1), last * of_last.exp()[..., None, None]


def run_delta(q, k, v, log_decay, gate, start, size):
    return delta_attention(q, k, v, log_decay, gate.sigmoid(), start, size)


PAIRS = {"decayed": (run_decayed, decayed), "exponential": (run_exponential, exponential), "delta": (run_delta, delta)}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("length", "size"), [(1, 64), (7, 64), (12, 4), (23, 5), (23, 1), (40, 16)])
def test_chunks_equal_the_loop_with_gradients(name, length, size):
    run, update = PAIRS[name]
    values = inputs(length)
    results = [run(*values, size), loop(update, *values)]
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-11)
    used = values if name != "decayed" else [v for i, v in enumerate(values) if i != 4]
    grads = [torch.autograd.grad(y.sin().sum() + last.cos().sum(), used) for y, last in results]
    for got, expected in zip(*grads, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-10)


def test_heads_may_share_keys_and_queries():
    values = inputs(23, key_heads=1)
    torch.testing.assert_close(run_decayed(*values, 8)[0], loop(decayed, *values)[0], rtol=1e-10, atol=1e-11)


@torch.no_grad()
def test_steps_equal_the_chunks():
    q, k, v, log_decay, gate, start = inputs(9)
    passes = {
        "decayed": decayed_attention(q, k, v, log_decay, start, 4)[0],
        "delta": delta_attention(q, k, v, log_decay, gate.sigmoid(), start, 4)[0],
    }
    y, scale, _ = exponential_attention(q, k, v, log_decay, gate, (start, start.new_zeros(B, H)), 4)
    states = {"decayed": start, "delta": start, "exponential": (start, start.new_zeros(B, H))}
    for t in range(9):
        part = [x[:, :, t : t + 1] for x in (q, k, v, log_decay)]
        write = gate[:, :, t : t + 1]
        one, states["decayed"] = decayed_step(*part, states["decayed"])
        two, states["delta"] = delta_step(*part, write.sigmoid(), states["delta"])
        three, exponent, states["exponential"] = exponential_step(*part, write, states["exponential"])
        torch.testing.assert_close(one[:, :, 0], passes["decayed"][:, :, t])
        torch.testing.assert_close(two[:, :, 0], passes["delta"][:, :, t])
        torch.testing.assert_close(three[:, :, 0], y[:, :, t])
        torch.testing.assert_close(exponent[:, :, 0], scale[:, :, t])


@pytest.mark.parametrize("size", [-300.0, 300.0])
def test_exponents_of_any_size_neither_overflow_nor_vanish(size):
    """exp(300) is infinite in float32, exp(-300) zero; what is read after division by ``n`` is neither."""
    q, k, v, log_decay, gate, start = (x.detach().float() for x in inputs(40))
    v = torch.nn.functional.pad(v, (0, 1), value=1.0)
    start = torch.nn.functional.pad(start, (0, 1))
    gate = (gate + size).requires_grad_()
    y, scale, _ = exponential_attention(q, k, v, log_decay, gate, (start, start.new_zeros(B, H)), 16)
    out = y[..., :-1] / torch.maximum(y[..., -1].abs(), (-scale).exp()).unsqueeze(-1)
    assert out.isfinite().all()
    (gradient,) = torch.autograd.grad(out.square().sum(), gate)
    assert gradient.isfinite().all()
    if size > 0:
        exact = loop(exponential, *(x.double() for x in (q, k, v, log_decay, gate.detach(), start)))[0]
        exact = exact[..., :-1] / exact[..., -1:].abs().clamp(min=1.0)
        torch.testing.assert_close(out.detach().double(), exact, rtol=1e-2, atol=1e-3)
