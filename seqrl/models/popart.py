"""Value normalisation that leaves the meaning of the critic alone (PopArt, van Hasselt et al., 2018, 1809.04474)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

INITIAL_VARIANCE = 100.0
MIN_VARIANCE, MAX_VARIANCE = 1e-4, 1e8


class PopArt(nn.Module):
    """Moving mean and variance of the targets of each discount.

    A value is ``10`` times the critic's raw output at all times, and the loss compares normalised values. Rescaling
    the last layer whenever the statistics move, as the paper does, comes to the same: the rescaled layer's weight
    would be ``10 / std``, its bias ``-mean / std``.

    The statistics move by ``beta / (1 - (1 - beta)^n)``, where mean 0 and second moment 100 count as one batch. They
    move after the gradient step: its losses use those from before it, as a step's targets are only all known when its
    micro-batches on all ranks are done. (The paper's statistics hold the present targets too.)

    Args:
        num_discounts: G.
        beta: Asymptotic step size.
    """

    mean: Tensor
    variance: Tensor
    num_updates: Tensor

    def __init__(self, num_discounts: int, beta: float = 5e-4) -> None:
        super().__init__()
        self.beta = beta
        self.scale = INITIAL_VARIANCE**0.5
        self.register_buffer("mean", torch.zeros(num_discounts))
        self.register_buffer("variance", torch.full((num_discounts,), INITIAL_VARIANCE))
        self.register_buffer("num_updates", torch.ones(()))

    @property
    def std(self) -> Float[Tensor, " G"]:
        """Standard deviation of the targets."""
        return self.variance.sqrt()

    def normalize(self, values: Float[Tensor, "*lead G C"]) -> Float[Tensor, "*lead G C"]:
        """Return values (not raw outputs) in units of the targets' standard deviation."""
        return (values - self.mean[:, None]) / self.std[:, None]

    @torch.no_grad()
    def stats(self, targets: Float[Tensor, "B T G"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "3 G"]:
        """Return sums over the real targets: deviations from the current mean, their squares, and the count."""
        deviation = (targets - self.mean).masked_fill(~mask.unsqueeze(-1), 0.0)
        count = mask.sum().float().expand(len(self.mean))
        return torch.stack([deviation.sum((0, 1)), deviation.square().sum((0, 1)), count])

    @torch.no_grad()
    def update(self, stats: Float[Tensor, "3 G"]) -> None:
        """Move the statistics by sums from :meth:`stats`; non-finite sums are ignored, without a host sync."""
        count = stats[2].clamp(min=1.0)
        num_updates = self.num_updates + 1
        step = self.beta / (1 - (1 - self.beta) ** num_updates)
        delta = step * stats[0] / count
        variance = (1 - step) * self.variance + step * stats[1] / count - delta.square()
        good = torch.isfinite(stats).all() & (stats[2, 0] > 0)
        self.mean.copy_(torch.where(good, self.mean + delta, self.mean))
        self.variance.copy_(torch.where(good, variance.clamp(MIN_VARIANCE, MAX_VARIANCE), self.variance))
        self.num_updates.copy_(torch.where(good, num_updates, self.num_updates))
