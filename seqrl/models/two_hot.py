"""Scalars as categorical distributions over bins, and back."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


def symlog(x: Float[Tensor, "*lead"]) -> Float[Tensor, "*lead"]:
    """Return ``sign(x) log(1 + |x|)`` (DreamerV3, arXiv 2301.04104, eq. 9)."""
    return x.sign() * x.abs().log1p()


def symexp(x: Float[Tensor, "*lead"]) -> Float[Tensor, "*lead"]:
    """Return ``sign(x) (exp(|x|) - 1)``, the inverse of :func:`symlog`."""
    return x.sign() * x.abs().expm1()


class TwoHot(nn.Module):
    """Encodes scalars as distributions over bins, and decodes distributions as scalars.

    Args:
        low: Smallest value that can be represented, in the units of the values.
        high: Largest.
        num_bins: At least 2.
        use_symlog: Space the bins evenly in symlog space, or else linearly.
        value_space: ``symlog`` takes the expectation over bin centres before symexp (the reference; biased when
            values are random), ``return`` after it (DreamerV3; unbiased). Without ``use_symlog`` they are the same.
        label: ``two_hot`` splits the mass between the two neighbours; ``hl_gauss`` integrates a Gaussian.
        sigma_bins: Standard deviation of the Gaussian, in bin widths.

    Raises:
        ValueError: If the range is empty, or there are too few bins.
    """

    bins: Tensor
    centers: Tensor

    def __init__(
        self,
        low: float,
        high: float,
        num_bins: int = 128,
        *,
        use_symlog: bool = True,
        value_space: str = "symlog",
        label: str = "two_hot",
        sigma_bins: float = 0.75,
    ) -> None:
        super().__init__()
        if not low < high or num_bins < 2:
            raise ValueError(f"need low < high and at least 2 bins, got {low}, {high}, {num_bins}")
        self.use_symlog = use_symlog
        self.in_return_space = use_symlog and value_space == "return"
        self.label = label
        ends = torch.tensor([low, high], dtype=torch.float64)
        first, last = (symlog(ends) if use_symlog else ends).tolist()
        bins = torch.linspace(first, last, num_bins, dtype=torch.float64)
        self.width = (last - first) / (num_bins - 1)
        self.sigma = sigma_bins * self.width
        self.register_buffer("bins", bins.float(), persistent=False)
        self.register_buffer("centers", (symexp(bins) if use_symlog else bins).float(), persistent=False)

    def encode(self, values: Float[Tensor, "*lead"]) -> Float[Tensor, "*lead N"]:
        """Return the target distribution of each value, clamped to the range first."""
        if self.in_return_space and self.label == "two_hot":
            return _two_hot(values.clamp(self.centers[0], self.centers[-1]), self.centers)
        x = (symlog(values) if self.use_symlog else values).clamp(self.bins[0], self.bins[-1])
        return _two_hot(x, self.bins) if self.label == "two_hot" else self._hl_gauss(x)

    def decode(self, probs: Float[Tensor, "*lead N"]) -> Float[Tensor, "*lead"]:
        """Return the value that each distribution stands for."""
        if self._averages_returns:
            values: Tensor = (probs * self.centers).sum(-1)
            return values
        return symexp((probs * self.bins).sum(-1))

    def initial_logits(self, value: float, width_bins: float = 4.0) -> Float[Tensor, " N"]:
        """Return logits that stand for a value, for the output bias: a Gaussian ``width_bins`` bins wide, tilted.

        Near an end of the range, what is cut off would move the value inwards, so the distribution is tilted until it
        stands for the value, to within half a bin. No bin is more than ``e**10`` times less likely than the likeliest:
        by a Gaussian alone, returns in far bins would begin with losses of hundreds.

        Args:
            value: Clamped to the range.
            width_bins: Standard deviation of the Gaussian.
        """
        bins, centers = self.bins.double(), self.centers.double()
        goal = torch.tensor(value, dtype=torch.float64, device=bins.device).clamp(centers[0], centers[-1])
        offset = (bins - (symlog(goal) if self.use_symlog else goal)) / self.width

        def tilted(tilt: float) -> Tensor:
            logits: Tensor = tilt * offset - 0.5 * (offset / width_bins).square()
            return (logits - logits.max()).clamp(min=-10.0)

        low, high = -10.0, 10.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            probs = tilted(middle).softmax(-1)
            stands_for = (probs * centers).sum() if self._averages_returns else symexp((probs * bins).sum())
            low, high = (middle, high) if stands_for < goal else (low, middle)
        return tilted(0.5 * (low + high)).to(self.bins.dtype)

    @property
    def _averages_returns(self) -> bool:
        return self.in_return_space or not self.use_symlog

    def _hl_gauss(self, x: Tensor) -> Tensor:
        """Return the mass of a Gaussian around ``x`` in each bin, normalised to the range (arXiv 2403.03950, eq. 3).

        What the range cuts off moves the mean inwards, by up to 0.37 bins at its ends; so as much mass moves to the end
        as brings the mean back to ``x``.
        """
        half = 0.5 * self.width
        edges = torch.cat([self.bins - half, self.bins[-1:] + half])
        cdf = torch.special.ndtr((edges - x.unsqueeze(-1)) / self.sigma)
        mass = cdf.diff(dim=-1)
        normalized: Tensor = mass / (cdf[..., -1:] - cdf[..., :1])
        mean = (normalized * self.bins).sum(-1)
        tiny = torch.finfo(mean.dtype).tiny  # a narrow Gaussian at an end lies in one bin
        to_low = ((mean - x) / (mean - self.bins[0]).clamp(min=tiny)).clamp(0.0, 1.0)
        to_high = ((x - mean) / (self.bins[-1] - mean).clamp(min=tiny)).clamp(0.0, 1.0)
        corrected = normalized * (1.0 - to_low - to_high).unsqueeze(-1)
        corrected[..., 0] += to_low
        corrected[..., -1] += to_high
        return corrected


def _two_hot(x: Tensor, bins: Tensor) -> Tensor:
    """Split mass 1 between the neighbours of ``x`` so that the expectation over ``bins`` is ``x``."""
    above = torch.searchsorted(bins, x.contiguous(), right=True).clamp(1, len(bins) - 1)
    low, high = bins[above - 1], bins[above]
    share = ((x - low) / (high - low)).clamp(0.0, 1.0)
    encoded = torch.zeros((*x.shape, len(bins)), dtype=x.dtype, device=x.device)
    encoded.scatter_(-1, (above - 1).unsqueeze(-1), (1 - share).unsqueeze(-1))
    return encoded.scatter_add_(-1, above.unsqueeze(-1), share.unsqueeze(-1))
