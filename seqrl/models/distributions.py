"""Distributions over policy actions: one-hot blocks, bits, or values in [-1, 1], each ``(..., A)`` float32."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, one_hot, softplus

from seqrl.core.errors import ConfigError
from seqrl.core.registry import DISTRIBUTIONS
from seqrl.core.spaces import ActionCodec

MAX_TANH_ACTION = 0.99
GUMBEL_TEMPERATURE = 0.5


class ActionDistribution(ABC):
    """A batch of distributions, one per position."""

    @abstractmethod
    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the log-probability (density) of policy actions."""

    @abstractmethod
    def sample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw, without gradient."""

    @abstractmethod
    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw through which gradients reach the parameters; straight through where actions are discrete."""

    @abstractmethod
    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the greedy action."""

    @abstractmethod
    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return the entropy, or a one-sample estimate of it where there is no closed form."""


class DistributionHead(nn.Module, ABC):
    """Turns a vector of parameters into a distribution.

    Args:
        codec: Describes the policy's actions.

    Attributes:
        kinds: Action kinds that it can represent.
        has_rsample: Whether gradients flow through its samples.
        num_parameters: Width of the parameter vector.
    """

    kinds: tuple[str, ...]
    has_rsample = True
    num_parameters: int

    def __init__(self, codec: ActionCodec) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, parameters: Tensor, action_mask: Tensor | None) -> ActionDistribution:
        """Return the distribution with these parameters ``(..., num_parameters)``."""


# ------------------------------------------------------------------------------------------ categorical
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
        return self._one_hot(soft) + smooth - smooth.detach()

    @property
    def probs(self) -> Float[Tensor, "*lead A"]:
        """Probabilities of all actions, factor by factor."""
        return torch.cat(self.log_probs, dim=-1).exp()

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the most probable action of each factor."""
        return self._one_hot(self.log_probs)

    def _one_hot(self, scores: list[Tensor]) -> Tensor:
        return torch.cat([one_hot(s.argmax(-1), s.shape[-1]) for s in scores], dim=-1).float()

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


# -------------------------------------------------------------------------------------------- bernoulli
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
        return self.sample() + p - p.detach()

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


# ----------------------------------------------------------------------------------------- tanh-Gaussian
class TanhGaussian(ActionDistribution):
    r"""``tanh(x)``, ``x`` Gaussian with diagonal covariance.

    The density of an action ``a`` is that of ``atanh(a)`` divided by :math:`\prod (1 - a^2)` (Haarnoja et al., 2018,
    appendix C); actions beyond +-0.99 are read as +-0.99, where ``atanh`` is still tame.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the log-density, summed over dimensions."""
        action = action.clamp(-MAX_TANH_ACTION, MAX_TANH_ACTION)
        return self._log_prob_before_tanh(action.atanh())

    def _log_prob_before_tanh(self, x: Tensor) -> Tensor:
        z = (x - self.mean) * (-self.log_std).exp()
        log_normal = -0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)
        log_jacobian = 2 * (math.log(2) - x - softplus(-2 * x))
        return (log_normal - log_jacobian).sum(-1)

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw through which gradients flow."""
        return (self.mean + self.log_std.exp() * torch.randn_like(self.mean)).tanh()

    @torch.no_grad()
    def sample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw."""
        return self.rsample()

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return ``tanh(mean)``."""
        return self.mean.tanh()

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return a one-sample estimate."""
        x = self.mean + self.log_std.exp() * torch.randn_like(self.mean)
        return -self._log_prob_before_tanh(x)


@DISTRIBUTIONS.register("tanh_gaussian")
class TanhGaussianHead(DistributionHead):
    """Mean and log standard deviation per dimension; the latter within its range by a tanh."""

    kinds = ("continuous",)

    def __init__(self, codec: ActionCodec, *, min_log_std: float = -5.0, max_log_std: float = 2.0) -> None:
        super().__init__(codec)
        self.num_parameters = 2 * codec.dim
        self.min_log_std = min_log_std
        self.half_range = 0.5 * (max_log_std - min_log_std)

    def forward(self, parameters: Tensor, action_mask: Tensor | None) -> TanhGaussian:
        """Return the distribution with mean the first half of the parameters."""
        mean, raw = parameters.chunk(2, dim=-1)
        return TanhGaussian(mean, self.min_log_std + self.half_range * (1 + raw.tanh()))


# ----------------------------------------------------------------------------------------- deterministic
class Deterministic(ActionDistribution):
    """One action per position."""

    def __init__(self, action: Tensor) -> None:
        self.action = action

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return that of a unit-variance Gaussian without its constant: minus half the squared error."""
        return -0.5 * (action - self.action).square().sum(-1)

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return the action, with its gradient."""
        return self.action

    @torch.no_grad()
    def sample(self) -> Float[Tensor, "*lead A"]:
        """Return the action."""
        return self.action

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the action."""
        return self.action

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return zero."""
        return torch.zeros_like(self.action[..., 0])


@DISTRIBUTIONS.register("deterministic")
class DeterministicHead(DistributionHead):
    """``tanh`` of the parameters."""

    kinds = ("continuous",)

    def __init__(self, codec: ActionCodec) -> None:
        super().__init__(codec)
        self.num_parameters = codec.dim

    def forward(self, parameters: Tensor, action_mask: Tensor | None) -> Deterministic:
        """Return the action in [-1, 1]."""
        return Deterministic(parameters.tanh())


AUTO_DISTRIBUTION = {"categorical": "categorical", "binary": "bernoulli", "continuous": "tanh_gaussian"}


def build_head(name: str, options: dict[str, Any], codec: ActionCodec) -> DistributionHead:
    """Return the head ``name``; ``auto`` is the one for the codec's kind of action.

    Raises:
        ConfigError: If the distribution cannot represent these actions.
    """
    if name == "auto":
        name = AUTO_DISTRIBUTION[codec.kind]
    head: DistributionHead = DISTRIBUTIONS.get(name)(codec, **options)
    if codec.kind not in head.kinds:
        fitting = [n for n in DISTRIBUTIONS.names() if n in DISTRIBUTIONS and codec.kind in DISTRIBUTIONS.get(n).kinds]
        raise ConfigError(
            f"algo.distribution.type {name!r} cannot represent {codec.space!r}; use one of: auto, {', '.join(fitting)}"
        )
    return head
