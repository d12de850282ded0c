r"""Memories that are a matrix per head, ``S <- decay S + k v^T``, read as ``q S``: chunk by chunk, and step by step.

Within a chunk every step reads the others by a masked product, as attention does; between chunks the matrix is handed
on. Both are exact, and the cost is linear in the length. Shapes: ``q`` and ``k`` are ``(B, H, L, N)``, where H may be
1, ``v`` is ``(B, H, L, P)``, decays and gates are ``(B, H, L)``, a state is ``(B, H, N, P)``.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

CHUNK_STEPS = 64


class _Weights(NamedTuple):
    """How much things count, per chunk; of C chunks of K steps.

    Attributes:
        within: Of step s at step t of the same chunk, ``(B, H, C, K, K)``, zero where s is later.
        reach: Of the chunk's first state at each step, ``(B, H, C, K)``.
        enter: Of each step in the chunk's last state, ``(B, H, C, K)``.
        carry: Of the chunk's first state in its last, ``(B, H, C)``.
    """

    within: Tensor
    reach: Tensor
    enter: Tensor
    carry: Tensor


def decayed_attention(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, start: Tensor, chunk_steps: int = CHUNK_STEPS
) -> tuple[Tensor, Tensor]:
    r"""Return :math:`y_t = q_t S_t` with :math:`S_t = e^{g_t} S_{t-1} + k_t^\top v_t`, and the last state.

    Source: Dao & Gu (2024), Transformers are SSMs, arXiv 2405.21060, section 6.
    """
    length, size = v.shape[2], min(chunk_steps, v.shape[2])
    q, k, v = (_chunked(x, size, 3) for x in (q, k, v))
    weights, _ = _decays(_chunked(log_decay, size, 2))
    added = _entered(k, weights) @ v
    starts, last = _handed_on(added, weights.carry, start)
    return _read(q, k, v, weights, starts)[:, :, :length], last


def decayed_step(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and the next state of one step of :func:`decayed_attention`; L is 1."""
    state = log_decay.unsqueeze(-1).exp() * state + k.transpose(-1, -2) * v
    return q @ state, state


def exponential_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    log_input: Tensor,
    start: tuple[Tensor, Tensor],
    chunk_steps: int = CHUNK_STEPS,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    r"""Like :func:`decayed_attention` with :math:`S_t = e^{g_t} S_{t-1} + e^{i_t} k_t^\top v_t`, free of overflow.

    What is returned and kept is divided by :math:`e^{m_t}`, where :math:`m_t` is the largest exponent of all that is in
    the memory, and at least 0.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        log_decay: At most 0.
        log_input: Exponents of what is added, of any size.
        start: State, divided likewise, and its exponent ``(B, H)``.
        chunk_steps: Steps per chunk.

    Returns:
        Outputs, their exponents ``(B, H, L)``, and the last state with its exponent.

    Source: Beck et al. (2024), xLSTM, arXiv 2405.04517, equations 19 to 27 and appendix A.
    """
    length, size = v.shape[2], min(chunk_steps, v.shape[2])
    q, k, v = (_chunked(x, size, 3) for x in (q, k, v))
    weights, exponents = _decays(_chunked(log_decay, size, 2))
    log_input = _chunked(log_input, size, 2, value=-torch.inf)
    total, to_end = exponents[..., -1:], exponents[..., -1:] - exponents + log_input
    within = _lower(exponents.unsqueeze(-1) - exponents.unsqueeze(-2) + log_input.unsqueeze(-2))
    with torch.no_grad():  # the results do not depend on the scale
        before, after = _scales(total.squeeze(-1), to_end.amax(-1), start[1])
        scale = torch.maximum(within.amax(-1), exponents + before.unsqueeze(-1)).clamp(min=0.0)
    weights = _Weights(
        within=(within - scale.unsqueeze(-1)).exp(),
        reach=(exponents + before.unsqueeze(-1) - scale).exp(),
        enter=(to_end - after.unsqueeze(-1)).exp(),
        carry=(total.squeeze(-1) + before - after).exp(),
    )
    starts, last = _handed_on(_entered(k, weights) @ v, weights.carry, start[0])
    y = _read(q, k, v, weights, starts)[:, :, :length]
    return y, scale.flatten(2)[:, :, :length], (last, after[:, :, -1])


def exponential_step(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, log_input: Tensor, state: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Return what :func:`exponential_attention` does, of one step; L is 1."""
    before = state[1].unsqueeze(-1)
    scale = torch.maximum(log_decay + before, log_input).clamp(min=0.0).detach()
    keep, write = (log_decay + before - scale).exp(), (log_input - scale).exp()
    matrix = keep.unsqueeze(-1) * state[0] + write.unsqueeze(-1) * k.transpose(-1, -2) * v
    return q @ matrix, scale, (matrix, scale.squeeze(-1))


def delta_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    start: Tensor,
    chunk_steps: int = CHUNK_STEPS,
) -> tuple[Tensor, Tensor]:
    r"""Return :math:`y_t = q_t S_t` of the gated delta rule, and the last state.

    :math:`S_t = e^{g_t} (I - \beta_t k_t^\top k_t) S_{t-1} + \beta_t k_t^\top v_t`: what the memory holds under a key
    is replaced, by a share beta. That is :func:`decayed_attention` of the corrections
    :math:`u_t = \beta_t (v_t - e^{g_t} k_t S_{t-1})` in place of the values; those of a chunk solve a triangular
    system, which is linear in the chunk's first state, so it is solved for all chunks at once (the WY form).

    Source: Yang et al. (2024), Gated Delta Networks, arXiv 2412.06464, section 3.3.
    """
    length, size = v.shape[2], min(chunk_steps, v.shape[2])
    q, k, v = (_chunked(x, size, 3) for x in (q, k, v))
    beta = _chunked(beta, size, 2).unsqueeze(-1)
    weights, _ = _decays(_chunked(log_decay, size, 2))
    system = beta * (k @ k.transpose(-1, -2)) * weights.within  # of which the part below the diagonal is read
    known = torch.cat([beta * v, beta * weights.reach.unsqueeze(-1) * k], dim=-1)
    solved = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
    values, erased = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
    entered, state = _entered(k, weights), start
    starts, corrections = [], []
    for c in range(v.shape[2]):
        starts.append(state)
        corrections.append(values[:, :, c] - erased[:, :, c] @ state)
        state = weights.carry[:, :, c, None, None] * state + entered[:, :, c] @ corrections[-1]
    y = _read(q, k, torch.stack(corrections, dim=2), weights, torch.stack(starts, dim=2))
    return y[:, :, :length], state


def delta_step(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the output and the next state of one step of :func:`delta_attention`; L is 1."""
    state = log_decay.unsqueeze(-1).exp() * state
    state = state + k.transpose(-1, -2) * (beta.unsqueeze(-1) * (v - k @ state))
    return q @ state, state


def _chunked(x: Tensor, size: int, dims: int, value: float = 0.0) -> Tensor:
    """Return ``(B, H, L, ...)`` of so many dimensions as ``(B, H, C, K, ...)``, padded at the end."""
    padding = -x.shape[2] % size
    if padding:
        x = pad(x, (0, 0, 0, padding) if dims == 3 else (0, padding), value=value)
    chunked: Tensor = x.unflatten(2, (-1, size))
    return chunked


def _decays(log_decay: Tensor) -> tuple[_Weights, Tensor]:
    """Return the weights that decays alone give, and their exponents since each chunk began."""
    exponents = log_decay.cumsum(-1)
    within = _lower(exponents.unsqueeze(-1) - exponents.unsqueeze(-2)).exp()
    total = exponents[..., -1:]
    return _Weights(within, exponents.exp(), (total - exponents).exp(), total.squeeze(-1).exp()), exponents


def _lower(x: Tensor) -> Tensor:
    """Return a matrix of exponents in which what is later counts nothing."""
    later = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    return x.masked_fill(later, -torch.inf)


def _entered(k: Tensor, weights: _Weights) -> Tensor:
    entered: Tensor = k * weights.enter.unsqueeze(-1)
    return entered.transpose(-1, -2)


def _handed_on(added: Tensor, carry: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first state of every chunk, and the last of all."""
    state, starts = start, []
    for c in range(added.shape[2]):
        starts.append(state)
        state = carry[:, :, c, None, None] * state + added[:, :, c]
    return torch.stack(starts, dim=2), state


def _read(q: Tensor, k: Tensor, v: Tensor, weights: _Weights, starts: Tensor) -> Tensor:
    """Return the outputs ``(B, H, C K, P)``."""
    near: Tensor = (q @ k.transpose(-1, -2) * weights.within) @ v
    far = (q * weights.reach.unsqueeze(-1)) @ starts
    return (near + far).flatten(2, 3)


def _scales(total: Tensor, largest: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return the exponents by which the states before and after each chunk are divided."""
    scales = [start]
    for c in range(total.shape[2]):
        scales.append(torch.maximum(total[:, :, c] + scales[-1], largest[:, :, c]).clamp(min=0.0))
    return torch.stack(scales[:-1], dim=2), torch.stack(scales[1:], dim=2)
