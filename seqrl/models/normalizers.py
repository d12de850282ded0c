"""Standardisation of inputs by moving statistics that ignore padding."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

MIN_STD, MAX_STD = 1e-3, 1e6
CENTRE_ONLY_STD = 1e-2
MAX_OUTPUT = 1e4
TINY_STD = 1e-6


class InputNormalizer(nn.Module):
    """Centres and scales each feature by moving first and second moments.

    The moments move by ``beta / (1 - (1 - beta)^n)``, where the initial mean 0 and variance 1 count as one batch:
    early batches weigh as in a plain average, later ones as in an exponential one. The forward pass changes nothing;
    :meth:`update` moves the statistics.

    Args:
        width: Number of features.
        beta: Asymptotic step size.
        min_std: What features are divided by whose standard deviation is smaller; 0 divides by their own, and only
            centres those that vary by at most 0.01.
    """

    mean: Tensor
    variance: Tensor
    num_updates: Tensor

    def __init__(self, width: int, beta: float = 1e-4, min_std: float = 0.0) -> None:
        super().__init__()
        self.beta, self.min_std = beta, min_std
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.register_buffer("num_updates", torch.ones(()))

    def forward(self, x: Float[Tensor, "*lead D"]) -> Float[Tensor, "*lead D"]:
        """Return the standardised features, within +-10,000."""
        std = self.variance.sqrt().clamp(MIN_STD, MAX_STD)
        if self.min_std > 0:
            scale = std.clamp(min=self.min_std)
        else:
            scale = torch.where(std > CENTRE_ONLY_STD, std, torch.ones_like(std))
        return ((x - self.mean) / scale).clamp(-MAX_OUTPUT, MAX_OUTPUT)

    def rarity(self, x: Float[Tensor, "*lead D"]) -> Float[Tensor, "*lead D"]:
        """Return the square of each feature's distance from its mean, in standard deviations: 1 on average.

        The less a feature has varied so far, the more unusual a change of it is, however small its deviation.
        """
        std = self.variance.sqrt().clamp(TINY_STD, MAX_STD)
        return ((x - self.mean) / std).clamp(-MAX_OUTPUT, MAX_OUTPUT).square()

    @torch.no_grad()
    def stats(self, x: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"]) -> Float[Tensor, "stats D1"]:
        """Return sums over the real inputs, to be added over micro-batches and ranks.

        Row 0 holds the sums of ``x - mean``, row 1 of their squares; the last column of both is the count.
        Deviations from the current mean keep small variances exact in float32.
        """
        deviation = (x.float() - self.mean).masked_fill(~mask.unsqueeze(-1), 0.0)
        count = mask.sum().float().reshape(1)
        first = torch.cat([deviation.sum((0, 1)), count])
        second = torch.cat([deviation.square().sum((0, 1)), count])
        return torch.stack([first, second])

    @torch.no_grad()
    def update(self, stats: Float[Tensor, "stats D1"]) -> None:
        """Move the statistics by sums from :meth:`stats`; non-finite sums are ignored, without a host sync."""
        count = stats[0, -1].clamp(min=1.0)
        shift = stats[0, :-1] / count
        square = stats[1, :-1] / count
        num_updates = self.num_updates + 1
        step = self.beta / (1 - (1 - self.beta) ** num_updates)
        delta = step * shift
        variance = (1 - step) * self.variance + step * square - delta.square()
        good = torch.isfinite(stats).all() & (stats[0, -1] > 0)
        self.mean.copy_(torch.where(good, self.mean + delta, self.mean))
        self.variance.copy_(torch.where(good, variance.clamp(min=0.0), self.variance))
        self.num_updates.copy_(torch.where(good, num_updates, self.num_updates))
