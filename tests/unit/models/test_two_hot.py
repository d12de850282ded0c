import numpy as np
import pytest
import torch
from scipy.stats import norm

from seqrl.models.two_hot import TwoHot, symexp, symlog

VALUES = torch.tensor([-90_000.0, -1234.5, -1.0, -1e-3, 0.0, 0.3, 2.0, 999.0, 88_000.0], dtype=torch.float64)


def coder(**options):
    return TwoHot(-1e5, 1e5, **options).double()


def test_symlog_and_back():
    np.testing.assert_allclose(symlog(VALUES).numpy(), np.sign(VALUES.numpy()) * np.log1p(np.abs(VALUES.numpy())))
    torch.testing.assert_close(symexp(symlog(VALUES)), VALUES)


@pytest.mark.parametrize("options", [{}, {"value_space": "return"}, {"use_symlog": False}])
def test_two_hot_is_exact_inside_the_range(options):
    two_hot = coder(**options)
    encoded = two_hot.encode(VALUES)
    torch.testing.assert_close(encoded.sum(-1), torch.ones(len(VALUES), dtype=torch.float64))
    assert ((encoded > 0).sum(-1) <= 2).all()
    assert (encoded >= 0).all()
    torch.testing.assert_close(two_hot.decode(encoded), VALUES, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("label", ["two_hot", "hl_gauss"])
def test_values_outside_are_clamped(label):
    two_hot = coder(label=label)
    outside = two_hot.encode(torch.tensor([-1e9, 1e9], dtype=torch.float64))
    ends = two_hot.encode(torch.tensor([-1e5, 1e5], dtype=torch.float64))
    torch.testing.assert_close(outside, ends, atol=1e-6, rtol=1e-5)


def test_hl_gauss_equals_the_integral_of_a_gaussian():
    two_hot = coder(label="hl_gauss", num_bins=64)
    edges = np.linspace(float(two_hot.bins[0]), float(two_hot.bins[-1]), 64)
    width = edges[1] - edges[0]
    for value in VALUES[1:-1].tolist():
        x = np.sign(value) * np.log1p(abs(value))
        mass = norm.cdf(edges + width / 2, x, 0.75 * width) - norm.cdf(edges - width / 2, x, 0.75 * width)
        got = two_hot.encode(torch.tensor(value, dtype=torch.float64))
        np.testing.assert_allclose(got, mass / mass.sum(), atol=1e-6)


def test_hl_gauss_decodes_everywhere():
    """The mean of a cut-off Gaussian is off by up to 0.37 bins at the ends, which is made up for."""
    two_hot = coder(label="hl_gauss")
    x = torch.linspace(two_hot.bins[0].item(), two_hot.bins[-1].item(), 2001, dtype=torch.float64)
    encoded = two_hot.encode(symexp(x))
    assert (encoded >= 0).all()
    torch.testing.assert_close(encoded.sum(-1), torch.ones_like(x))
    torch.testing.assert_close((encoded * two_hot.bins).sum(-1), x, atol=1e-9, rtol=0.0)
    torch.testing.assert_close(two_hot.float().encode(symexp(x).float()).sum(-1), torch.ones(2001))


@pytest.mark.parametrize("sigma_bins", [0.05, 0.1, 3.0])
def test_hl_gauss_of_any_width_is_a_distribution_at_the_ends(sigma_bins):
    two_hot = TwoHot(-100.0, 100.0, 64, label="hl_gauss", sigma_bins=sigma_bins)
    encoded = two_hot.encode(torch.tensor([-200.0, -100.0, 100.0, 200.0]))
    assert (encoded >= 0).all()
    torch.testing.assert_close(encoded.sum(-1), torch.ones(4))


def test_value_space_decides_the_bias_of_random_returns():
    """0 or 100 with equal odds reads 9 in symlog space, 50 in return space."""
    returns = torch.tensor([0.0, 100.0], dtype=torch.float64)
    biased, unbiased = coder(), coder(value_space="return")
    assert biased.decode(biased.encode(returns).mean(0)).item() == pytest.approx(np.sqrt(101) - 1, rel=1e-5)
    assert unbiased.decode(unbiased.encode(returns).mean(0)).item() == pytest.approx(50.0, rel=1e-5)


@pytest.mark.parametrize("space", ["symlog", "return", "linear"])
@pytest.mark.parametrize("value", [0.0, 30.0, -500.0, 99.0, 100.0])
def test_initial_logits_stand_for_their_value(space, value):
    """At the ends of a range as well, where a Gaussian that is cut off stands for a value some bins inside."""
    ends = (-1e5, 1e5) if value < 50.0 else (0.0, 100.0)
    use_symlog = space != "linear"
    two_hot = TwoHot(*ends, 128, use_symlog=use_symlog, value_space="return" if space == "return" else "symlog")
    start = two_hot.decode(two_hot.initial_logits(value).softmax(-1)).double()
    goal = torch.tensor(value, dtype=torch.float64)
    off = symlog(start) - symlog(goal) if use_symlog else start - goal
    assert abs(off) < 0.5 * two_hot.width


def test_far_returns_begin_with_a_moderate_loss():
    """By a Gaussian alone that of the last of 128 bins would be 500."""
    two_hot = TwoHot(0.0, 50.0, use_symlog=False)
    assert two_hot.initial_logits(0.0).log_softmax(-1).amin() > -12.5


def test_bad_ranges():
    with pytest.raises(ValueError, match="need low < high"):
        TwoHot(1.0, 1.0)
