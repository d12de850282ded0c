"""Probabilities against independent float64 references, closed forms and numerical integration."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats
from scipy.special import expit, log_expit, log_softmax

from seqrl.core.errors import ConfigError, RegistryError
from seqrl.core.spaces import ActionCodec
from seqrl.models.distributions import Bernoulli, Categorical, TanhGaussian, build_head

FACTORS = (3, 5, 2)
CODECS = {
    "discrete": ActionCodec(spaces.Discrete(5)),
    "multi_discrete": ActionCodec(spaces.MultiDiscrete(FACTORS)),
    "multi_binary": ActionCodec(spaces.MultiBinary(6)),
    "box": ActionCodec(spaces.Box(-1.0, 1.0, (3,))),
}


def _floored(logits, mass, legal):
    """Return the probabilities in float64: (1 - mass) softmax + mass / number of legal ones, over the legal ones."""
    logits = np.where(legal, np.asarray(logits, np.float64), -np.inf)
    p = np.exp(log_softmax(logits, axis=-1))
    return np.where(legal, (1 - mass) * p + mass / legal.sum(-1, keepdims=True), 0.0)


def _blocks(array, factors):
    return np.split(array, np.cumsum(factors)[:-1], axis=-1)


def _probabilities(distribution):
    return [lp.exp().double().numpy() for lp in distribution.log_probs]


@pytest.fixture
def rng():
    torch.manual_seed(0)
    return np.random.default_rng(0)


# ------------------------------------------------------------------------------------------ categorical
@pytest.mark.parametrize("mass", [0.0, 0.001, 0.1])
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("masked", [False, True])
def test_factored_categorical_log_prob_and_entropy(rng, mass, scale, masked):
    logits = rng.normal(scale=scale, size=(40, sum(FACTORS)))
    legal = np.ones_like(logits, bool)
    if masked:
        legal = rng.random(logits.shape) < 0.5
        for first in np.cumsum((0, *FACTORS[:-1])):
            legal[:, first] = True
    logits32 = torch.tensor(logits, dtype=torch.float32)
    dist = Categorical(logits32, FACTORS, mass, torch.tensor(legal) if masked else None)
    parts = list(zip(_blocks(logits32.numpy(), FACTORS), _blocks(legal, FACTORS), strict=True))
    reference = [_floored(x, mass, m) for x, m in parts]
    for got, expected, (_, m) in zip(_probabilities(dist), reference, parts, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-12)
        np.testing.assert_allclose(got.sum(-1), 1.0, rtol=1e-6)
        assert (got[~m] == 0.0).all()
        assert (got[m] >= mass / m.sum(-1, keepdims=True).repeat(m.shape[-1], -1)[m] * (1 - 1e-5)).all()
    index = [np.array([rng.choice(np.flatnonzero(row)) for row in m]) for _, m in parts]
    action = np.concatenate([np.eye(n)[i] for n, i in zip(FACTORS, index, strict=True)], axis=-1)
    with np.errstate(divide="ignore"):
        log_prob = sum(
            np.log(np.take_along_axis(p, i[:, None], 1)[:, 0]) for p, i in zip(reference, index, strict=True)
        )
        entropy = sum(-np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(-1) for p in reference)
    np.testing.assert_allclose(dist.log_prob(torch.tensor(action).float()).numpy(), log_prob, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(dist.entropy().numpy(), entropy, rtol=1e-4, atol=2e-5)


def test_all_joint_actions_sum_to_one(rng):
    dist = Categorical(torch.tensor(rng.normal(size=(1, 10))).float(), FACTORS, 0.05, None)
    total = 0.0
    for index in np.ndindex(*FACTORS):
        action = np.concatenate([np.eye(n)[i] for n, i in zip(FACTORS, index, strict=True)])
        total += dist.log_prob(torch.tensor(action[None]).float()).exp().item()
    assert total == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("mass", [0.0, 0.01])
def test_illegal_actions_are_never_sampled_nor_greedy(rng, mass):
    logits = torch.full((20_000, 4), -3.0)
    logits[:, 1] = 50.0  # illegal, and by far the best
    legal = torch.tensor([True, False, True, False]).expand(20_000, 4)
    dist = Categorical(logits, (4,), mass, legal)
    assert dist.sample()[:, [1, 3]].sum() == 0
    assert dist.mode()[:, [1, 3]].sum() == 0
    assert (dist.log_probs[0][:, [1, 3]] == -torch.inf).all()
    assert dist.log_prob(torch.eye(4)[1].expand(20_000, 4)).exp().max() == 0.0


@pytest.mark.parametrize("mass", [0.0, 0.001])
def test_gradients_are_finite_everywhere(rng, mass):
    """Masked logits get none at all, saturated ones a finite one, and all legal ones a share."""
    values = rng.normal(size=(8, 6))
    values[1] *= 1e4
    values[2, 0] = 300.0
    values[3] = 0.0
    logits = torch.tensor(values, dtype=torch.float32, requires_grad=True)
    legal = torch.ones(8, 6, dtype=torch.bool)
    legal[:, 4:] = False
    legal[5, 1:] = False  # a single legal action
    dist = Categorical(logits, (6,), mass, legal)
    action = torch.eye(6)[torch.tensor([0, 1, 2, 3, 0, 0, 1, 2])]
    for value in (dist.log_prob(action).sum(), dist.entropy().sum(), dist.log_prob(action).exp().sum()):
        (gradient,) = torch.autograd.grad(value, logits, retain_graph=True)
        assert torch.isfinite(gradient).all()
        assert (gradient[~legal] == 0).all()
    (gradient,) = torch.autograd.grad(dist.log_prob(action).sum(), logits)
    assert (gradient[0, :4] != 0).all()


def test_gradient_equals_finite_differences(rng):
    values = rng.normal(size=(5,))
    legal = np.array([True, True, False, True, True])
    logits = torch.tensor(values[None], dtype=torch.float64, requires_grad=True)
    Categorical(logits, (5,), 0.05, torch.tensor(legal)[None]).log_prob(torch.eye(5)[3:4]).sum().backward()
    for i in range(5):
        ends = [np.log(_floored(values + s * 1e-6 * np.eye(5)[i], 0.05, legal)[3]) for s in (1, -1)]
        assert logits.grad[0, i].item() == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-6)


def test_floor_keeps_a_gradient_where_clipping_has_none():
    """The point of the mixture: a saturated wrong prediction can still be unlearned."""
    logits = torch.tensor([[12.0, 0.0, 0.0]], requires_grad=True)
    Categorical(logits, (3,), 0.001, None).log_prob(torch.eye(3)[1:2]).sum().backward()
    assert logits.grad[0, 1] > 0


@pytest.mark.parametrize("mass", [0.0, 0.2])
def test_sample_frequencies(rng, mass):
    logits = np.array([1.5, 0.0, -1.0, 0.3, -0.4, 0.9, 0.0, 2.0])
    factors, legal = (5, 3), np.array([1, 1, 0, 1, 1, 1, 1, 0], bool)
    num = 40_000
    dist = Categorical(torch.tensor(logits).float().expand(num, 8), factors, mass, torch.tensor(legal).expand(num, 8))
    samples = dist.sample()
    assert not samples.requires_grad
    assert samples.dtype == torch.float32
    joint = np.stack([b.argmax(-1) for b in _blocks(samples.numpy(), factors)])
    p, q = (_floored(x, mass, m) for x, m in zip(_blocks(logits, factors), _blocks(legal, factors), strict=True))
    expected = np.outer(p, q) * num
    counts = np.zeros(factors)
    np.add.at(counts, tuple(joint), 1)
    possible = expected > 0
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], expected[possible]).pvalue > 1e-4


def test_mode_is_the_most_probable_of_each_factor(rng):
    logits = rng.normal(size=(50, 10))
    mode = Categorical(torch.tensor(logits), FACTORS, 0.001, None).mode().numpy()
    for got, block in zip(_blocks(mode, FACTORS), _blocks(logits, FACTORS), strict=True):
        np.testing.assert_array_equal(got, np.eye(block.shape[-1])[block.argmax(-1)])


def test_three_thousand_actions(rng):
    head = build_head("auto", {}, ActionCodec(spaces.Discrete(3000)))
    assert head.num_parameters == 3000
    logits = torch.tensor(rng.normal(scale=4.0, size=(4, 3000)), dtype=torch.float32, requires_grad=True)
    legal = torch.tensor(rng.random((4, 3000)) < 0.5)
    dist = head(logits, legal)
    (p,) = _probabilities(head(logits.detach(), legal))
    np.testing.assert_allclose(p, _floored(logits.detach().numpy(), 0.001, legal.numpy()), rtol=1e-4, atol=1e-12)
    assert np.abs(p.sum(-1) - 1).max() < 1e-5
    assert legal[dist.sample().bool()].all()
    assert (dist.entropy() < math.log(3000)).all()
    dist.log_prob(dist.sample()).sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_leading_dimensions_are_kept(rng):
    for name, codec in CODECS.items():
        head = build_head("auto", {}, codec)
        dist = head(torch.tensor(rng.normal(size=(2, 7, 3, head.num_parameters))).float(), None)
        action = dist.sample()
        assert action.shape == dist.mode().shape == (2, 7, 3, codec.dim), name
        assert action.dtype == torch.float32
        assert dist.log_prob(action).shape == dist.entropy().shape == (2, 7, 3)


# -------------------------------------------------------------------------------------------- bernoulli
@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_bernoulli_log_prob_and_entropy(rng, scale):
    logits = rng.normal(scale=scale, size=(30, 6)).astype(np.float32)
    bits = (rng.random((30, 6)) < 0.5).astype(np.float64)
    dist = Bernoulli(torch.tensor(logits), None)
    x = logits.astype(np.float64)
    log_prob = (bits * log_expit(x) + (1 - bits) * log_expit(-x)).sum(-1)
    entropy = -(expit(x) * log_expit(x) + expit(-x) * log_expit(-x)).sum(-1)
    np.testing.assert_allclose(dist.log_prob(torch.tensor(bits).float()).numpy(), log_prob, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dist.entropy().numpy(), entropy, rtol=1e-4, atol=1e-5)


def test_masked_bits_are_always_zero(rng):
    logits = torch.full((5000, 3), 8.0, requires_grad=True)
    legal = torch.tensor([True, False, True]).expand(5000, 3)
    dist = Bernoulli(logits, legal)
    assert dist.sample()[:, 1].sum() == 0
    assert dist.mode()[0].tolist() == [1.0, 0.0, 1.0]
    on = torch.tensor([0.0, 1.0, 0.0]).expand(5000, 3)
    assert dist.log_prob(on).exp().max() == 0.0
    off_is_free = Bernoulli(logits[:, [0, 2]], None).log_prob(torch.ones(5000, 2))
    torch.testing.assert_close(dist.log_prob(torch.tensor([1.0, 0.0, 1.0]).expand(5000, 3)), off_is_free)
    (dist.log_prob(torch.ones(5000, 3)).sum() + dist.entropy().sum()).backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[:, 1] == 0).all()


def test_bernoulli_sample_frequencies_and_threshold(rng):
    x, num = np.array([-2.0, -0.1, 0.0, 0.1, 3.0]), 40_000
    dist = Bernoulli(torch.tensor(x).float().expand(num, 5), None)
    ones = dist.sample().sum(0).numpy()
    for count, p in zip(ones, expit(x), strict=True):
        assert stats.binomtest(int(count), num, p).pvalue > 1e-4
    assert dist.mode()[0].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]


# ----------------------------------------------------------------------------------------- tanh-Gaussian
def _tanh_gaussian(mean, std):
    return TanhGaussian(torch.tensor([[mean]]).float(), torch.tensor([[math.log(std)]]).float())


@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.05), (0.3, 0.4), (-0.7, 0.3), (0.0, 0.6)])
def test_tanh_gaussian_density_integrates_to_one(mean, std):
    """Over +-0.99, outside of which these hold less than 2e-5 of the mass."""
    grid = torch.linspace(-0.99, 0.99, 200_001, dtype=torch.float64)
    dist = TanhGaussian(torch.tensor([[mean]]).double(), torch.tensor([[math.log(std)]]).double())
    density = dist.log_prob(grid[:, None]).exp().numpy()
    assert np.trapezoid(density, grid.numpy()) == pytest.approx(1.0, abs=1e-4)


def test_wide_tanh_gaussian_integrates_to_the_mass_inside():
    grid = torch.linspace(-0.99, 0.99, 400_001, dtype=torch.float64)
    dist = TanhGaussian(torch.tensor([[1.5]]).double(), torch.tensor([[math.log(2.0)]]).double())
    edge = math.atanh(0.99)
    inside = stats.norm.cdf(edge, 1.5, 2.0) - stats.norm.cdf(-edge, 1.5, 2.0)
    assert np.trapezoid(dist.log_prob(grid[:, None]).exp().numpy(), grid.numpy()) == pytest.approx(inside, abs=1e-4)


def test_tanh_gaussian_log_prob_against_float64(rng):
    mean, log_std = rng.normal(scale=2.0, size=(60, 3)), rng.uniform(-5, 2, (60, 3))
    mean, log_std = mean.astype(np.float32), log_std.astype(np.float32)
    action = rng.uniform(-0.98, 0.98, (60, 3)).astype(np.float32)
    a = action.astype(np.float64)
    expected = (stats.norm.logpdf(np.arctanh(a), mean, np.exp(log_std.astype(np.float64))) - np.log1p(-(a**2))).sum(-1)
    got = TanhGaussian(torch.tensor(mean), torch.tensor(log_std)).log_prob(torch.tensor(action)).numpy()
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=1e-3)


def test_actions_beyond_the_limit_are_read_as_the_limit():
    dist = _tanh_gaussian(0.2, 0.7)
    limit, one = (dist.log_prob(torch.tensor([[x]])) for x in (0.99, 1.0))
    assert one.item() == limit.item()
    assert dist.log_prob(torch.tensor([[-1.0]])).item() == dist.log_prob(torch.tensor([[-0.99]])).item()
    assert limit.item() != dist.log_prob(torch.tensor([[0.98]])).item()


def test_tanh_gaussian_gradients_are_finite():
    parameters = torch.tensor([[0.0, 80.0, -3.0, -80.0, 80.0, 0.0]], requires_grad=True)
    dist = build_head("tanh_gaussian", {}, CODECS["box"])(parameters, None)
    (dist.log_prob(torch.tensor([[1.0, -1.0, 0.5]])).sum() + dist.entropy().sum() + dist.rsample().sum()).backward()
    assert torch.isfinite(parameters.grad).all()


def test_log_std_stays_within_its_range():
    head = build_head("tanh_gaussian", {}, CODECS["box"])
    raw = torch.tensor([[0.0, 0.0, 0.0, -1e6, 0.0, 1e6]])
    assert head(raw, None).log_std.tolist() == [[-5.0, -1.5, 2.0]]
    narrow = build_head("tanh_gaussian", {"min_log_std": -1.0, "max_log_std": 0.5}, CODECS["box"])
    assert narrow(raw, None).log_std.tolist() == [[-1.0, -0.25, 0.5]]


def test_tanh_gaussian_samples_follow_the_law():
    torch.manual_seed(1)
    mean, std = 0.4, 0.8
    dist = TanhGaussian(torch.full((20_000, 1), mean), torch.full((20_000, 1), math.log(std)))
    for draw in (dist.sample(), dist.rsample()):
        assert draw.abs().max() < 1.0
        x = np.arctanh(draw.double().numpy()[:, 0])
        assert stats.kstest(x, "norm", (mean, std)).pvalue > 1e-4
    assert dist.mode()[0].item() == pytest.approx(math.tanh(mean), rel=1e-6)
    assert not dist.sample().requires_grad


def test_rsample_carries_gradients_and_sample_does_not():
    mean = torch.zeros(4, 2, requires_grad=True)
    dist = TanhGaussian(mean, torch.zeros(4, 2))
    assert dist.rsample().requires_grad
    assert not dist.sample().requires_grad


def test_entropy_estimate_is_unbiased():
    """Against the integral of -p log p, in float64."""
    torch.manual_seed(2)
    mean, std, num = 0.3, 0.4, 40_000
    grid = np.linspace(-1 + 1e-9, 1 - 1e-9, 1_000_001)
    log_p = stats.norm.logpdf(np.arctanh(grid), mean, std) - np.log1p(-(grid**2))
    exact = -np.trapezoid(np.exp(log_p) * log_p, grid)
    estimates = TanhGaussian(torch.full((num, 1), mean), torch.full((num, 1), math.log(std))).entropy().double()
    assert estimates.mean().item() == pytest.approx(exact, abs=4 * estimates.std().item() / math.sqrt(num))


# ------------------------------------------------------------------------------------------------- heads
def test_deterministic_head():
    head = build_head("deterministic", {}, CODECS["box"])
    raw = torch.tensor([[0.0, 1.0, -50.0]])
    dist = head(raw, None)
    np.testing.assert_allclose(dist.mode().numpy(), np.tanh(raw.numpy()), rtol=1e-6)
    assert torch.equal(dist.sample(), dist.mode())
    action = torch.tensor([[0.5, 0.0, -1.0]])
    expected = -0.5 * ((action.double().numpy() - np.tanh(raw.double().numpy())) ** 2).sum()
    assert dist.log_prob(action).item() == pytest.approx(expected, rel=1e-5)
    assert dist.entropy().tolist() == [0.0]


@pytest.mark.parametrize(
    ("codec", "kind", "width"),
    [("discrete", "Categorical", 5), ("multi_discrete", "Categorical", 10), ("multi_binary", "Bernoulli", 6),
     ("box", "TanhGaussian", 6)],
)  # fmt: skip
def test_auto_follows_the_action_space(codec, kind, width):
    head = build_head("auto", {}, CODECS[codec])
    assert head.num_parameters == width
    assert type(head(torch.zeros(1, width), None)).__name__ == kind


@pytest.mark.parametrize(
    ("name", "codec", "fitting"),
    [
        ("tanh_gaussian", "discrete", "auto, categorical"),
        ("deterministic", "multi_binary", "auto, bernoulli"),
        ("categorical", "box", "auto, beta, deterministic, gaussian, gmm, tanh_gaussian"),
        ("bernoulli", "multi_discrete", "auto, categorical"),
    ],
)
def test_distribution_that_does_not_fit_is_refused(name, codec, fitting):
    with pytest.raises(ConfigError, match=rf"'{name}' cannot represent .*; use one of: {fitting}$"):
        build_head(name, {}, CODECS[codec])


def test_unknown_distribution_names_the_nearest():
    with pytest.raises(RegistryError, match=r"'categoricl'; did you mean 'categorical'\?"):
        build_head("categoricl", {}, CODECS["discrete"])


def test_options_reach_the_head():
    head = build_head("categorical", {"min_probability_mass": 0.5}, ActionCodec(spaces.Discrete(4)))
    (p,) = _probabilities(head(torch.tensor([[100.0, 0.0, 0.0, 0.0]]), None))
    np.testing.assert_allclose(p, [[0.625, 0.125, 0.125, 0.125]], rtol=1e-5)


@pytest.mark.parametrize("space", ["discrete", "multi_discrete", "multi_binary"])
def test_reparametrised_choices_are_exactly_0_or_1(space):
    """Else they would not equal the data's actions, and rounding would decide the ties of a filter."""
    torch.manual_seed(0)
    head = build_head("bernoulli" if space == "multi_binary" else "categorical", {}, CODECS[space])
    draws = head(3.0 * torch.randn(500, head.num_parameters), None).rsample()
    assert ((draws == 0) | (draws == 1)).all()
