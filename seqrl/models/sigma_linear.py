"""Linear layer whose spectral norm is a learned scale (Zhai et al., 2023, "sigma-reparam", arXiv 2303.06296)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, normalize


class SigmaLinear(nn.Module):
    r"""Computes :math:`(\gamma / \sigma(W)) W x + b` with the largest singular value estimated as :math:`u^T W v`.

    ``u`` and ``v`` begin as the exact singular vectors, are buffers without gradient, and move only in
    :meth:`power_iteration`, once after each optimiser step.

    Args:
        d_input: Width of the input.
        d_output: Width of the output.
        bias: Whether to add a bias.
    """

    u: Tensor
    v: Tensor

    def __init__(self, d_input: int, d_output: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_output, d_input))
        nn.init.normal_(self.weight, std=0.02)
        self.bias = nn.Parameter(torch.zeros(d_output)) if bias else None
        self.scale = nn.Parameter(torch.ones(()))
        left, _, right = torch.linalg.svd(self.weight.detach(), full_matrices=False)
        self.register_buffer("u", left[:, 0].clone())
        self.register_buffer("v", right[0].clone())
        self._kept: tuple[Any, Tensor] | None = None

    def forward(self, x: Float[Tensor, "*lead D"]) -> Float[Tensor, "*lead E"]:
        """Return the scaled product."""
        is_traced = torch.compiler.is_compiling()  # what was kept would be a constant of the trace
        is_fresh = is_traced or torch.is_grad_enabled() or self.training
        weight = self._scaled_weight() if is_fresh else self._kept_weight()
        return linear(x, weight, self.bias)

    def _scaled_weight(self) -> Tensor:
        with torch.autocast(self.weight.device.type, enabled=False):
            sigma = torch.dot(self.u, torch.mv(self.weight, self.v))
            return self.weight * (self.scale / sigma)

    def _kept_weight(self) -> Tensor:
        """Return the scaled weight, computed once until a tensor behind it changes: half the time of acting."""
        tensors = (self.weight, self.scale, self.u, self.v)
        if any(t.is_inference() for t in tensors):
            return self._scaled_weight()
        key = tuple((t._version, t.data_ptr(), t.dtype, t.device) for t in tensors)
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, self._scaled_weight())
        return self._kept[1]

    def train(self, mode: bool = True) -> SigmaLinear:
        """Switch mode, and forget the kept weight."""
        self._kept = None
        return super().train(mode)

    @torch.no_grad()
    def power_iteration(self) -> None:
        """Move ``u`` and ``v`` one step towards the leading singular vectors."""
        self.u.copy_(normalize(torch.mv(self.weight, self.v), dim=0))
        self.v.copy_(normalize(torch.mv(self.weight.t(), self.u), dim=0))
