"""Moving statistics against a float64 reference; padding, micro-batches, and hard numbers."""

import numpy as np
import pytest
import torch

from seqrl.models.normalizers import InputNormalizer


class Reference:
    """The moving rule in float64: initial mean 0 and variance 1 count as one batch."""

    def __init__(self, width, beta):
        self.beta, self.n = beta, 1
        self.first, self.second = np.zeros(width), np.ones(width)

    def update(self, x, mask):
        """Move the raw moments, which needs float64."""
        real = np.asarray(x, np.float64)[np.asarray(mask)]
        self.n += 1
        step = self.beta / (1 - (1 - self.beta) ** self.n)
        self.first += step * (real.mean(0) - self.first)
        self.second += step * ((real**2).mean(0) - self.second)

    @property
    def variance(self):
        return self.second - self.first**2

    def __call__(self, x):
        std = np.clip(np.sqrt(self.variance), 1e-3, 1e6)
        return np.clip((np.asarray(x, np.float64) - self.first) / np.where(std > 0.01, std, 1.0), -1e4, 1e4)


def _batches(num, width=4, seed=0, shape=(3, 5)):
    rng = np.random.default_rng(seed)
    offset, scale = np.array([0.0, 3.0, -20.0, 0.5])[:width], np.array([1.0, 0.2, 5.0, 30.0])[:width]
    for _ in range(num):
        mask = rng.random(shape) < 0.7
        mask[0, 0] = True
        yield (offset + scale * rng.normal(size=(*shape, width))).astype(np.float32), mask


@pytest.mark.parametrize("beta", [1e-4, 1e-2, 0.3])
def test_moves_as_the_rule_says(beta):
    normalizer, reference = InputNormalizer(4, beta), Reference(4, beta)
    for i, (x, mask) in enumerate(_batches(60)):
        normalizer.update(normalizer.stats(torch.tensor(x), torch.tensor(mask)))
        reference.update(x, mask)
        if i in (0, 1, 9, 59):
            np.testing.assert_allclose(normalizer.mean.numpy(), reference.first, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(normalizer.variance.numpy(), reference.variance, rtol=2e-3)
            np.testing.assert_allclose(normalizer(torch.tensor(x)).numpy(), reference(x), rtol=5e-3, atol=5e-3)


def test_first_batch_weighs_as_much_as_the_start():
    """Mean 0 and variance 1 with one batch of constants 4: mean 2, variance (1 + 16) / 2 - 4."""
    normalizer = InputNormalizer(1)
    normalizer.update(normalizer.stats(torch.full((2, 3, 1), 4.0), torch.ones(2, 3, dtype=torch.bool)))
    assert normalizer.mean.item() == pytest.approx(2.0, rel=1e-3)
    assert normalizer.variance.item() == pytest.approx(4.5, rel=2e-3)


@pytest.mark.parametrize("garbage", [1e30, -7.0, float("inf"), float("nan")])
def test_padding_has_no_influence_whatever_it_holds(garbage):
    clean, dirty = InputNormalizer(4, 0.1), InputNormalizer(4, 0.1)
    for x, mask in _batches(5):
        filled = np.where(mask[..., None], x, np.float32(garbage))
        zeros = np.where(mask[..., None], x, np.float32(0))
        clean.update(clean.stats(torch.tensor(zeros), torch.tensor(mask)))
        dirty.update(dirty.stats(torch.tensor(filled), torch.tensor(mask)))
    assert dirty.num_updates.item() == 6
    assert torch.equal(clean.mean, dirty.mean)
    assert torch.equal(clean.variance, dirty.variance)


def test_added_sums_equal_one_batch():
    whole, split = InputNormalizer(4, 0.05), InputNormalizer(4, 0.05)
    for x, mask in _batches(8, shape=(6, 5)):
        x, mask = torch.tensor(x), torch.tensor(mask)
        whole.update(whole.stats(x, mask))
        split.update(split.stats(x[:2], mask[:2]) + split.stats(x[2:], mask[2:]))
    torch.testing.assert_close(whole.mean, split.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(whole.variance, split.variance, rtol=1e-5, atol=1e-6)
    assert torch.equal(whole.num_updates, split.num_updates)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_sums_are_ignored(bad):
    normalizer = InputNormalizer(4, 0.1)
    for x, mask in _batches(3):
        normalizer.update(normalizer.stats(torch.tensor(x), torch.tensor(mask)))
    before = {k: v.clone() for k, v in normalizer.state_dict().items()}
    x, mask = next(_batches(1, seed=9))
    x[0, 0, 2] = bad
    normalizer.update(normalizer.stats(torch.tensor(x), torch.tensor(mask)))
    assert all(torch.equal(v, before[k]) for k, v in normalizer.state_dict().items())


def test_small_features_stay_small_if_asked():
    """Divided by the larger of their own standard deviation and the smallest one; by their own without."""
    rng = np.random.default_rng(0)
    stds = np.array([3.0, 0.3, 0.05, 1e-4])
    x = torch.tensor((rng.normal(size=(64, 32, 4)) * stds).astype(np.float32))
    mask = torch.ones(64, 32, dtype=torch.bool)
    for min_std, expected in ((0.0, [1.0, 1.0, 1.0, 1e-4]), (0.2, [1.0, 1.0, 0.25, 5e-4])):
        normalizer = InputNormalizer(4, 0.1, min_std)
        for _ in range(200):
            normalizer.update(normalizer.stats(x, mask))
        np.testing.assert_allclose(normalizer(x).flatten(0, 1).std(0), expected, rtol=0.05)


def test_batch_without_a_real_input_is_ignored():
    normalizer = InputNormalizer(2, 0.1)
    normalizer.update(normalizer.stats(torch.ones(2, 3, 2), torch.zeros(2, 3, dtype=torch.bool)))
    assert (normalizer.mean.tolist(), normalizer.variance.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    assert normalizer.num_updates.item() == 1


@pytest.mark.parametrize(("offset", "std"), [(1000.0, 0.05), (-5000.0, 1.0), (1e5, 10.0)])
def test_small_variance_at_a_large_offset(offset, std):
    """float32 second moments minus squared means would lose these entirely."""
    rng = np.random.default_rng(0)
    normalizer = InputNormalizer(1, beta=0.1)
    mask = torch.ones(32, 32, dtype=torch.bool)
    seen = []
    for _ in range(500):
        x = (offset + std * rng.normal(size=(32, 32, 1))).astype(np.float32)
        seen.append(x)
        normalizer.update(normalizer.stats(torch.tensor(x), mask))
    recent = np.concatenate(seen[-60:]).astype(np.float64)
    assert normalizer.mean.item() == pytest.approx(recent.mean(), abs=0.1 * std)
    assert normalizer.variance.sqrt().item() == pytest.approx(recent.std(), rel=0.05)
    assert normalizer(torch.tensor(seen[-1])).std().item() == pytest.approx(1.0, rel=0.1)


def test_nearly_constant_features_are_only_centred():
    normalizer = InputNormalizer(3)
    normalizer.mean.copy_(torch.tensor([5.0, 5.0, 5.0]))
    normalizer.variance.copy_(torch.tensor([0.0, 0.0099**2, 0.0101**2]))
    out = normalizer(torch.tensor([[6.0, 6.0, 6.0]]))[0]
    assert out[:2].tolist() == [1.0, 1.0]
    assert out[2].item() == pytest.approx(1 / 0.0101, rel=1e-3)


def test_output_and_deviation_are_bounded():
    normalizer = InputNormalizer(2)
    assert normalizer(torch.tensor([[1e9, -1e9]])).tolist() == [[1e4, -1e4]]
    normalizer.variance.copy_(torch.tensor([1e20, 1.0]))
    assert normalizer(torch.tensor([[1e6, 2.0]])).tolist() == [[1.0, 2.0]]


def test_variance_never_becomes_negative():
    normalizer = InputNormalizer(1, beta=0.5)
    mask = torch.ones(1, 4, dtype=torch.bool)
    for value in [1e4, 1e4, -3e4, 1e4] * 30:
        normalizer.update(normalizer.stats(torch.full((1, 4, 1), value), mask))
        assert normalizer.variance.item() >= 0
        assert torch.isfinite(normalizer(torch.zeros(1, 1))).all()


def test_forward_changes_nothing_and_gives_no_gradient_to_statistics():
    normalizer = InputNormalizer(3)
    before = {k: v.clone() for k, v in normalizer.state_dict().items()}
    x = torch.randn(2, 4, 3, requires_grad=True)
    normalizer.train()
    normalizer(x).sum().backward()
    assert all(torch.equal(v, before[k]) for k, v in normalizer.state_dict().items())
    assert list(normalizer.parameters()) == []
    assert torch.isfinite(x.grad).all()


def test_initial_normalizer_is_the_identity():
    x = torch.randn(2, 3, 5)
    torch.testing.assert_close(InputNormalizer(5)(x), x)
