"""What the entropy of policies is worth."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Temperature(nn.Module):
    """The worth of one nat of entropy to the policy of each discount: fixed, or learned.

    A learned one falls while the entropy is above a target, and rises while it is below.

    Args:
        num_discounts: G.
        alpha: The fixed worth; None learns it.
        target: Entropy in nats, for a learned one.
        initial: What a learned one begins with.

    Source: Haarnoja et al. (2018), Soft Actor-Critic Algorithms and Applications, arXiv 1812.05905, section 5; with
    the gradient on the logarithm, as the authors' code has it.
    """

    log_alpha: Tensor

    def __init__(self, num_discounts: int, *, alpha: float | None, target: float = 0.0, initial: float = 1.0) -> None:
        super().__init__()
        self.is_learned = alpha is None
        self.target = target
        if alpha is None:
            self.log_alpha = nn.Parameter(torch.full((num_discounts,), math.log(initial)))
        else:
            self.register_buffer("log_alpha", torch.full((num_discounts,), math.log(alpha)), persistent=False)

    @property
    def alpha(self) -> Float[Tensor, " G"]:
        """The worth, without gradient."""
        return self.log_alpha.detach().exp()

    def loss(self, entropy: Float[Tensor, "*lead G"]) -> Float[Tensor, "*lead"]:
        """Return what moves a learned worth, averaged over discounts; no gradient reaches the entropy."""
        return (self.log_alpha * (entropy.detach() - self.target)).mean(-1)
