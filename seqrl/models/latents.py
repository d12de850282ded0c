"""Latent vectors of variational auto-encoders: how a posterior is drawn from, and its divergence from a prior.

A latent turns a vector of parameters into draws and divergences; the networks that give the parameters lie elsewhere.
Parameters of a *prior* may be those of other states than the posterior's, or fixed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import one_hot, softplus

MIN_STD = 1e-3


class Latent(nn.Module, ABC):
    """Base of all kinds of latents.

    Attributes:
        width: Of a draw.
        num_posterior: Parameters of the posterior.
        num_prior: Parameters of the prior; 0 if it is fixed.
    """

    width: int
    num_posterior: int
    num_prior: int

    @abstractmethod
    def draw(
        self, posterior: Float[Tensor, "*lead P"], prior: Float[Tensor, "*lead Q"]
    ) -> tuple[Float[Tensor, "*lead Z"], Float[Tensor, "*lead"]]:
        """Return a draw from the posterior, with gradient, and its divergence from the prior in nats."""

    @abstractmethod
    def from_prior(
        self, prior: Float[Tensor, "*lead Q"], *, is_greedy: bool, shared: torch.Generator | None = None
    ) -> Float[Tensor, "*lead Z"]:
        """Return a draw from the prior, or its most likely value.

        Args:
            prior: Its parameters.
            is_greedy: Draw nothing.
            shared: Where draws come from that are the same at all positions but the first; None draws each by itself.
        """

    def move(self) -> None:
        """Called after every gradient step."""


class GaussianLatent(Latent):
    """Diagonal Gaussians; the prior is N(0, 1), or learned (Kingma & Welling, 2014, arXiv 1312.6114, appendix B).

    Args:
        dim: Latent numbers.
        is_learned: Whether the prior is learned.
        clip: What is drawn from the prior stays within so many of its deviations; None leaves it.
    """

    def __init__(self, dim: int, *, is_learned: bool, clip: float | None = None) -> None:
        super().__init__()
        self.clip = clip
        self.width = dim
        self.num_posterior = 2 * dim
        self.num_prior = 2 * dim if is_learned else 0

    def draw(self, posterior: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Return a draw, and the divergence in closed form."""
        mean, std = _mean_and_std(posterior)
        other_mean, other_std = self._prior(prior, mean)
        ratio = std / other_std
        divergence = 0.5 * (ratio.square() + ((mean - other_mean) / other_std).square() - 1) - ratio.log()
        return mean + std * torch.randn_like(mean), divergence.sum(-1)

    def from_prior(self, prior: Tensor, *, is_greedy: bool, shared: torch.Generator | None = None) -> Tensor:
        """Return a draw, or the mean."""
        like = prior.new_zeros((*prior.shape[:-1], self.width))
        mean, std = self._prior(prior, like)
        return mean if is_greedy else mean + std * _normal(mean, shared, self.clip)

    def _prior(self, prior: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        return _mean_and_std(prior) if self.num_prior else (torch.zeros_like(like), torch.ones_like(like))


class MixtureLatent(Latent):
    """A Gaussian posterior, and a learned mixture of Gaussians as prior; the divergence is estimated by the draw.

    Args:
        dim: Latent numbers.
        num_modes: Gaussians of the prior.
        learns_weights: Whether their weights are learned, or all alike.
        clip: What is drawn from the prior stays within so many deviations of its Gaussian; None leaves it.
    """

    def __init__(self, dim: int, num_modes: int, *, learns_weights: bool = True, clip: float | None = None) -> None:
        super().__init__()
        self.learns_weights, self.clip = learns_weights, clip
        self.width = dim
        self.num_modes = num_modes
        self.num_posterior = 2 * dim
        self.num_prior = num_modes * (1 + 2 * dim)

    def draw(self, posterior: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Return a draw, and ``log q - log p`` at it: an unbiased estimate of the divergence."""
        mean, std = _mean_and_std(posterior)
        z = mean + std * torch.randn_like(mean)
        log_weights, means, stds = self._modes(prior)
        log_prior = torch.logsumexp(log_weights + _log_normal(z.unsqueeze(-2), means, stds).sum(-1), dim=-1)
        return z, _log_normal(z, mean, std).sum(-1) - log_prior

    def from_prior(self, prior: Tensor, *, is_greedy: bool, shared: torch.Generator | None = None) -> Tensor:
        """Return a draw, or the mean of the mode with the largest weight."""
        log_weights, means, stds = self._modes(prior)
        gumbel = 0.0 if is_greedy else _gumbel(log_weights, shared)
        index = (log_weights + gumbel).argmax(-1)[..., None, None].expand(*log_weights.shape[:-1], 1, self.width)
        mean, std = (x.gather(-2, index).squeeze(-2) for x in (means, stds))
        return mean if is_greedy else mean + std * _normal(mean, shared, self.clip)

    def _modes(self, prior: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        num = self.num_modes * self.width
        logits, mean, raw = prior.split((self.num_modes, num, num), dim=-1)
        mean, raw = (x.unflatten(-1, (self.num_modes, -1)) for x in (mean, raw))
        if not self.learns_weights:
            logits = logits * 0.0
        return logits.log_softmax(-1), mean, softplus(raw) + MIN_STD


class CategoricalLatent(Latent):
    """Independent categorical variables, drawn by a Gumbel-softmax whose temperature falls.

    Args:
        dim: Variables.
        num_categories: Values of each.
        is_learned: Whether the prior is learned, or uniform.
        temperature: At first.
        step: By which it falls after each gradient step.
        min_temperature: Where it stays.

    Source: Jang et al. (2017, arXiv 1611.01144), section 2.2.
    """

    temperature: Tensor

    def __init__(
        self,
        dim: int,
        num_categories: int,
        *,
        is_learned: bool,
        temperature: float = 1.0,
        step: float = 0.001,
        min_temperature: float = 0.3,
    ) -> None:
        super().__init__()
        self.dim, self.num_categories = dim, num_categories
        self.width = self.num_posterior = dim * num_categories
        self.num_prior = self.width if is_learned else 0
        self._step, self._min = step, min_temperature
        self.register_buffer("temperature", torch.tensor(temperature))

    def draw(self, posterior: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
        """Return relaxed draws in training and one-hot ones in evaluation, and the divergence in closed form."""
        logits = posterior.unflatten(-1, (self.dim, self.num_categories))
        log_q = logits.log_softmax(-1)
        log_p = self._log_prior(prior, log_q)
        z = ((logits - torch.empty_like(logits).exponential_().log()) / self.temperature).softmax(-1)
        if not self.training:
            z = one_hot(z.argmax(-1), self.num_categories).to(z.dtype)
        return z.flatten(-2), (log_q.exp() * (log_q - log_p)).sum((-1, -2))

    def from_prior(self, prior: Tensor, *, is_greedy: bool, shared: torch.Generator | None = None) -> Tensor:
        """Return one-hot draws, or the likeliest categories."""
        like = prior.new_zeros((*prior.shape[:-1], self.dim, self.num_categories))
        logits = self._log_prior(prior, like)
        gumbel = 0.0 if is_greedy else _gumbel(logits, shared, num_last=2)
        drawn: Tensor = one_hot((logits + gumbel).argmax(-1), self.num_categories).to(prior.dtype).flatten(-2)
        return drawn

    def _log_prior(self, prior: Tensor, like: Tensor) -> Tensor:
        if not self.num_prior:
            return torch.full_like(like, -math.log(self.num_categories))
        log_prior: Tensor = prior.unflatten(-1, (self.dim, self.num_categories)).log_softmax(-1)
        return log_prior

    @torch.no_grad()
    def move(self) -> None:
        """Lower the temperature."""
        self.temperature.copy_((self.temperature - self._step).clamp(min=self._min))


def _normal(like: Tensor, shared: torch.Generator | None, clip: float | None) -> Tensor:
    if shared is None:
        drawn = torch.randn_like(like)
    else:
        drawn = torch.empty(_shared_shape(like, 1), dtype=like.dtype, device=like.device)
        drawn = drawn.normal_(generator=shared).expand_as(like)
    return drawn if clip is None else drawn.clamp(-clip, clip)


def _gumbel(like: Tensor, shared: torch.Generator | None, num_last: int = 1) -> Tensor:
    shape = like.shape if shared is None else _shared_shape(like, num_last)
    drawn = torch.empty(shape, dtype=like.dtype, device=like.device).exponential_(generator=shared)
    return -drawn.log().expand_as(like)


def _shared_shape(like: Tensor, num_last: int) -> tuple[int, ...]:
    """Return the shape of draws that depend on the first dimension and the last ones."""
    return (like.shape[0], *[1] * (like.dim() - 1 - num_last), *like.shape[-num_last:])


def _mean_and_std(parameters: Tensor) -> tuple[Tensor, Tensor]:
    mean, raw = parameters.chunk(2, dim=-1)
    return mean, softplus(raw) + MIN_STD


def _log_normal(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return -0.5 * ((x - mean) / std).square() - std.log() - 0.5 * math.log(2 * math.pi)
