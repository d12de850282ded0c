"""The parallel scan equals a loop in float64, with its gradients, for real and complex numbers of any length."""

import pytest
import torch

from seqrl.models.sequence_encoders.linear_scan import linear_scan


def inputs(length, dtype=torch.float64, width=3):
    g = torch.Generator().manual_seed(length)
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=dtype)  # noqa: E731
    decay = draw(2, length, width)
    decay = decay / (1e-3 + decay.abs()) * torch.rand(2, length, width, generator=g, dtype=torch.float64).sqrt()
    return [v.requires_grad_() for v in (decay, draw(2, length, width), draw(2, width))]


def loop(decay, added, state):
    states = []
    for t in range(decay.shape[1]):
        state = decay[:, t] * state + added[:, t]
        states.append(state)
    return torch.stack(states, dim=1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("length", [1, 2, 16, 32, 33, 48, 100, 600])
def test_it_equals_the_loop_with_its_gradients(length, dtype):
    values = inputs(length, dtype)
    results = [linear_scan(*values), loop(*values)]
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)
    weight = torch.randn(results[0].shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    grads = [torch.autograd.grad((y * weight).abs().square().sum(), values) for y in results]
    for got, expected in zip(*grads, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-11)


def test_gradients_equal_finite_differences():
    assert torch.autograd.gradcheck(linear_scan, inputs(35, width=1))


def test_decays_of_zero_and_one_are_exact():
    """No logarithm and no quotient is in the way."""
    decay = torch.ones(1, 50, 1)
    decay[:, 25] = 0.0
    states = linear_scan(decay, torch.ones(1, 50, 1), torch.zeros(1, 1)).flatten()
    assert states.tolist() == [*range(1, 26), *range(1, 26)]


def test_float32_stays_close_over_a_long_sequence():
    values = [v.detach() for v in inputs(3000)]
    got = linear_scan(*(v.float() for v in values))
    torch.testing.assert_close(got.double(), loop(*values), rtol=1e-4, atol=1e-4)
