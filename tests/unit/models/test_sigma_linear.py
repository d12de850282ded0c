"""The effective spectral norm is the learned scale, and follows the weight by power iteration."""

import numpy as np
import pytest
import torch
from torch import nn

from seqrl.models.sigma_linear import SigmaLinear


def _effective(layer):
    """Return the matrix that the layer multiplies by, read off its outputs."""
    with torch.no_grad():
        zero = layer(torch.zeros(1, layer.weight.shape[1]))
        return (layer(torch.eye(layer.weight.shape[1])) - zero).T.double().numpy()


def _norm(layer):
    return np.linalg.svd(_effective(layer), compute_uv=False)[0]


@pytest.mark.parametrize(("d_input", "d_output"), [(5, 9), (9, 5), (6, 6), (1, 4), (4, 1), (64, 192)])
def test_spectral_norm_is_the_scale_at_the_start(d_input, d_output):
    torch.manual_seed(0)
    layer = SigmaLinear(d_input, d_output)
    assert _norm(layer) == pytest.approx(1.0, rel=1e-5)
    with torch.no_grad():
        layer.scale.fill_(2.5)
    assert _norm(layer) == pytest.approx(2.5, rel=1e-5)


def test_output_is_the_formula():
    torch.manual_seed(0)
    layer = SigmaLinear(4, 3)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([1.0, -2.0, 3.0]))
        layer.scale.fill_(0.7)
    x = torch.randn(2, 5, 4)
    w = layer.weight.detach().double().numpy()
    expected = x.double().numpy() @ (0.7 / np.linalg.norm(w, 2) * w).T + np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, rtol=1e-4, atol=1e-6)


def test_size_of_the_weight_does_not_matter():
    torch.manual_seed(0)
    layer, x = SigmaLinear(4, 3), torch.randn(2, 4)
    before = layer(x)
    with torch.no_grad():
        layer.weight.mul_(50.0)
    torch.testing.assert_close(layer(x), before, rtol=1e-4, atol=1e-6)


def test_power_iteration_follows_a_changed_weight():
    torch.manual_seed(0)
    layer = SigmaLinear(12, 8)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(8, 12))
    assert abs(_norm(layer) - 1.0) > 0.05
    errors = []
    for _ in range(100):
        layer.power_iteration()
        errors.append(abs(_norm(layer) - 1.0))
    assert errors[-1] < 1e-3
    assert errors[-1] < errors[0]
    for vector in (layer.u, layer.v):
        assert vector.norm().item() == pytest.approx(1.0, rel=1e-5)


def test_power_iteration_leaves_exact_vectors_where_they_are():
    torch.manual_seed(0)
    layer = SigmaLinear(6, 5)
    u, v = layer.u.clone(), layer.v.clone()
    layer.power_iteration()
    torch.testing.assert_close(layer.u, u, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(layer.v, v, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_forward_writes_no_buffer(training):
    torch.manual_seed(0)
    layer = SigmaLinear(6, 5).train(training)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(5, 6))
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    layer(torch.randn(3, 6)).sum().backward()
    assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())


def test_gradient_passes_through_sigma_but_not_through_its_vectors():
    """d/dW of (g / u^T W v) W x, with u and v held constant, by finite differences in float64."""
    torch.manual_seed(0)
    layer = SigmaLinear(4, 3).double()
    assert {n for n, _ in layer.named_parameters()} == {"weight", "bias", "scale"}
    x, weights = torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    (layer(x) * weights).sum().backward()
    for i, j in [(0, 0), (1, 3), (2, 2)]:
        ends = []
        for sign in (1, -1):
            w = layer.weight.detach().clone()
            w[i, j] += sign * 1e-7
            ends.append(((x @ (w / (layer.u @ w @ layer.v)).T) * weights).sum().item())
        assert layer.weight.grad[i, j].item() == pytest.approx((ends[0] - ends[1]) / 2e-7, rel=1e-4, abs=1e-4)
    assert layer.scale.grad.abs() > 0


def test_no_bias():
    layer = SigmaLinear(4, 3, bias=False)
    assert layer.bias is None
    assert layer(torch.zeros(1, 4)).tolist() == [[0.0, 0.0, 0.0]]


def test_saved_vectors_come_back():
    torch.manual_seed(0)
    first, second = SigmaLinear(4, 3), SigmaLinear(4, 3)
    second.load_state_dict(first.state_dict())
    x = torch.randn(2, 4)
    assert torch.equal(first(x), second(x))


def test_spectral_norm_is_computed_in_float32_under_autocast():
    torch.manual_seed(0)
    layer, seen = SigmaLinear(64, 64), []
    real_dot = torch.dot
    x = torch.randn(2, 64)
    try:
        torch.dot = lambda a, b: seen.append((a.dtype, b.dtype)) or real_dot(a, b)
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x)
    finally:
        torch.dot = real_dot
    assert seen == [(torch.float32, torch.float32)]
    assert out.dtype == torch.bfloat16
    reference = nn.functional.linear(x, layer.weight / np.linalg.norm(layer.weight.detach().numpy(), 2))
    torch.testing.assert_close(out.float(), reference, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("change", ["weight", "scale", "power_iteration", "load", "train", "float64", "optimizer"])
def test_weight_kept_for_acting_is_never_stale(change):
    """What acting without gradients gives is what a pass with them gives, whatever moved in between."""
    torch.manual_seed(0)
    layer, x = SigmaLinear(6, 5).eval(), torch.randn(3, 6)
    with torch.no_grad():
        first = layer(x)
        assert torch.equal(layer(x), first)
    if change == "weight":
        with torch.no_grad():
            layer.weight[2, 3] += 1.0
    elif change == "scale":
        with torch.no_grad():
            layer.scale.mul_(2.0)
    elif change == "power_iteration":
        with torch.no_grad():
            layer.weight.copy_(torch.randn(5, 6))
            layer(x)
        layer.power_iteration()
    elif change == "load":
        layer.load_state_dict(SigmaLinear(6, 5).state_dict())
    elif change == "train":
        layer.train()
        layer.weight.data.add_(torch.randn(5, 6))
        layer.eval()
    elif change == "float64":
        layer, x = layer.double(), x.double()
        with torch.no_grad():
            layer.weight.add_(1.0)
    else:
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
        layer(x).square().sum().backward()
        optimizer.step()
    with torch.no_grad():
        acting = layer(x)
    torch.testing.assert_close(acting, layer(x).detach(), rtol=1e-6, atol=1e-7)
    assert acting.dtype == x.dtype
    assert not torch.allclose(acting.float(), first, atol=1e-3)


def test_weight_kept_in_inference_mode_does_not_break_training():
    torch.manual_seed(0)
    layer, x = SigmaLinear(6, 5).eval(), torch.randn(3, 6)
    with torch.inference_mode():
        acting = layer(x).clone()
    with torch.no_grad():
        assert torch.equal(layer(x), acting)
    layer(x).sum().backward()
    assert layer.weight.grad.abs().sum() > 0
    assert set(layer.state_dict()) == {"weight", "bias", "scale", "u", "v"}
