"""Distributions over continuous actions: in [-1, 1], or around it where they are not squashed."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, softplus

from seqrl.core.registry import DISTRIBUTIONS
from seqrl.core.spaces import ActionCodec
from seqrl.models.distributions.base import ActionDistribution, DistributionHead

MAX_ACTION = 0.99
"""Densities are read within +-0.99, where ``atanh`` is still tame."""

_POSITIVE: dict[str, Callable[[Tensor], Tensor]] = {"softplus": softplus, "exp": torch.exp}
MIN_BETA_SHAPE = 1.0001
LOG_LOW_NOISE = math.log(1e-4)
"""Log standard deviation of what acts in evaluation with hardly any noise."""

MIN_ACTION_LENGTH = 1e-3


def _log_normal(x: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    z = (x - mean) * (-log_std).exp()
    return -0.5 * z.square() - log_std - 0.5 * math.log(2 * math.pi)


def _log_tanh_slope(x: Tensor) -> Tensor:
    """Return ``log(1 - tanh(x)^2)``, exact far from zero too."""
    return 2 * (math.log(2) - x - softplus(-2 * x))


class TanhGaussian(ActionDistribution):
    r"""``tanh(x)``, ``x`` Gaussian with diagonal covariance.

    The density of an action ``a`` is that of ``atanh(a)`` divided by :math:`\prod (1 - a^2)` (Haarnoja et al., 2018,
    appendix C); actions beyond +-0.99 are read as +-0.99, where ``atanh`` is still tame.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the log-density, summed over dimensions."""
        return self._log_prob_before_tanh(action.clamp(-MAX_ACTION, MAX_ACTION).atanh())

    def _log_prob_before_tanh(self, x: Tensor) -> Tensor:
        return (_log_normal(x, self.mean, self.log_std) - _log_tanh_slope(x)).sum(-1)

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw through which gradients flow."""
        return (self.mean + self.log_std.exp() * torch.randn_like(self.mean)).tanh()

    @torch.no_grad()
    def sample_with_log_prob(self) -> tuple[Float[Tensor, "*lead A"], Float[Tensor, "*lead"]]:
        """Return a draw and its log-density, which is exact near +-1 too, as it is that of the draw before the tanh."""
        x = self.mean + self.log_std.exp() * torch.randn_like(self.mean)
        return x.tanh(), self._log_prob_before_tanh(x)

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return ``tanh(mean)``."""
        return self.mean.tanh()

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return a one-sample estimate."""
        x = self.mean + self.log_std.exp() * torch.randn_like(self.mean)
        return -self._log_prob_before_tanh(x)


@DISTRIBUTIONS.register("tanh_gaussian")
class TanhGaussianHead(DistributionHead):
    """Mean and log standard deviation per dimension; the latter kept within its range by a tanh, or by clipping."""

    kinds = ("continuous",)

    def __init__(
        self, codec: ActionCodec, *, min_log_std: float = -5.0, max_log_std: float = 2.0, std_activation: str = "tanh"
    ) -> None:
        super().__init__(codec)
        self.num_parameters = 2 * codec.dim
        self.is_clipped = std_activation == "clip"
        self.max_log_std = max_log_std
        self.min_log_std = min_log_std
        self.half_range = 0.5 * (max_log_std - min_log_std)

    def forward(self, parameters: Tensor, action_mask: Tensor | None) -> TanhGaussian:
        """Return the distribution with mean the first half of the parameters."""
        mean, raw = parameters.chunk(2, dim=-1)
        if self.is_clipped:
            return TanhGaussian(mean, raw.clamp(self.min_log_std, self.max_log_std))
        return TanhGaussian(mean, self.min_log_std + self.half_range * (1 + raw.tanh()))


class Gaussian(ActionDistribution):
    """Independent Gaussians, not squashed: samples may leave [-1, 1].

    Args:
        mean: ``(*lead, A)``.
        log_std: Likewise.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the log-density, summed over dimensions."""
        return _log_normal(action, self.mean, self.log_std).sum(-1)

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw through which gradients flow."""
        return self.mean + self.log_std.exp() * torch.randn_like(self.mean)

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the mean."""
        return self.mean

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return the sum of the dimensions' entropies."""
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def low_noise(self) -> Gaussian:
        """Return the distribution with a standard deviation of 1e-4."""
        return Gaussian(self.mean, torch.full_like(self.log_std, LOG_LOW_NOISE))


@DISTRIBUTIONS.register("gaussian")
class GaussianHead(DistributionHead):
    """Mean per dimension, through a tanh if bounded; then the raw standard deviations, if they depend on the state.

    One standard deviation for all states is a weight of this module. A learned standard deviation is
    ``softplus(raw + c) + min_std``, or with ``exp``, with c such that it is ``init_std`` at 0.
    """

    kinds = ("continuous",)

    def __init__(
        self,
        codec: ActionCodec,
        *,
        is_bounded: bool = True,
        fixed_std: float | None = None,
        std: str = "per_state",
        init_std: float = 0.5,
        min_std: float = 0.01,
        std_activation: str = "softplus",
        low_noise_eval: bool = True,
    ) -> None:
        super().__init__(codec)
        is_per_state = fixed_std is None and std == "per_state"
        self.num_parameters = codec.dim * (2 if is_per_state else 1)
        self.shared_std = nn.Parameter(torch.zeros(codec.dim)) if fixed_std is None and not is_per_state else None
        self.is_bounded = is_bounded
        self.has_entropy = fixed_std is None
        self.fixed_std = fixed_std
        self.min_std = min_std
        excess = init_std - min_std
        self.positive = _POSITIVE[std_activation]
        self.offset = math.log(excess) if std_activation == "exp" else excess + math.log(-math.expm1(-excess))
        self.low_noise_eval = low_noise_eval

    def forward(self, parameters: Tensor, action_mask: Tensor | None) -> Gaussian:
        """Return the distribution: means first, then raw standard deviations, if they depend on the state."""
        if self.fixed_std is None:
            mean, raw = (parameters, self.shared_std) if self.shared_std is not None else parameters.chunk(2, dim=-1)
            raw = raw.expand_as(mean)
            log_std = (self.positive(raw + self.offset) + self.min_std).log()
        else:
            mean, log_std = parameters, torch.full_like(parameters, math.log(self.fixed_std))
        return Gaussian(mean.tanh() if self.is_bounded else mean, log_std)


class Deterministic(ActionDistribution):
    """One action per position, whose log-probability is minus a weighted sum of errors.

    Args:
        action: ``(*lead, A)``.
        l2_weight: Of half the squared error: with 1 alone, that of a unit-variance Gaussian without its constant.
        l1_weight: Of the absolute error.
        cosine_weight: Of 1 minus the cosine of the angle between the action vectors.
    """

    def __init__(
        self, action: Tensor, *, l2_weight: float = 1.0, l1_weight: float = 0.0, cosine_weight: float = 0.0
    ) -> None:
        self.action = action
        self._l2, self._l1, self._cosine = l2_weight, l1_weight, cosine_weight

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return minus the error, squared and absolute errors summed over dimensions.

        The cosine reads lengths below 1e-3 as 1e-3, so that its gradient stays finite.
        """
        error = action - self.action
        log_prob = -0.5 * self._l2 * error.square().sum(-1)
        if self._l1:
            log_prob = log_prob - self._l1 * error.abs().sum(-1)
        if self._cosine:
            cosine = cosine_similarity(action, self.action, dim=-1, eps=MIN_ACTION_LENGTH)
            log_prob = log_prob - self._cosine * (1 - cosine)
        return log_prob

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return the action, with its gradient."""
        return self.action

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the action."""
        return self.action

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return zero."""
        return torch.zeros_like(self.action[..., 0])


@DISTRIBUTIONS.register("deterministic")
class DeterministicHead(DistributionHead):
    """The parameters, through a tanh if bounded; the weights are those of :class:`Deterministic`."""

    kinds = ("continuous",)
    has_entropy = False

    def __init__(
        self,
        codec: ActionCodec,
        *,
        is_bounded: bool = True,
        l2_weight: float = 1.0,
        l1_weight: float = 0.0,
        cosine_weight: float = 0.0,
    ) -> None:
        super().__init__(codec)
        self.num_parameters = codec.dim
        self.is_bounded = is_bounded
        self.weights = {"l2_weight": l2_weight, "l1_weight": l1_weight, "cosine_weight": cosine_weight}

    def forward(self, parameters: Tensor, action_mask: Tensor | None) -> Deterministic:
        """Return the action."""
        return Deterministic(parameters.tanh() if self.is_bounded else parameters, **self.weights)


class GaussianMixture(ActionDistribution):
    """A draw from one of M diagonal Gaussians, each over the whole action.

    Args:
        log_weights: ``(*lead, M)``, normalised.
        mean: ``(*lead, M, A)``.
        log_std: ``(*lead, M, A)``.
    """

    def __init__(self, log_weights: Tensor, mean: Tensor, log_std: Tensor) -> None:
        self.log_weights, self.mean, self.log_std = log_weights, mean, log_std

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the log-density."""
        of_modes = _log_normal(action.unsqueeze(-2), self.mean, self.log_std).sum(-1)
        log_prob: Tensor = torch.logsumexp(self.log_weights + of_modes, dim=-1)
        return log_prob

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Refuse: the choice of a mode has no gradient.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("a mixture has no reparametrised sample")

    @torch.no_grad()
    def sample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw."""
        noisy = self.log_weights - torch.empty_like(self.log_weights).exponential_().log()
        mean, log_std = self._of_mode(noisy.argmax(-1))
        return mean + log_std.exp() * torch.randn_like(mean)

    def _of_mode(self, index: Tensor) -> tuple[Tensor, Tensor]:
        chosen = index[..., None, None].expand(*index.shape, 1, self.mean.shape[-1])
        return self.mean.gather(-2, chosen).squeeze(-2), self.log_std.gather(-2, chosen).squeeze(-2)

    def modes(self) -> Float[Tensor, "M *lead A"]:
        """Return the actions at the means of all Gaussians."""
        return self.mean.movedim(-2, 0)

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the action at the mean of the Gaussian with the largest weight."""
        return self._of_mode(self.log_weights.argmax(-1))[0]

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return a one-sample estimate, whose gradient is not that of the entropy."""
        return -self.log_prob(self.sample())

    def low_noise(self) -> GaussianMixture:
        """Return the mixture with standard deviations of 1e-4."""
        return GaussianMixture(self.log_weights, self.mean, torch.full_like(self.log_std, LOG_LOW_NOISE))


@DISTRIBUTIONS.register("gmm")
class GaussianMixtureHead(DistributionHead):
    """Weights, means (through a tanh if bounded) and standard deviations (at least ``min_std``) of a mixture."""

    kinds = ("continuous",)
    has_rsample = False

    def __init__(
        self,
        codec: ActionCodec,
        *,
        num_modes: int = 5,
        min_std: float = 0.05,
        std_activation: str = "softplus",
        is_bounded: bool = True,
        low_noise_eval: bool = True,
    ) -> None:
        super().__init__(codec)
        self.min_std, self.positive = min_std, _POSITIVE[std_activation]
        self.num_modes = num_modes
        self.is_bounded = is_bounded
        self.low_noise_eval = low_noise_eval
        self.num_parameters = num_modes * (1 + 2 * codec.dim)

    def forward(self, parameters: Tensor, action_mask: Tensor | None) -> GaussianMixture:
        """Return the mixture: logits of the weights first, then means, then raw standard deviations."""
        num = (self.num_parameters - self.num_modes) // 2
        logits, mean, raw = parameters.split((self.num_modes, num, num), dim=-1)
        mean, raw = (x.unflatten(-1, (self.num_modes, -1)) for x in (mean, raw))
        log_std = (self.positive(raw) + self.min_std).log()
        return GaussianMixture(logits.log_softmax(-1), mean.tanh() if self.is_bounded else mean, log_std)


class Beta(ActionDistribution):
    """Independent Beta distributions, stretched from [0, 1] to [-1, 1] (Chou et al., 2017).

    Args:
        alpha: ``(*lead, A)``, above 1.
        beta: Likewise, so that there is one peak.
    """

    def __init__(self, alpha: Tensor, beta: Tensor) -> None:
        self.alpha, self.beta = alpha, beta
        self._unit = torch.distributions.Beta(alpha, beta, validate_args=False)

    def log_prob(self, action: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead"]:
        """Return the log-density, summed over dimensions."""
        x = (action.clamp(-MAX_ACTION, MAX_ACTION) + 1) / 2
        log_prob: Tensor = (self._unit.log_prob(x) - math.log(2)).sum(-1)
        return log_prob

    def rsample(self) -> Float[Tensor, "*lead A"]:
        """Return a draw through which gradients flow (implicitly: Figurnov et al., 2018)."""
        unit: Tensor = self._unit.rsample()
        return 2 * unit - 1

    def mode(self) -> Float[Tensor, "*lead A"]:
        """Return the peak."""
        return 2 * (self.alpha - 1) / (self.alpha + self.beta - 2) - 1

    def entropy(self) -> Float[Tensor, "*lead"]:
        """Return the sum of the dimensions' entropies."""
        entropy: Tensor = (self._unit.entropy() + math.log(2)).sum(-1)
        return entropy


@DISTRIBUTIONS.register("beta")
class BetaHead(DistributionHead):
    """Both shapes of a Beta distribution per dimension, softplus + 1.0001."""

    kinds = ("continuous",)

    def __init__(self, codec: ActionCodec) -> None:
        super().__init__(codec)
        self.num_parameters = 2 * codec.dim

    def forward(self, parameters: Tensor, action_mask: Tensor | None) -> Beta:
        """Return the distribution."""
        alpha, beta = (softplus(parameters) + MIN_BETA_SHAPE).chunk(2, dim=-1)
        return Beta(alpha, beta)
