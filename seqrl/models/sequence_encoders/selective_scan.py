"""The selective scan of Mamba in plain PyTorch: exact, linear in the length, and light on memory."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

_CHUNK_ELEMENTS = {"cpu": 2**19}
_CHUNK_ELEMENTS_ELSEWHERE = 2**25


def selective_scan(
    u: Float[Tensor, "L B D"],
    delta: Float[Tensor, "L B D"],
    a: Float[Tensor, "N D"],
    b: Float[Tensor, "L B N"],
    c: Float[Tensor, "L B N"],
    start: Float[Tensor, "B N D"],
    chunk_steps: int | None = None,
) -> tuple[Float[Tensor, "L B D"], Float[Tensor, "B N D"]]:
    r"""Return the outputs of a diagonal state space model whose coefficients depend on the input, and its last state.

    Computes :math:`h_t = e^{\Delta_t A} h_{t-1} + \Delta_t u_t B_t`, :math:`y_t = C_t \cdot h_t`, step by step. Only
    the states between chunks are kept; the backward pass computes those within a chunk again. So memory grows by
    ``N D / chunk_steps`` numbers per step, not by ``N D``.

    Args:
        u: Inputs.
        delta: Step sizes, positive.
        a: Decay rates, negative.
        b: How inputs enter the state.
        c: How the state becomes output.
        start: State before the first step.
        chunk_steps: Steps per chunk; None keeps a chunk within the cache of a CPU.

    Source: Gu & Dao (2023), Mamba, arXiv 2312.00752, algorithm 2.
    """
    if chunk_steps is None:
        budget = _CHUNK_ELEMENTS.get(u.device.type, _CHUNK_ELEMENTS_ELSEWHERE)
        chunk_steps = max(4, min(256, budget // max(start.numel(), 1)))
    apply: Any = _SelectiveScan.apply
    y, last = apply(u, delta, a, b, c, start, min(chunk_steps, len(u)))
    return y, last


def scan_step(
    u: Float[Tensor, "B D"],
    delta: Float[Tensor, "B D"],
    a: Float[Tensor, "N D"],
    b: Float[Tensor, "B N"],
    c: Float[Tensor, "B N"],
    state: Float[Tensor, "B N D"],
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B N D"]]:
    """Return the output and the next state of one step of :func:`selective_scan`."""
    decay = torch.mul(delta.unsqueeze(1), a).exp_()
    state = torch.addcmul((delta * u).unsqueeze(1) * b.unsqueeze(2), decay, state)
    return torch.matmul(c.unsqueeze(1), state).squeeze(1), state


def _states(start: Tensor, u: Tensor, delta: Tensor, a: Tensor, b: Tensor, decay: Tensor, states: Tensor) -> Tensor:
    """Fill ``decay`` and ``states`` ``(K, B, N, D)`` of one chunk, and return its last state (a view)."""
    torch.mul(delta.unsqueeze(2), a, out=decay).exp_()
    torch.mul((delta * u).unsqueeze(2), b.unsqueeze(3), out=states)
    state = start
    for decay_t, state_t in zip(decay.unbind(0), states.unbind(0), strict=True):
        state = state_t.addcmul_(decay_t, state)
    return state


class _SelectiveScan(torch.autograd.Function):
    """Buffers for one chunk are made once: fresh memory for every chunk would cost more than the arithmetic."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, start: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        y = torch.empty_like(u)
        decay, states = u.new_empty(2, chunk, *start.shape)
        starts = [start]
        for i in range(0, len(u), chunk):
            at = slice(i, i + chunk)
            k = len(u[at])
            last = _states(starts[-1], u[at], delta[at], a, b[at], decay[:k], states[:k])
            starts.append(last.clone())
            torch.matmul(c[at].unsqueeze(2), states[:k], out=y[at].unsqueeze(2))
        ctx.save_for_backward(u, delta, a, b, c, *starts[:-1])
        ctx.chunk = chunk
        return y, starts[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        u, delta, a, b, c, *starts = ctx.saved_tensors
        grads = tuple(torch.empty_like(x) for x in (u, delta, b, c))
        grad_a = torch.zeros_like(a)
        buffers = u.new_empty(4, ctx.chunk, *starts[0].shape)
        grad_state = grad_last
        for i in reversed(range(len(starts))):
            at = slice(i * ctx.chunk, (i + 1) * ctx.chunk)
            inputs = (u[at], delta[at], b[at], c[at])
            out = tuple(g[at] for g in grads)
            work = buffers[:, : len(inputs[0])]
            grad_state = _chunk_backward(starts[i], inputs, a, grad_y[at], grad_state, work, out, grad_a)
        grad_u, grad_delta, grad_b, grad_c = grads
        return grad_u, grad_delta, grad_a, grad_b, grad_c, grad_state, None


def _chunk_backward(
    start: Tensor,
    inputs: tuple[Tensor, ...],
    a: Tensor,
    grad_y: Tensor,
    grad_last: Tensor,
    buffers: Tensor,
    out: tuple[Tensor, ...],
    grad_a: Tensor,
) -> Tensor:
    """Write one chunk's gradients to ``out``, add to ``grad_a``, and return the gradient of its first state."""
    u, delta, b, c = inputs
    grad_u, grad_delta, grad_b, grad_c = out
    decay, states, grad_states, work = buffers
    _states(start, u, delta, a, b, decay, states)
    torch.sum(torch.mul(states, grad_y.unsqueeze(2), out=work), 3, out=grad_c)
    torch.mul(grad_y.unsqueeze(2), c.unsqueeze(3), out=grad_states)
    decays, steps = decay.unbind(0), grad_states.unbind(0)
    steps[-1].add_(grad_last)
    for t in range(len(steps) - 1, 0, -1):
        steps[t - 1].addcmul_(decays[t], steps[t])
    grad_start: Tensor = decays[0] * steps[0]
    torch.sum(torch.mul(grad_states, (delta * u).unsqueeze(2), out=work), 3, out=grad_b)
    grad_drive = torch.matmul(b.unsqueeze(2), grad_states).squeeze(2)
    grad_states.mul_(decay)  # from here on: the gradient of the exponents
    grad_states[1:].mul_(states[:-1])
    grad_states[0].mul_(start)
    torch.sum(torch.mul(grad_states, a, out=work), 2, out=grad_delta)
    grad_delta.addcmul_(grad_drive, u)
    torch.mul(grad_drive, delta, out=grad_u)
    grad_a.add_(grad_states.mul_(delta.unsqueeze(2)).sum((0, 1)))
    return grad_start
