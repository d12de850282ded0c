"""Limits gradients: spikes of single parameters first, then the norm of each network or of all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from seqrl.algo.optimizer_state import require_tensor

EPSILON = 1e-8
"""Of an element's root mean square, below which it counts as that: Adam's default."""


def not_finite(x: Tensor) -> Tensor:
    """Return where a tensor is NaN or infinite, in fewer operators than ``isfinite`` takes."""
    return (x - x) != 0


class GradientClipper:
    """Clips each parameter's gradient against its own past, then the norm of networks or of all together.

    Adam divides by the size of recent gradients. Where training has converged they are tiny, and one rare large
    gradient moves the weights at full speed for tens of steps, enough to erase what was learned. So the norm of a
    parameter's gradient may be at most ``spike`` times its root mean square, as Adam averages it. A gradient that stays
    large gets through: its mean square follows, and until then the weights move faster than usual, not slower.

    Args:
        nets: Name -> parameters of a network; none is in two of them.
        spike: Largest norm of a parameter's gradient, in multiples of its root mean square; None is no limit.
        norm: Largest norm after that; None is no limit.
        is_together: Limit the norm of all networks together, or that of each alone.
        decay: Of the mean squares: Adam's for the second moment.

    Attributes:
        mean_squares: Moving average of each parameter's squared gradient norm, not corrected for its start, ``(n,)``.
        num_updates: Gradients that each of them holds, ``(n,)``.
        norms: Name -> norm of a network's last gradient, before clipping.
        ratios: Name -> largest norm of a parameter's last gradient, before clipping, over its root mean square.
        is_bad: Bool scalar on the device: the last gradients left no trace, as a norm was not finite or by
            ``is_bad`` of :meth:`clip`.

    Source: a quiet second moment makes spikes dangerous: Bai et al. (2025), Adaptive Preconditioners Trigger Loss
    Spikes in Adam, arXiv 2506.04805. Clipping parameters against their own past: Wang et al. (2025), AdaGC, arXiv
    2502.11034.
    """

    def __init__(
        self,
        nets: Mapping[str, Sequence[nn.Parameter]],
        *,
        spike: float | None,
        norm: float | None,
        is_together: bool = True,
        decay: float = 0.999,
    ) -> None:
        self._parameters = [p for parameters in nets.values() for p in parameters]
        self._spike, self._norm, self._decay, self._is_together = spike, norm, decay, is_together
        self._slices: dict[str, slice] = {}
        for name, parameters in nets.items():
            begin = sum(s.stop - s.start for s in self._slices.values())
            self._slices[name] = slice(begin, begin + len(parameters))
        device = self._parameters[0].device if self._parameters else None
        self.mean_squares = torch.zeros(len(self._parameters), device=device)
        self.num_updates = torch.zeros(len(self._parameters), device=device)
        self._least = torch.tensor([p.numel() * EPSILON**2 for p in self._parameters], device=device)
        self.is_bad = torch.zeros((), dtype=torch.bool, device=device)
        self._presences: dict[tuple[bool, ...], Tensor] = {}
        self._last_norms, self._last_ratios = torch.zeros_like(self.mean_squares), torch.zeros_like(self.mean_squares)

    @property
    def norms(self) -> dict[str, Tensor]:  # noqa: D102
        return {name: self._last_norms[where].norm() for name, where in self._slices.items()}

    @property
    def ratios(self) -> dict[str, Tensor]:  # noqa: D102
        return {name: self._last_ratios[where].amax() for name, where in self._slices.items()}

    @torch.no_grad()
    def clip(self, is_bad: Tensor | None = None) -> Tensor:
        """Clip the gradients in place; return the norm of all together from before, a scalar on the device.

        Args:
            is_bad: Bool scalar on the device: the step will be suppressed, so its gradients leave no trace.
        """
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if not gradients:
            self.is_bad = torch.zeros_like(self.is_bad) if is_bad is None else is_bad
            return self.mean_squares.new_zeros(())
        norms = torch.stack(torch._foreach_norm(gradients)).float()
        is_used = self._presence(tuple(p.grad is not None for p in self._parameters))
        if len(gradients) < len(self._parameters):
            norms = torch.zeros_like(self.mean_squares).masked_scatter_(is_used, norms)
        self._last_norms = norms
        total: Tensor = norms.norm()
        factors = self._spike_factors(norms)
        if self._norm is not None:
            factors = factors * self._norm_factors(norms * factors, self._norm)
        if not factors.is_cpu or factors.amin().numpy() < 1.0:  # the host would have to wait for a GPU's
            there = [f for f, p in zip(factors.unbind(), self._parameters, strict=True) if p.grad is not None]
            torch._foreach_mul_(gradients, there)
        self.is_bad = not_finite(total) if is_bad is None else not_finite(total) | is_bad
        is_used = is_used & ~self.is_bad
        moved = torch.lerp(self.mean_squares, (norms * factors).square(), 1.0 - self._decay)
        self.mean_squares = torch.where(is_used, moved, self.mean_squares)
        self.num_updates = self.num_updates + is_used
        return total

    def _presence(self, has_gradient: tuple[bool, ...]) -> Tensor:
        """Return which parameters have a gradient; copied to the device once, as a copy at every step would wait."""
        if has_gradient not in self._presences:
            self._presences[has_gradient] = torch.tensor(has_gradient, device=self.mean_squares.device)
        return self._presences[has_gradient]

    def _spike_factors(self, norms: Tensor) -> Tensor:
        """Return what each gradient is multiplied by, 1 where it has no past."""
        count = self.num_updates.clamp(min=1.0)
        expected = (self.mean_squares / (1.0 - self._decay**count)).maximum(self._least).sqrt()
        self._last_ratios = norms / expected.masked_fill(self.mean_squares == 0.0, math.inf)
        if self._spike is None:
            return torch.ones_like(norms)
        return (self._spike / self._last_ratios).clamp(max=1.0)

    def _norm_factors(self, norms: Tensor, most: float) -> Tensor:
        if self._is_together:
            together: Tensor = most / (norms.norm() + 1e-6)
            return together.clamp(max=1.0).expand_as(norms)
        each = [norms[where] for where in self._slices.values()]
        return torch.cat([(most / (part.norm() + 1e-6)).clamp(max=1.0).expand_as(part) for part in each])

    def state_tensors(self) -> dict[str, Tensor]:
        """Return what of the past has to be saved, on the CPU."""
        return {"mean_squares": self.mean_squares.cpu().clone(), "num_updates": self.num_updates.cpu().clone()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_tensors` gave.

        Raises:
            CheckpointError: If it is of another shape or dtype.
        """
        for name, own in self.state_tensors().items():
            require_tensor(f"the clipper's {name!r}", tensors.get(name), own.shape)
        self.mean_squares.copy_(tensors["mean_squares"])
        self.num_updates.copy_(tensors["num_updates"])

    def infer_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the past from the second moments of an optimiser, which are the same elementwise."""
        for i, p in enumerate(self._parameters):
            if "exp_avg_sq" in (state := optimizer.state.get(p, {})):
                self.mean_squares[i] = state["exp_avg_sq"].sum()
                self.num_updates[i] = state["step"]


@torch.no_grad()
def largest_updates(nets: Mapping[str, Sequence[nn.Parameter]], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return, for each network, the largest root mean square of a parameter's last update by Adam, over its rate.

    Weight decay does not count. Networks that took no step, and other optimisers, have no entry.
    """
    betas = {
        p: (*group["betas"], group["eps"])
        for group in optimizer.param_groups
        if "betas" in group
        for p in group["params"]
    }
    found = {}
    for name, parameters in nets.items():
        sizes = []
        for p in parameters:
            state = optimizer.state.get(p, {})
            if p in betas and "exp_avg_sq" in state:
                beta1, beta2, eps = betas[p]
                count = torch.as_tensor(state["step"]).clamp(min=1.0)  # 0 after a first step that was suppressed
                second = (state["exp_avg_sq"] / (1.0 - beta2**count)).sqrt() + eps
                sizes.append((state["exp_avg"] / (1.0 - beta1**count) / second).square().mean().sqrt())
        if sizes:
            found[name] = torch.stack(sizes).amax()
    return found
