"""What every distribution over policy actions offers, and what turns parameters into one."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.spaces import ActionCodec


class ActionDistribution(ABC):
    """A batch of distributions, one per position."""

    @abstractmethod
    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the log-probability (density) of policy actions."""

    @torch.no_grad()
    def sample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw, without gradient; by default that of :meth:`rsample`."""
        return self.rsample().detach()

    def sample_with_log_prob(self) -> tuple[Float[Tensor, "*lead A"], Float[Tensor, "*lead"]]:
        """Return a draw and its log-density, without gradients."""
        with torch.no_grad():
            drawn = self.sample()
            return drawn, self.log_prob(drawn)

    @abstractmethod
    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw through which gradients reach the parameters; straight through where actions are discrete."""

    @abstractmethod
    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the greedy action."""

    @abstractmethod
    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return the entropy, or a one-sample estimate of it where there is no closed form."""

    def low_noise(self) -> ActionDistribution:
        """Return this distribution with hardly any noise around each mode; itself where it has no such form."""
        return self


class DistributionHead(nn.Module, ABC):
    """Turns a vector of parameters into a distribution.

    Args:
        codec: Describes the policy's actions.

    Attributes:
        kinds: Action kinds that it can represent.
        has_rsample: Whether gradients flow through its samples.
        has_entropy: Whether its entropy can be learned.
        low_noise_eval: Whether imitation that acts by sampling shall draw from :meth:`ActionDistribution.low_noise`.
        num_parameters: Width of the parameter vector.
    """

    kinds: tuple[str, ...]
    has_rsample = True
    has_entropy = True
    low_noise_eval = False
    num_parameters: int

    def __init__(self, codec: ActionCodec) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, parameters: Tensor, action_mask: Tensor | None) -> ActionDistribution:
        """Return the distribution with these parameters ``(..., num_parameters)``."""

    def for_evaluation(self, distribution: ActionDistribution) -> ActionDistribution:
        """Return what to draw actions from in evaluation; losses always take ``distribution`` itself."""
        return distribution.low_noise() if self.low_noise_eval else distribution
