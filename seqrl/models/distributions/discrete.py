"""Distributions over one-hot blocks and bits. An illegal action has probability 0 everywhere."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from seqrl.core.registry import DISTRIBUTIONS
from seqrl.core.spaces import ActionCodec
from seqrl.models.distributions.base import ActionDistribution, DistributionHead

GUMBEL_TEMPERATURE = 0.5


class Categorical(ActionDistribution):
    """One categorical per factor over concatenated logits; illegal actions have probability exactly 0."""

    def __init__(self, logits: Tensor, factors: tuple[int, ...], min_mass: float, action_mask: Tensor | None) -> None:
        if action_mask is not None:
            logits = logits.masked_fill(~action_mask, -torch.inf)
        self._factors = factors
        self.log_probs = [self._floored(part, min_mass) for part in logits.split(factors, dim=-1)]
        """Per factor ``(..., n)``."""

    @staticmethod
    def _floored(logits: Tensor, min_mass: float) -> Tensor:
        """Return ``log((1 - mass) softmax + mass / legal)``, minus infinity where illegal."""
        log_prob = torch.log_softmax(logits, dim=-1)
        if min_mass == 0.0:
            return log_prob
        legal = torch.isfinite(logits)
        log_floor = math.log(min_mass) - legal.sum(-1, keepdim=True).float().log()
        finite = torch.where(legal, log_prob, torch.zeros_like(log_prob))
        mixed = torch.logaddexp(finite + math.log1p(-min_mass), log_floor.expand_as(finite))
        return torch.where(legal, mixed, torch.full_like(mixed, -torch.inf))

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the sum over factors of the chosen actions' log-probabilities."""
        parts = action.split(self._factors, dim=-1)
        chosen = [lp.gather(-1, a.argmax(-1, keepdim=True)) for lp, a in zip(self.log_probs, parts, strict=True)]
        return torch.cat(chosen, dim=-1).sum(-1)

    @torch.no_grad()
    def sample(self) -> Float[Tensor, "*lead A"]:
        """Return one-hot draws (Gumbel-max: no host sync, no validation)."""
        noisy = [lp - torch.empty_like(lp).exponential_().log() for lp in self.log_probs]
        return self._one_hot(noisy)

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return one-hot draws with the gradient of a Gumbel-softmax of temperature 0.5 (Jang et al., 2017)."""
        soft = []
        for log_prob in self.log_probs:
            legal = torch.isfinite(log_prob)
            noise = -torch.empty_like(log_prob).exponential_().log()
            scores = (torch.where(legal, log_prob, torch.zeros_like(log_prob)) + noise) / GUMBEL_TEMPERATURE
            soft.append(scores.masked_fill(~legal, -torch.inf).softmax(-1))
        smooth = torch.cat(soft, dim=-1)
        return self._one_hot(soft) + (smooth - smooth.detach())  # exactly 0 and 1

    @property
    def probs(self) -> Float[Tensor, "*lead A"]:
        """Probabilities of all actions, factor by factor."""
        return torch.cat(self.log_probs, dim=-1).exp()

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the most probable action of each factor."""
        return self._one_hot(self.log_probs)

    def _one_hot(self, scores: list[Tensor]) -> Tensor:
        chosen = [torch.zeros_like(s).scatter_(-1, s.argmax(-1, keepdim=True), 1.0) for s in scores]
        return torch.cat(chosen, dim=-1)

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return the sum of the factors' entropies."""
        parts = [-(lp.exp() * lp.clamp(min=-1e4)).sum(-1) for lp in self.log_probs]
        return torch.stack(parts, dim=-1).sum(-1)


@DISTRIBUTIONS.register("categorical")
class CategoricalHead(DistributionHead):
    """Logits of one categorical per factor of a Discrete or MultiDiscrete space."""

    kinds = ("categorical",)

    def __init__(self, codec: ActionCodec, *, min_probability_mass: float = 0.001) -> None:
        super().__init__(codec)
        self.factors = codec.factors
        self.min_mass = min_probability_mass
        self.num_parameters = codec.dim

    def forward(self, parameters: Tensor, action_mask: Bool[Tensor, "*lead A"] | None) -> Categorical:
        """Return the distribution with these logits."""
        return Categorical(parameters, self.factors, self.min_mass, action_mask)


class Bernoulli(ActionDistribution):
    """Independent bits; a masked bit is always 0."""

    def __init__(self, logits: Tensor, action_mask: Tensor | None) -> None:
        self.logits = logits if action_mask is None else logits.masked_fill(~action_mask, -1e4)

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the sum over bits."""
        return (action * logsigmoid(self.logits) + (1 - action) * logsigmoid(-self.logits)).sum(-1)

    @torch.no_grad()
    def sample(self) -> Float[Tensor, "*lead A"]:
        """Return bits as 0.0 and 1.0."""
        return (torch.rand_like(self.logits) < self.logits.sigmoid()).float()

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return bits with the gradient of their probabilities, straight through."""
        p = self.logits.sigmoid()
        return self.sample() + (p - p.detach())  # exactly 0 and 1

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the bits whose probability exceeds 0.5."""
        return (self.logits > 0).float()

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return the sum of the bits' entropies."""
        p = self.logits.sigmoid()
        return -(p * logsigmoid(self.logits) + (1 - p) * logsigmoid(-self.logits)).sum(-1)


@DISTRIBUTIONS.register("bernoulli")
class BernoulliHead(DistributionHead):
    """One logit per bit of a MultiBinary space."""

    kinds = ("binary",)

    def __init__(self, codec: ActionCodec) -> None:
        super().__init__(codec)
        self.num_parameters = codec.dim

    def forward(self, parameters: Tensor, action_mask: Bool[Tensor, "*lead A"] | None) -> Bernoulli:
        """Return the distribution with these logits."""
        return Bernoulli(parameters, action_mask)
