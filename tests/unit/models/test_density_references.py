"""Every head, from its raw parameters, against float64 references that share no code with it.

Densities against scipy, total mass and moments by quadrature of the reference, and the maximum of the likelihood at
parameters that are known.
"""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats

from seqrl.core.spaces import ActionCodec
from seqrl.models.distributions import build_head

PLANE = ActionCodec(spaces.Box(-1.0, 1.0, (2,)))
LINE = ActionCodec(spaces.Box(-1.0, 1.0, (1,)))
ONE = ActionCodec(spaces.Discrete(5))
FACTORED = ActionCodec(spaces.MultiDiscrete([3, 2]))
BITS = ActionCodec(spaces.MultiBinary(3))


# ------------------------------------------------------------------------------------------- references
def softplus(x):
    return np.logaddexp(0.0, x)


def categorical(raw, action, factors=(5,), mass=0.001):
    """Mix each factor's softmax with the uniform distribution."""
    total, start = 0.0, 0
    for n in factors:
        e = np.exp(raw[start : start + n] - raw[start : start + n].max())
        total += np.log((1 - mass) * e / e.sum() + mass / n)[action[start : start + n].argmax()]
        start += n
    return total


def factored(raw, action):
    return categorical(raw, action, (3, 2), 0.1)


def bernoulli(raw, action):
    return stats.bernoulli.logpmf(action.astype(int), 1 / (1 + np.exp(-raw))).sum()


def tanh_gaussian(raw, action):
    """Change variables: the density of ``atanh(a)`` times the slope of ``atanh``, 1 / (1 - a^2)."""
    mean, log_std = np.split(raw, 2)
    std = np.exp(-1.5 + 3.5 * np.tanh(log_std))  # between exp(-5) and exp(2)
    return (stats.norm.logpdf(np.arctanh(action), mean, std) + np.log(1 / (1 - action**2))).sum()


def gaussian(raw, action):
    """Add to a softplus that is 0.49 at 0, so that the standard deviation is 0.5 there."""
    mean, std = np.split(raw, 2)
    return stats.norm.logpdf(action, np.tanh(mean), 0.01 + softplus(std + np.log(np.exp(0.49) - 1))).sum()


def wide_gaussian(raw, action):
    mean, std = np.split(raw, 2)
    return stats.norm.logpdf(action, mean, 0.1 + softplus(std + np.log(np.exp(1.1) - 1))).sum()


def fixed_gaussian(raw, action):
    return stats.norm.logpdf(action, np.tanh(raw), 0.3).sum()


def free_mixture(raw, action):
    """Add up three products of normal densities, in the plain order."""
    dim = len(action)
    weights = np.exp(raw[:3]) / np.exp(raw[:3]).sum()
    means, stds = raw[3 : 3 + 3 * dim].reshape(3, dim), softplus(raw[3 + 3 * dim :].reshape(3, dim)) + 0.05
    parts = [w * stats.multivariate_normal.pdf(action, means[k], np.diag(stds[k] ** 2)) for k, w in enumerate(weights)]
    return np.log(sum(parts))


def mixture(raw, action):
    num = 3 * len(action)
    return free_mixture(np.concatenate([raw[:3], np.tanh(raw[3 : 3 + num]), raw[3 + num :]]), action)


def beta(raw, action):
    a, b = np.split(softplus(raw) + 1.0001, 2)
    return stats.beta.logpdf(action, a, b, loc=-1, scale=2).sum()


THREE = {"num_modes": 3}
HEADS = {
    "categorical": ("categorical", {}, ONE, categorical),
    "factored": ("categorical", {"min_probability_mass": 0.1}, FACTORED, factored),
    "bernoulli": ("bernoulli", {}, BITS, bernoulli),
    "tanh_gaussian": ("tanh_gaussian", {}, PLANE, tanh_gaussian),
    "gaussian": ("gaussian", {}, PLANE, gaussian),
    "wide_gaussian": ("gaussian", {"is_bounded": False, "init_std": 1.2, "min_std": 0.1}, PLANE, wide_gaussian),
    "fixed_gaussian": ("gaussian", {"fixed_std": 0.3}, PLANE, fixed_gaussian),
    "mixture": ("gmm", THREE, PLANE, mixture),
    "free_mixture": ("gmm", {**THREE, "is_bounded": False}, PLANE, free_mixture),
    "beta": ("beta", {}, PLANE, beta),
}
"""Name -> head, options, actions, and the log-density of one action ``(A,)`` given raw parameters ``(P,)``."""
DENSITIES = [name for name, (_, _, codec, _) in HEADS.items() if codec is PLANE]
REACH = {"gaussian": 8.0, "wide_gaussian": 20.0, "fixed_gaussian": 4.0, "mixture": 8.0, "free_mixture": 12.0}
"""How far from 0 a quadrature has to go; 1 where it is not listed."""


@pytest.fixture(params=sorted(HEADS))
def name(request):
    torch.manual_seed(0)
    return request.param


def built(name, codec=None):
    head, options, own, reference = HEADS[name]
    return build_head(head, options, codec or own), reference


def on_a_line(name):
    """Return the head over one dimension, two raw parameter vectors for it, and its reference."""
    head, reference = built(name, LINE)
    return head, np.random.default_rng(3).normal(scale=0.5, size=(2, head.num_parameters)), reference


def every_action(codec):
    """Return all actions of a space without Box."""
    if codec.kind == "binary":
        return np.array(list(itertools.product([0.0, 1.0], repeat=codec.dim)))
    blocks = itertools.product(*(np.eye(n) for n in codec.factors))
    return np.array([np.concatenate(block) for block in blocks])


# -------------------------------------------------------------------------------------------- densities
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.float32, 2e-4)])
def test_log_prob_from_raw_parameters(name, dtype, tolerance):
    head, reference = built(name)
    codec, rng = HEADS[name][2], np.random.default_rng(1)
    raw = rng.normal(scale=1.5, size=(60, head.num_parameters)).astype(np.float32).astype(np.float64)
    action = (0.95 * codec.random(rng, 60) if codec is PLANE else codec.random(rng, 60)).astype(np.float64)
    expected = [reference(p, a) for p, a in zip(raw, action, strict=True)]
    got = head(torch.tensor(raw, dtype=dtype), None).log_prob(torch.tensor(action, dtype=dtype)).numpy()
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["gaussian", "wide_gaussian", "fixed_gaussian", "mixture", "free_mixture"])
def test_what_is_not_squashed_has_a_density_beyond_one(name):
    head, reference = built(name)
    raw, action = np.random.default_rng(2).normal(size=(2, head.num_parameters)), np.array([[1.7, -2.5], [-1.0, 3.0]])
    expected = [reference(p, a) for p, a in zip(raw, action, strict=True)]
    np.testing.assert_allclose(head(torch.tensor(raw), None).log_prob(torch.tensor(action)), expected, rtol=1e-9)


@pytest.mark.parametrize("name", sorted(DENSITIES))
def test_density_integrates_to_one(name):
    """The squashed ones are read as they are at 0.99 beyond it, so there only what lies within counts."""
    head, raws, reference = on_a_line(name)
    edge = REACH.get(name, 0.99)
    grid = np.linspace(-edge, edge, 10_001)
    for raw in raws:
        density = head(torch.tensor(raw), None).log_prob(torch.tensor(grid[:, None])).exp().numpy()
        outside = 0.0
        if edge < 1:
            tail = np.linspace(0.99, 1 - 1e-7, 201)
            outside = sum(
                np.trapezoid([np.exp(reference(raw, np.array([s * a]))) for a in tail], tail) for s in (1, -1)
            )
        assert np.trapezoid(density, grid) + outside == pytest.approx(1.0, abs=2e-4)


@pytest.mark.parametrize("name", ["categorical", "factored", "bernoulli"])
def test_probabilities_add_up_to_one(name):
    head, _ = built(name)
    actions = every_action(HEADS[name][2])
    raw = torch.tensor(np.random.default_rng(4).normal(scale=2.0, size=head.num_parameters))
    total = head(raw.expand(len(actions), -1), None).log_prob(torch.tensor(actions)).exp().sum()
    assert total.item() == pytest.approx(1.0, abs=1e-6)


# ---------------------------------------------------------------------------------------------- moments
def quadrature(reference, raw, reach):
    """Return points and their probabilities, by the reference alone."""
    points = np.linspace(-reach, reach, 1003)[1:-1]
    density = np.exp([reference(raw, np.array([x])) for x in points])
    return points, density / density.sum()


def check_moments(draws, points, mass):
    """Compare mean and variance of draws with the exact ones, within five standard errors."""
    mean = (mass * points).sum()
    variance = (mass * (points - mean) ** 2).sum()
    fourth = (mass * (points - mean) ** 4).sum()
    num = len(draws)
    assert draws.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / num))
    assert ((draws - mean) ** 2).mean() == pytest.approx(variance, abs=5 * np.sqrt((fourth - variance**2) / num))


@pytest.mark.parametrize("name", sorted(DENSITIES))
def test_samples_have_the_moments_of_the_density(name):
    torch.manual_seed(5)
    head, raws, reference = on_a_line(name)
    for raw in raws:
        points, mass = quadrature(reference, raw, REACH.get(name, 1.0))
        dist = head(torch.tensor(raw).expand(40_000, -1), None)
        check_moments(dist.sample().numpy()[:, 0], points, mass)
        if head.has_rsample:
            check_moments(dist.rsample().numpy()[:, 0], points, mass)


@pytest.mark.parametrize("name", ["categorical", "factored", "bernoulli"])
def test_draws_are_as_frequent_as_they_are_probable(name):
    torch.manual_seed(6)
    head, reference = built(name)
    actions = every_action(HEADS[name][2])
    raw = np.random.default_rng(5).normal(size=head.num_parameters)
    dist = head(torch.tensor(raw).expand(40_000, -1), None)
    expected = 40_000 * np.exp([reference(raw, a) for a in actions])
    for draws in (dist.sample().numpy(), dist.rsample().numpy()):
        counts = [(np.abs(draws - a).max(-1) < 1e-6).sum() for a in actions]
        assert sum(counts) == 40_000
        assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("name", sorted(DENSITIES))
def test_entropy_is_that_of_the_density(name):
    torch.manual_seed(7)
    head, raws, reference = on_a_line(name)
    points, mass = quadrature(reference, raws[0], REACH.get(name, 1.0))
    exact = -(mass * [reference(raws[0], np.array([x])) for x in points]).sum()
    entropy = head(torch.tensor(raws[0]).expand(40_000, -1), None).entropy()
    error = entropy.std().item() / 200
    assert entropy.mean().item() == pytest.approx(exact, abs=5 * error + 1e-3)


@pytest.mark.parametrize("name", ["gaussian", "wide_gaussian", "fixed_gaussian"])
def test_entropy_of_gaussians_adds_up_over_dimensions(name):
    head, _ = built(name)
    dist = head(torch.randn(4, head.num_parameters, dtype=torch.float64), None)
    expected = stats.norm.entropy(0.0, dist.log_std.exp().numpy()).sum(-1)
    np.testing.assert_allclose(dist.entropy().numpy(), expected, rtol=1e-9)


# ------------------------------------------------------------------------------------------- likelihood
def fitted(head, data):
    """Return the distribution that maximises the mean log-probability of ``data`` ``(N, A)``."""
    data = torch.tensor(data, dtype=torch.float64)
    torch.manual_seed(8)
    raw = (0.1 * torch.randn(head.num_parameters, dtype=torch.float64)).requires_grad_()
    optimizer = torch.optim.LBFGS([raw], max_iter=300, line_search_fn="strong_wolfe", tolerance_change=1e-12)

    def closure():
        optimizer.zero_grad()
        loss = -head(raw.expand(len(data), -1), None).log_prob(data).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return head(raw.detach(), None)


@pytest.mark.parametrize("name", ["gaussian", "wide_gaussian", "tanh_gaussian"])
def test_likelihood_peaks_at_mean_and_standard_deviation(name):
    x = np.random.default_rng(9).normal([0.3, -0.5], [0.2, 0.4], (2000, 2))
    dist = fitted(built(name)[0], np.tanh(x) if name == "tanh_gaussian" else x)
    np.testing.assert_allclose(dist.mean.numpy(), x.mean(0), atol=1e-4)
    np.testing.assert_allclose(dist.log_std.exp().numpy(), x.std(0), atol=1e-4)


def test_likelihood_of_a_fixed_standard_deviation_peaks_at_the_mean():
    x = np.random.default_rng(10).normal([0.3, -0.5], [0.1, 0.7], (2000, 2))
    dist = fitted(built("fixed_gaussian")[0], x)
    np.testing.assert_allclose(dist.mode().numpy(), x.mean(0), atol=1e-4)
    np.testing.assert_allclose(dist.log_std.exp().numpy(), 0.3)


@pytest.mark.parametrize("is_bounded", [True, False])
def test_likelihood_of_a_mixture_peaks_at_both_modes(is_bounded):
    rng = np.random.default_rng(11)
    is_first = rng.random(4000) < 0.3
    x = np.where(is_first, rng.normal(-0.8, 0.1, 4000), rng.normal(0.5, 0.2, 4000))[:, None]
    head = build_head("gmm", {"num_modes": 2, "is_bounded": is_bounded}, LINE)
    dist = fitted(head, x)
    order = dist.mean[:, 0].argsort()
    np.testing.assert_allclose(dist.mean[order, 0].numpy(), [-0.8, 0.5], atol=0.02)
    np.testing.assert_allclose(dist.log_std[order, 0].exp().numpy(), [0.1, 0.2], rtol=0.06)
    np.testing.assert_allclose(dist.log_weights[order].exp().numpy(), [is_first.mean(), 1 - is_first.mean()], atol=0.01)


def test_likelihood_of_beta_peaks_at_its_shapes():
    x = stats.beta.rvs([2.0, 5.0], [3.0, 1.5], size=(20_000, 2), loc=-1, scale=2, random_state=12)
    dist = fitted(built("beta")[0], x)
    np.testing.assert_allclose(dist.alpha.numpy(), [2.0, 5.0], rtol=0.05)
    np.testing.assert_allclose(dist.beta.numpy(), [3.0, 1.5], rtol=0.05)


def test_likelihood_of_discrete_actions_peaks_at_their_frequencies():
    rng = np.random.default_rng(13)
    one = np.eye(5)[rng.choice(5, 2000, p=[0.1, 0.2, 0.3, 0.15, 0.25])]
    np.testing.assert_allclose(fitted(built("categorical")[0], one).probs.numpy(), one.mean(0), atol=1e-3)
    both = np.concatenate([np.eye(3)[rng.choice(3, 2000, p=[0.2, 0.5, 0.3])], np.eye(2)[rng.choice(2, 2000)]], -1)
    np.testing.assert_allclose(fitted(built("factored")[0], both).probs.numpy(), both.mean(0), atol=1e-3)
    bits = (rng.random((2000, 3)) < [0.2, 0.5, 0.9]).astype(float)
    np.testing.assert_allclose(fitted(built("bernoulli")[0], bits).logits.sigmoid().numpy(), bits.mean(0), atol=1e-3)


# --------------------------------------------------------------------------------------- deterministic
MIXES = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.5, 2.0, 3.0)]


def deterministic(l2, l1, cosine, **options):
    return build_head("deterministic", {"l2_weight": l2, "l1_weight": l1, "cosine_weight": cosine, **options}, PLANE)


@pytest.mark.parametrize("is_bounded", [True, False])
@pytest.mark.parametrize("weights", MIXES)
def test_deterministic_head_weighs_three_errors(weights, is_bounded):
    rng = np.random.default_rng(14)
    raw, b = rng.normal(size=(30, 2)), rng.uniform(-1, 1, (30, 2))
    a = np.tanh(raw) if is_bounded else raw
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    errors = [0.5 * ((a - b) ** 2).sum(-1), np.abs(a - b).sum(-1), 1 - cosine]
    expected = -sum(w * e for w, e in zip(weights, errors, strict=True))
    dist = deterministic(*weights, is_bounded=is_bounded)(torch.tensor(raw), None)
    np.testing.assert_allclose(dist.log_prob(torch.tensor(b)).numpy(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(dist.mode().numpy(), a, rtol=1e-12)


@pytest.mark.parametrize("weights", MIXES)
def test_gradients_of_the_three_errors_are_finite_at_zero(weights):
    raw = torch.tensor([[0.0, 0.0], [0.3, 0.1], [0.0, 0.0], [1e-9, 0.0]], requires_grad=True)
    action = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.5, 0.1], [0.5, 0.5]])
    deterministic(*weights)(raw, None).log_prob(action).sum().backward()
    assert torch.isfinite(raw.grad).all()
    assert raw.grad.abs().max() < 4000


def test_each_error_has_its_own_minimum():
    """Squares: the mean. Absolute values: the median. Cosines: the mean direction, whatever the length."""
    x = np.random.default_rng(15).uniform(-0.5, 0.9, (1001, 2)) ** 3 + [0.05, 0.2]
    np.testing.assert_allclose(fitted(deterministic(*MIXES[0]), x).mode().numpy(), x.mean(0), atol=1e-4)
    np.testing.assert_allclose(fitted(deterministic(*MIXES[1]), x).mode().numpy(), np.median(x, 0), atol=5e-3)
    direction = (x / np.linalg.norm(x, axis=-1, keepdims=True)).mean(0)
    found = fitted(deterministic(*MIXES[2]), x).mode().numpy()
    np.testing.assert_allclose(found / np.linalg.norm(found), direction / np.linalg.norm(direction), atol=1e-4)


# ------------------------------------------------------------------------------------- little noise
@pytest.mark.parametrize("name", ["gaussian", "wide_gaussian", "fixed_gaussian"])
def test_little_noise_stays_at_the_mean(name):
    torch.manual_seed(17)
    head, _ = built(name)
    dist = head(torch.randn(1, head.num_parameters).expand(20_000, -1), None)
    action, before = dist.sample(), dist.log_std.clone()
    quiet = head.for_evaluation(dist)
    z = (quiet.sample() - dist.mean).double().numpy() / 1e-4
    assert z.std() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(dist.log_std, before)
    assert (dist.log_prob(action) > quiet.log_prob(action)).double().mean() > 0.99


@pytest.mark.parametrize("is_bounded", [True, False])
def test_little_noise_in_a_mixture_draws_its_modes(is_bounded):
    torch.manual_seed(16)
    head = build_head("gmm", {"num_modes": 3, "is_bounded": is_bounded}, LINE)
    raw = torch.tensor([0.0, 2.0, 1.0, -1.0, 0.2, 1.5, 3.0, 3.0, 3.0])
    dist = head(raw.expand(20_000, -1), None)
    centres = np.tanh([-1.0, 0.2, 1.5]) if is_bounded else np.array([-1.0, 0.2, 1.5])
    distance = np.abs(head.for_evaluation(dist).sample().numpy() - centres)
    assert distance.min(-1).max() < 1e-3
    shares = raw[:3].double().softmax(0).numpy()
    assert stats.chisquare(np.bincount(distance.argmin(-1)), 20_000 * shares).pvalue > 1e-4
    assert dist.mode()[0].item() == pytest.approx(centres[1], rel=1e-6)  # the mean of the most probable
    assert np.abs(dist.sample().numpy() - centres).min(-1).mean() > 0.1


@pytest.mark.parametrize("name", ["gaussian", "gmm"])
def test_little_noise_can_be_turned_off(name):
    head = build_head(name, {"low_noise_eval": False}, PLANE)
    dist = head(torch.zeros(1, head.num_parameters), None)
    assert head.for_evaluation(dist) is dist


@pytest.mark.parametrize("name", ["tanh_gaussian", "beta", "deterministic"])
def test_other_distributions_act_as_they_are(name):
    head = build_head(name, {}, PLANE)
    dist = head(torch.zeros(1, head.num_parameters), None)
    assert head.for_evaluation(dist) is dist.low_noise() is dist
