"""The parallel scan of linear recurrences in plain PyTorch: exact, and in few large steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_STEPS = 16


def linear_scan(decay: Tensor, added: Tensor, start: Tensor) -> Tensor:
    r"""Return all states ``(B, L, D)`` of a recurrence whose coefficients do not depend on its state.

    Computes :math:`h_t = a_t h_{t-1} + b_t` for every number on its own. Chunks of sixteen steps run side by side, each
    from zero, then their ends are a recurrence of the same kind, sixteen times shorter, and so on: 4,096 steps take
    three times sixteen operations. Only products of decays are formed, never quotients nor logarithms, so nothing
    overflows as long as no decay is above 1 in size, and no sign is forbidden. The gradient is the same scan,
    backwards.

    Args:
        decay: ``(B, L, D)``, real or complex, at most 1 in size.
        added: ``(B, L, D)``.
        start: State before the first step, ``(B, D)``.

    Source: Blelloch (1990), Prefix sums and their applications; Martin & Cundy (2018), arXiv 1709.04057, section 2.
    """
    apply: Any = _LinearScan.apply
    states: Tensor = apply(decay, added, start)
    return states


def _scan(decay: Tensor, added: Tensor, start: Tensor) -> Tensor:
    rows, length, width = added.shape
    if length <= 2 * CHUNK_STEPS:
        return _loop(decay, added, start)[0]
    padding = -length % CHUNK_STEPS
    if padding:
        decay = torch.cat([decay, decay.new_ones(rows, padding, width)], dim=1)
        added = torch.cat([added, added.new_zeros(rows, padding, width)], dim=1)
    decay, added = (v.unflatten(1, (-1, CHUNK_STEPS)) for v in (decay, added))
    local, reach = _loop(decay, added)
    assert reach is not None
    ends = _scan(reach[:, :, -1], local[:, :, -1], start)
    before = torch.cat([start.unsqueeze(1), ends[:, :-1]], dim=1)
    return local.addcmul_(reach, before.unsqueeze(2)).flatten(1, 2)[:, :length]


def _loop(decay: Tensor, added: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Run along the last dimension but one; without a start from zero, then return the products of decays as well."""
    states = torch.empty_like(added, memory_format=torch.contiguous_format)
    reach = None if start is not None else torch.empty_like(states)
    state, product = start, None
    for t in range(added.shape[-2]):
        out, decay_t, added_t = states[..., t, :], decay[..., t, :], added[..., t, :]
        state = out.copy_(added_t) if state is None else torch.addcmul(added_t, decay_t, state, out=out)
        if reach is not None:
            out = reach[..., t, :]
            product = out.copy_(decay_t) if product is None else torch.mul(product, decay_t, out=out)
    return states, reach


class _LinearScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, decay: Tensor, added: Tensor, start: Tensor) -> Tensor:
        states = _scan(decay, added, start)
        ctx.save_for_backward(decay, start, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decay, start, states = ctx.saved_tensors
        decay = decay.conj()
        later = torch.cat([decay[:, 1:], torch.zeros_like(decay[:, :1])], dim=1)
        grad_added = _scan(later.flip(1), grad.flip(1), torch.zeros_like(start)).flip(1)
        before = torch.cat([start.unsqueeze(1), states[:, :-1]], dim=1)
        return grad_added * before.conj(), grad_added, decay[:, 0] * grad_added[:, 0]
