"""A distribution over actions that have values and choices: a policy that picks a tool and how far to move it."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqrl.core.registry import DISTRIBUTIONS
from seqrl.core.spaces import ActionCodec
from seqrl.models.distributions.base import ActionDistribution, DistributionHead
from seqrl.models.distributions.discrete import CategoricalHead


class Hybrid(ActionDistribution):
    """Values and choices, independent given the state.

    Args:
        values: Over the first ``width`` entries of the action.
        choices: Over the others.
        width: How many are values.
    """

    def __init__(self, values: ActionDistribution, choices: ActionDistribution, width: int) -> None:
        self.values, self.choices, self._width = values, choices, width

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the log-density of the values plus the log-probability of the choices."""
        parts = self.log_prob_of_parts(action)
        return parts["values"] + parts["choices"]

    def log_prob_of_parts(self, action: Float[Tensor, "*lead A"]) -> dict[str, Float[Tensor, "*lead"]]:
        """Return both on their own."""
        values, choices = action[..., : self._width], action[..., self._width :]
        return {"values": self.values.log_prob(values), "choices": self.choices.log_prob(choices)}

    @torch.no_grad()
    def sample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw."""
        return torch.cat([self.values.sample(), self.choices.sample()], dim=-1)

    @torch.no_grad()
    def sample_with_log_prob(self) -> tuple[Float[Tensor, "*lead A"], Float[Tensor, "*lead"]]:
        """Return a draw and its log-density, each as exact as that of its parts."""
        drawn, log_probs = zip(*(part.sample_with_log_prob() for part in (self.values, self.choices)), strict=True)
        return torch.cat(drawn, dim=-1), log_probs[0] + log_probs[1]

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw through which gradients flow: straight through in the choices."""
        return torch.cat([self.values.rsample(), self.choices.rsample()], dim=-1)

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the greedy values and choices."""
        return torch.cat([self.values.mode(), self.choices.mode()], dim=-1)

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return the sum of both entropies; that of squashed values is an estimate."""
        return self.values.entropy() + self.choices.entropy()

    def low_noise(self) -> Hybrid:
        """Return this distribution with hardly any noise in its values."""
        return Hybrid(self.values.low_noise(), self.choices, self._width)


@DISTRIBUTIONS.register("hybrid")
class HybridHead(DistributionHead):
    """Parameters of the values' distribution, then logits of one categorical per factor."""

    kinds = ("hybrid",)

    def __init__(
        self, codec: ActionCodec, *, values: str = "tanh_gaussian", min_probability_mass: float = 0.001
    ) -> None:
        super().__init__(codec)
        if codec.kind != "hybrid":  # refused by its kinds
            self.num_parameters = 0
            return
        own, choices = codec.parts
        of_values: type[Any] = DISTRIBUTIONS.get(values)
        self.values: DistributionHead = of_values(own)
        self.choices = CategoricalHead(choices, min_probability_mass=min_probability_mass)
        self.low_noise_eval = self.values.low_noise_eval
        self.num_parameters = self.values.num_parameters + self.choices.num_parameters
        self._width = own.dim

    def forward(self, parameters: Tensor, action_mask: Bool[Tensor, "*lead A"] | None) -> Hybrid:
        """Return the distribution with these parameters; only choices can be illegal."""
        of_values, logits = parameters.split([self.values.num_parameters, self.choices.num_parameters], dim=-1)
        legal = None if action_mask is None else action_mask[..., self._width :]
        return Hybrid(self.values(of_values, None), self.choices(logits, legal), self._width)
