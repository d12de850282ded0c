"""Normalisation layers and activations by name."""

import typing

import numpy as np
import pytest
import torch

from seqrl.configs.sections.names import ActivationName, NormName
from seqrl.core.errors import ConfigError
from seqrl.models.mlp import make_activation, make_norm

X = 3 * torch.randn(5, 2, 16, generator=torch.Generator().manual_seed(0))


def reference(name, x):
    if name == "layer":
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    if name == "rms":
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + np.finfo(np.float32).eps)
    if name == "hypersphere":
        return x / np.sqrt((x**2).sum(-1, keepdims=True))
    if name == "simnorm":
        groups = np.exp(x.reshape(*x.shape[:-1], 2, 8))
        return (groups / groups.sum(-1, keepdims=True)).reshape(x.shape)
    return x


@pytest.mark.parametrize("name", typing.get_args(NormName))
def test_norm_equals_its_formula(name):
    got = make_norm(name, 16)(X).detach().numpy()
    np.testing.assert_allclose(got, reference(name, X.double().numpy()), rtol=1e-4, atol=1e-5)


def test_the_hypersphere_does_not_divide_by_zero():
    x = torch.zeros(2, 4, requires_grad=True)
    make_norm("hypersphere", 4)(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_groups_have_to_fit_the_width():
    with pytest.raises(ConfigError, match=r"'simnorm' needs a width that 8 divides, got 12"):
        make_norm("simnorm", 12)


@pytest.mark.parametrize("name", typing.get_args(ActivationName))
def test_every_activation_can_be_made_and_bends(name):
    act = make_activation(name)
    assert act(torch.zeros(1)).abs() < 1e-6
    assert not torch.allclose(act(X), -act(-X)) or name == "tanh"
