"""Against closed forms: of the schedule, and of a Gaussian, whose denoiser and flow are known exactly."""

import itertools
import math

import pytest
import torch

from seqrl.core.errors import ConfigError
from seqrl.models.noise_schedules import add_noise, denoise, follow_flow, levels_asked, signal_shares

MEAN, SD = 0.3, 0.2
SHARES = signal_shares(100)


def exact_noise(x, level):
    """Return the expected noise in ``x``, whose clean part is N(MEAN, SD^2)."""
    share = SHARES[level]
    return math.sqrt(1 - share) * (x - math.sqrt(share) * MEAN) / (share * SD**2 + 1 - share)


def exact_velocity(x, time):
    """Return E[a - noise | (1 - time) noise + time a = x] for a ~ N(MEAN, SD^2)."""
    covariance, variance = time * SD**2 - (1 - time), (1 - time) ** 2 + (time * SD) ** 2
    return MEAN + covariance / variance * (x - time * MEAN)


def start(num=200_000):
    return torch.randn(num, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_schedule_is_that_of_the_paper():
    assert SHARES[0] == pytest.approx(0.999369, abs=1e-6)
    assert SHARES[50] == pytest.approx(0.478265, abs=1e-6)
    assert SHARES[99] == pytest.approx(2.43e-7, rel=2e-3)
    assert all(later < earlier for earlier, later in itertools.pairwise(SHARES))


def test_levels_are_led_by_equal_strides():
    assert levels_asked(100, 10) == [90, 80, 70, 60, 50, 40, 30, 20, 10, 0]
    assert levels_asked(100, 100) == list(range(99, -1, -1))
    for asked in (0, 101):
        with pytest.raises(ConfigError, match=r"inference_steps must be in 1 \.\. noise_steps \(100\)"):
            levels_asked(100, asked)


@pytest.mark.parametrize(("num_levels", "mean", "sd"), [(10, 0.294, 0.152), (100, 0.300, 0.193)])
def test_ddim_gives_what_its_steps_give_of_a_gaussian(num_levels, mean, sd):
    x = denoise(exact_noise, start(), SHARES, levels_asked(100, num_levels), limit=None)
    assert x.mean().item() == pytest.approx(mean, abs=0.002)
    assert x.std().item() == pytest.approx(sd, abs=0.002)


def test_ddim_is_an_affine_map_of_its_noise():
    """One level after the other, by the paper's formula, on two points: a Gaussian's denoiser is affine."""
    levels = levels_asked(100, 10)
    x = start(2)
    expected = x.clone()
    for level, share_after in zip(levels, [*(SHARES[k] for k in levels[1:]), 1.0], strict=True):
        share, noise = SHARES[level], exact_noise(expected, level)
        clean = (expected - math.sqrt(1 - share) * noise) / math.sqrt(share)
        expected = math.sqrt(share_after) * clean + math.sqrt(1 - share_after) * noise
    torch.testing.assert_close(denoise(exact_noise, x, SHARES, levels, limit=None), expected, rtol=1e-12, atol=1e-12)


def test_ddpm_over_all_levels_gives_what_its_posteriors_give():
    """Of a Gaussian each step is affine, so mean and variance follow by hand from equation 7 of arXiv 2006.11239."""
    torch.manual_seed(0)
    mean, variance = 0.0, 1.0
    for level in range(99, -1, -1):
        share, before = SHARES[level], SHARES[level - 1] if level else 1.0
        beta = 1 - share / before
        gain = 1 / (share * SD**2 + 1 - share)  # noise = sqrt(1 - share) * gain * (x - sqrt(share) * MEAN)
        slope = (1 - (1 - share) * gain) / math.sqrt(share)
        of_clean = math.sqrt(before) * beta / (1 - share)
        of_x = math.sqrt(1 - beta) * (1 - before) / (1 - share)
        mean = (of_clean * slope + of_x) * mean + of_clean * (1 - share) * gain * MEAN
        variance = (of_clean * slope + of_x) ** 2 * variance + (1 - before) / (1 - share) * beta
    x = denoise(exact_noise, start(50_000), SHARES, levels_asked(100, 100), eta=1.0, limit=None)
    assert x.mean().item() == pytest.approx(mean, abs=0.004)
    assert x.std().item() == pytest.approx(math.sqrt(variance), abs=0.002)


def test_ddpm_takes_the_posterior_of_its_paper():
    """With eta 1 a step is N(mean, variance) of equation 7 of arXiv 2006.11239."""
    level, x = 60, torch.tensor([0.7], dtype=torch.float64)
    share, before = SHARES[level], SHARES[level - 1]
    beta = 1 - share / before
    clean = (x - math.sqrt(1 - share) * exact_noise(x, level)) / math.sqrt(share)
    mean = math.sqrt(before) * beta / (1 - share) * clean + math.sqrt(1 - beta) * (1 - before) / (1 - share) * x
    torch.manual_seed(0)
    many = x.expand(400_000)
    seen = []

    def predict(y, at):
        seen.append(y)
        return exact_noise(y, at)

    denoise(predict, many, SHARES, [level, level - 1], eta=1.0, limit=None)
    assert seen[1].mean().item() == pytest.approx(mean.item(), abs=1e-3)
    assert seen[1].var().item() == pytest.approx((1 - before) / (1 - share) * beta, rel=0.01)


def test_clean_samples_are_clipped():
    x = denoise(lambda x, _: 0 * x, 5 * start(100), SHARES, levels_asked(100, 10))
    assert x.abs().max().item() == 1.0


@pytest.mark.parametrize(
    ("num_steps", "is_second_order", "sd", "tolerance"),
    [(10, False, 0.154, 0.002), (100, False, 0.195, 0.002), (20, True, 0.2, 0.004)],
)
def test_a_flow_carries_noise_to_a_gaussian(num_steps, is_second_order, sd, tolerance):
    x = follow_flow(exact_velocity, start(), num_steps, is_second_order=is_second_order)
    assert x.mean().item() == pytest.approx(MEAN, abs=0.002)
    assert x.std().item() == pytest.approx(sd, abs=tolerance)


def test_noise_is_mixed_by_its_share():
    x, noise, share = (torch.rand(3, *rest, dtype=torch.float64) for rest in ((2, 4), (2, 4), ()))
    mixed = add_noise(x, noise, share)
    for n in range(3):
        expected = math.sqrt(share[n]) * x[n] + math.sqrt(1 - share[n]) * noise[n]
        torch.testing.assert_close(mixed[n], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_asked", [10, 34, 51, 60, 99])
def test_the_first_level_asked_is_nearly_noise(num_asked):
    levels = levels_asked(100, num_asked)
    assert len(set(levels)) == num_asked
    assert levels == sorted(levels, reverse=True)
    assert SHARES[levels[0]] < 0.05
    x = denoise(exact_noise, start(20_000), SHARES, levels, limit=None)
    assert x.mean().item() == pytest.approx(MEAN, abs=0.01)


def test_clean_samples_are_clipped_at_every_level():
    levels, x = levels_asked(100, 10), torch.tensor([2.0, -0.3], dtype=torch.float64)
    got = denoise(lambda x, level: 0.4 * x, x, SHARES, levels)
    for level, after in zip(levels, [*(SHARES[k] for k in levels[1:]), 1.0], strict=True):
        clean = ((x - math.sqrt(1 - SHARES[level]) * 0.4 * x) / math.sqrt(SHARES[level])).clip(-1.0, 1.0)
        noise = (x - math.sqrt(SHARES[level]) * clean) / math.sqrt(1 - SHARES[level])
        x = math.sqrt(after) * clean + math.sqrt(1 - after) * noise
    torch.testing.assert_close(got, x, rtol=1e-12, atol=1e-12)
