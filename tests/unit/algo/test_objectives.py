"""Each formula against an independent float64 reference, by hand or by brute force."""

import inspect

import numpy as np
import pytest
import torch

from seqrl.algo.objectives import (
    binary_filter,
    exponential_filter,
    masked_mean,
    n_step_targets,
    ramp_filter,
    random_subset_reduction,
)
from seqrl.core.errors import PluginError


def brute_force_target(rewards, terminated, mask, values, gamma, n, t):
    """Walk forward from t in plain Python."""
    total, discount, k = 0.0, 1.0, t
    while True:
        total += discount * rewards[k]
        discount *= gamma
        if terminated[k]:
            return total
        k += 1
        if k - t == n or k == len(rewards) or not mask[k]:
            return total + discount * values[k]


@pytest.mark.parametrize("n_step", [1, 2, 3, 7, 8, 50])
def test_n_step_targets(n_step):
    rng = np.random.default_rng(n_step)
    num, steps, discounts = 40, 8, np.array([0.1, 0.9, 0.999])
    rewards, values = rng.normal(size=(num, steps)), rng.normal(size=(num, steps + 1, 3))
    real = rng.integers(1, steps + 1, num)
    mask = np.arange(steps) < real[:, None]
    ends = (np.arange(steps) == real[:, None] - 1) & (
        rng.random((num, 1)) < 0.5
    )  # else truncated, or cut by the window
    arrays = [torch.from_numpy(a) for a in (rewards, ends, mask, values[:, 1:], discounts)]
    targets = n_step_targets(*arrays, n_step).numpy()
    for b in range(num):
        for t in range(real[b]):
            for g, gamma in enumerate(discounts):
                expected = brute_force_target(rewards[b], ends[b], mask[b], values[b, :, g], gamma, n_step, t)
                assert targets[b, t, g] == pytest.approx(expected, abs=1e-12)
    assert np.isfinite(targets).all()


def test_n_step_must_be_positive():
    one = torch.ones(1, 1)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        n_step_targets(one, one.bool(), one.bool(), torch.ones(1, 1, 1), torch.ones(1), 0)


def test_values_of_all_inputs_are_refused():
    one, unchecked = torch.ones(2, 3), inspect.unwrap(n_step_targets)  # tests check the shapes of annotations too
    with pytest.raises(ValueError, match=r"values have shape \(2, 4, 1\) for \(2, 3\) transitions"):
        unchecked(one, one.bool(), one.bool(), torch.ones(2, 4, 1), torch.ones(1), 1)


def test_masked_mean():
    values = torch.tensor([[1.0, 2.0, torch.nan], [4.0, torch.inf, 5.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert masked_mean(values, mask).item() == pytest.approx(7 / 3)
    assert masked_mean(values, torch.zeros_like(mask)).item() == 0.0


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_mean_of_values_that_only_broadcast_with_the_mask_is_refused():
    mask = torch.ones(3, 3, dtype=torch.bool)
    with pytest.raises(PluginError, match=r"values of shape \(3, 3, 1\) do not fit a mask of shape \(3, 3\)"):
        masked_mean(torch.arange(9.0).view(3, 3, 1), mask)


def test_subsets_are_distinct_and_uniform():
    """With members 0..3 and two chosen, the minimum is 0, 1, 2 with probability 1/2, 1/3, 1/6."""
    members = torch.arange(4.0).expand(60_000, 4)
    minima = random_subset_reduction(members, 2, minimum=True, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(minima.long(), minlength=4) / 60_000
    torch.testing.assert_close(shares, torch.tensor([1 / 2, 1 / 3, 1 / 6, 0.0]), atol=0.01, rtol=0)
    means = random_subset_reduction(members, 2, minimum=False, generator=torch.Generator().manual_seed(0))
    assert set(means.tolist()) == {0.5, 1.0, 1.5, 2.0, 2.5}
    assert means.mean().item() == pytest.approx(1.5, abs=0.01)


def test_subset_of_all_is_everything():
    values = torch.randn(5, 3)
    torch.testing.assert_close(random_subset_reduction(values, 3, minimum=True), values.min(-1).values)
    with pytest.raises(ValueError, match=r"1 .. 3, got 4"):
        random_subset_reduction(values, 4, minimum=True)


def test_filters():
    advantage = torch.tensor([-20.0, -1.0, 0.0, 0.5, 100.0], dtype=torch.float64)
    assert binary_filter(advantage).tolist() == [0, 0, 0, 1, 1]
    assert binary_filter(advantage, threshold=-2.0).tolist() == [0, 1, 1, 1, 1]
    expected = np.maximum(np.exp(0.5 * np.clip(advantage.numpy(), -10, 3)), 1e-7)
    np.testing.assert_allclose(exponential_filter(advantage, beta=0.5, clip_high=3.0), expected)
    z = (advantage.numpy() - 0.01) / 2
    ramp = np.clip(0.01 + 0.05 * 0.01 / 2 + np.where(z > 0, z, 0.05 * z), 1e-7, 10)
    np.testing.assert_allclose(ramp_filter(advantage, add_binary=False), ramp)
    np.testing.assert_allclose(ramp_filter(advantage), ramp + (advantage.numpy() > 0))
