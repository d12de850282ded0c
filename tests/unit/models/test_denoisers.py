"""What all registered denoisers keep, and what a U-Net refuses."""

import pytest
import torch

from seqrl.core.errors import ConfigError
from seqrl.core.registry import DENOISERS
from seqrl.models.denoisers import build_denoiser

SMALL = {"unet1d": {"widths": [8, 16], "num_groups": 4}, "transformer": {"d_model": 16, "num_layers": 2}}


def built(name, **options):
    torch.manual_seed(0)
    return build_denoiser(name, {**SMALL.get(name, {}), **options}, 8, 3, 5).double().eval()


def given(num=4):
    torch.manual_seed(1)
    return torch.randn(num, 8, 3).double(), torch.rand(num).double(), torch.randn(num, 5).double()


@pytest.mark.parametrize("name", DENOISERS.names())
def test_each_sample_is_its_own(name):
    denoiser, (x, time, condition) = built(name), given()
    together = denoiser(x, time, condition)
    assert together.shape == x.shape
    for n in range(4):
        alone = denoiser(x[n : n + 1], time[n : n + 1], condition[n : n + 1])
        torch.testing.assert_close(alone[0], together[n], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", DENOISERS.names())
def test_everything_that_is_told_counts(name):
    denoiser, inputs = built(name), [t.requires_grad_() for t in given()]
    weight = torch.randn(4, 8, 3, dtype=torch.float64)
    gradients = torch.autograd.grad((weight * denoiser(*inputs)).sum(), inputs)
    for gradient in gradients:
        assert (
            (gradient.abs().flatten(1) > 1e-12).any(1).all() if gradient.dim() > 1 else (gradient.abs() > 1e-12).all()
        )


@pytest.mark.parametrize("name", DENOISERS.names())
def test_first_and_last_step_of_a_chunk_see_each_other(name):
    denoiser, (x, time, condition) = built(name), given(1)
    other = x.clone()
    other[:, -1] += 1.0
    assert (denoiser(other, time, condition) - denoiser(x, time, condition))[:, 0].abs().max() > 1e-9


def test_a_unet_refuses_what_it_cannot_halve():
    with pytest.raises(ConfigError, match=r"chunk_steps 8 is not a multiple of 16; .*transformer"):
        built("unet1d", widths=[8, 8, 8, 8, 8])
    with pytest.raises(ConfigError, match=r"widths 6 is not a multiple of num_groups 4"):
        built("unet1d", widths=[8, 6])
