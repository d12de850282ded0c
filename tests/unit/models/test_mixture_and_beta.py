"""Mixture and Beta densities against scipy, numerical integration and the laws of their samples."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats
from scipy.special import logsumexp

from seqrl.core.spaces import ActionCodec
from seqrl.models.distributions import Beta, build_head

BOX = ActionCodec(spaces.Box(-1.0, 1.0, (2,)))
LINE = ActionCodec(spaces.Box(-1.0, 1.0, (1,)))


@pytest.fixture
def rng():
    torch.manual_seed(0)
    return np.random.default_rng(0)


def softplus(x):
    return np.log1p(np.exp(x))


def mixture_reference(parameters, action, num_modes, dim):
    """Return the log-density in float64 from the raw parameters."""
    logits, mean, raw = np.split(parameters, [num_modes, num_modes * (1 + dim)], axis=-1)
    mean, std = np.tanh(mean.reshape(-1, num_modes, dim)), softplus(raw.reshape(-1, num_modes, dim)) + 0.05
    of_modes = stats.norm.logpdf(action[:, None], mean, std).sum(-1)
    weights = logits - logsumexp(logits, axis=-1, keepdims=True)
    return logsumexp(weights + of_modes, axis=-1)


def test_mixture_log_prob_against_float64(rng):
    head = build_head("gmm", {"num_modes": 3}, BOX)
    assert head.num_parameters == 3 * (1 + 2 * 2)
    parameters = rng.normal(size=(50, head.num_parameters))
    action = rng.uniform(-0.98, 0.98, (50, 2))
    got = head(torch.tensor(parameters), None).log_prob(torch.tensor(action)).numpy()
    np.testing.assert_allclose(got, mixture_reference(parameters, action, 3, 2), rtol=1e-9)


def test_mixture_integrates_to_one_and_its_samples_follow_it():
    torch.manual_seed(1)
    parameters = torch.tensor([1.0, 0.0, -0.7, 0.9, -1.0, -1.0], dtype=torch.float64)  # two modes
    grid = torch.linspace(-5.0, 5.0, 100_001, dtype=torch.float64)
    head = build_head("gmm", {"num_modes": 2}, LINE)
    density = head(parameters.expand(len(grid), -1), None).log_prob(grid[:, None]).exp().numpy()
    assert np.trapezoid(density, grid.numpy()) == pytest.approx(1.0, abs=2e-3)
    samples = head(parameters.expand(20_000, -1), None).sample()[:, 0].numpy()
    w, std = 1 / (1 + math.exp(-1.0)), softplus(-1.0) + 0.05

    def cdf(a):
        return w * stats.norm.cdf(a, math.tanh(-0.7), std) + (1 - w) * stats.norm.cdf(a, math.tanh(0.9), std)

    assert stats.kstest(samples, cdf).pvalue > 1e-4
    assert head(parameters, None).mode().item() == pytest.approx(math.tanh(-0.7))


def test_mixture_has_no_reparametrised_sample():
    head = build_head("gmm", {}, BOX)
    assert not head.has_rsample
    dist = head(torch.zeros(4, head.num_parameters, requires_grad=True), None)
    with pytest.raises(NotImplementedError):
        dist.rsample()
    assert dist.entropy().shape == (4,)
    assert not dist.sample().requires_grad


def test_mixture_gradients_are_finite_far_out():
    head = build_head("gmm", {}, BOX)
    parameters = (100 * torch.randn(8, head.num_parameters)).requires_grad_()
    head(parameters, None).log_prob(torch.full((8, 2), 1.0)).sum().backward()
    assert torch.isfinite(parameters.grad).all()


def test_beta_log_prob_entropy_and_mode_against_scipy(rng):
    head = build_head("beta", {}, BOX)
    parameters = rng.normal(scale=2.0, size=(40, 4))
    action = rng.uniform(-0.98, 0.98, (40, 2))
    dist = head(torch.tensor(parameters), None)
    a, b = np.split(softplus(parameters) + 1.0001, 2, axis=-1)
    law = stats.beta(a, b, loc=-1, scale=2)
    np.testing.assert_allclose(dist.log_prob(torch.tensor(action)).numpy(), law.logpdf(action).sum(-1), rtol=1e-7)
    np.testing.assert_allclose(dist.entropy().numpy(), law.entropy().sum(-1), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(dist.mode().numpy(), 2 * (a - 1) / (a + b - 2) - 1, rtol=1e-9)


def test_beta_samples_follow_the_law_and_carry_gradients(rng):
    alpha = torch.full((20_000, 1), 2.5, dtype=torch.float64, requires_grad=True)
    dist = Beta(alpha, torch.full((20_000, 1), 1.7, dtype=torch.float64))
    for draw in (dist.sample(), dist.rsample().detach()):
        assert stats.kstest(draw[:, 0].numpy(), stats.beta(2.5, 1.7, loc=-1, scale=2).cdf).pvalue > 1e-4
    (gradient,) = torch.autograd.grad(dist.rsample().mean(), alpha)
    exact = 2 * 1.7 / (2.5 + 1.7) ** 2  # of 2 alpha / (alpha + beta) - 1
    assert gradient.sum().item() == pytest.approx(exact, rel=0.03)


def test_the_standard_deviation_can_be_clipped_instead():
    head = build_head("tanh_gaussian", {"std_activation": "clip", "min_log_std": -2.0, "max_log_std": 1.0}, LINE)
    raw = torch.tensor([[0.0, -9.0], [0.0, 0.25], [0.0, 9.0]])
    assert head(raw, None).log_std[:, 0].tolist() == [-2.0, 0.25, 1.0]
