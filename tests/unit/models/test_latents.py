"""Latents: divergences against integrals and torch's own, draws against their moments."""

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal, kl_divergence
from torch.nn.functional import softplus

from seqrl.models.latents import CategoricalLatent, GaussianLatent, MixtureLatent

NUM = 200_000


def parameters(width, seed):
    return torch.randn(width, generator=torch.Generator().manual_seed(seed)).double()


def normal(p):
    mean, raw = p.chunk(2, -1)
    return Independent(Normal(mean, softplus(raw) + 1e-3), 1)


@pytest.mark.parametrize("is_learned", [False, True])
def test_gaussian_divergence_is_that_of_torch(is_learned):
    latent = GaussianLatent(3, is_learned=is_learned)
    q, p = parameters(6, 0), parameters(latent.num_prior, 1)
    _, divergence = latent.draw(q, p)
    prior = normal(p) if is_learned else Independent(Normal(torch.zeros(3).double(), torch.ones(3).double()), 1)
    torch.testing.assert_close(divergence, kl_divergence(normal(q), prior))


def test_mixture_divergence_is_right_on_average():
    latent = MixtureLatent(2, 3)
    q, p = parameters(4, 0), parameters(latent.num_prior, 1)
    torch.manual_seed(0)
    _, estimates = latent.draw(q.expand(NUM, -1), p.expand(NUM, -1))
    logits, means, raw = p.split((3, 6, 6))
    modes = Independent(Normal(means.reshape(3, 2), softplus(raw).reshape(3, 2) + 1e-3), 1)
    prior = MixtureSameFamily(Categorical(logits=logits), modes)
    x = normal(q).sample((NUM,))
    expected = (normal(q).log_prob(x) - prior.log_prob(x)).mean()
    torch.testing.assert_close(estimates.mean(), expected, atol=0.02, rtol=0.02)
    draws = latent.from_prior(p.expand(NUM, -1), is_greedy=False)
    torch.testing.assert_close(draws.mean(0), prior.mean, atol=0.02, rtol=0.02)
    torch.testing.assert_close(draws.var(0), prior.variance, atol=0.03, rtol=0.03)
    best = means.reshape(3, 2)[logits.argmax()]
    torch.testing.assert_close(latent.from_prior(p, is_greedy=True), best)


@pytest.mark.parametrize("is_learned", [False, True])
def test_categorical_divergence_and_draws(is_learned):
    latent = CategoricalLatent(2, 4, is_learned=is_learned).eval()
    q, p = parameters(8, 0), parameters(latent.num_prior, 1)
    _, divergence = latent.draw(q, p)
    prior_logits = p.reshape(2, 4) if is_learned else torch.zeros(2, 4).double()
    expected = kl_divergence(Categorical(logits=q.reshape(2, 4)), Categorical(logits=prior_logits)).sum()
    torch.testing.assert_close(divergence, expected)
    torch.manual_seed(0)
    z, _ = latent.draw(q.expand(NUM, -1), p.expand(NUM, -1))
    torch.testing.assert_close(z.reshape(NUM, 2, 4).max(-1).values, torch.ones(NUM, 2).double())
    torch.testing.assert_close(z.mean(0), q.reshape(2, 4).softmax(-1).flatten(), atol=0.01, rtol=0.02)
    draws = latent.from_prior(p.expand(NUM, -1), is_greedy=False)
    torch.testing.assert_close(draws.mean(0), prior_logits.softmax(-1).flatten(), atol=0.01, rtol=0.02)


def test_relaxed_draws_sharpen_as_the_temperature_falls():
    latent = CategoricalLatent(1, 4, is_learned=False, temperature=1.0, step=0.25, min_temperature=0.1)
    q = parameters(4, 0).expand(5000, -1)
    sharpness = []
    for _ in range(4):
        torch.manual_seed(0)
        z, _ = latent.draw(q, q[:, :0])
        torch.testing.assert_close(z.sum(-1), torch.ones(5000).double())
        sharpness.append(float(z.max(-1).values.mean()))
        latent.move()
    assert sharpness == sorted(sharpness)
    assert sharpness[-1] > sharpness[0] + 0.1
    assert float(latent.temperature) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "latent", [GaussianLatent(2, is_learned=True), MixtureLatent(2, 2)], ids=["gaussian", "mixture"]
)
def test_gradients_reach_posterior_and_prior(latent):
    q = parameters(latent.num_posterior, 0).requires_grad_()
    p = parameters(latent.num_prior, 1).requires_grad_()
    z, divergence = latent.draw(q, p)
    (z.sum() + divergence).backward()
    assert (q.grad != 0).all()
    assert np.isfinite(p.grad.numpy()).all()
    assert (p.grad != 0).any()
