"""Memories in float64 against recurrences written as loops: values, gradients, and steps."""

from __future__ import annotations

import torch

import seqrl.models.sequence_encoders  # noqa: F401  (registers them)
from seqrl.core.registry import SEQUENCE_ENCODERS


def small_encoder(name, window=8, seed=0, **options):
    """Return a small encoder of three inputs in float64 whose weights are not special."""
    torch.manual_seed(seed)
    encoder = SEQUENCE_ENCODERS.get(name)(3, window, **options).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return encoder


def sequences(length, rows=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, length, 3, generator=generator, dtype=torch.float64).requires_grad_()


def clock(x):
    return torch.arange(x.shape[1]).expand(len(x), -1)


def check_against(encoder, naive, length=70):
    """Compare outputs, and gradients of all weights and of the inputs, with those of ``naive(encoder, x)``."""
    x = sequences(length)
    got, expected = encoder(x, clock(x))[0], naive(encoder, x)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)
    targets = [x, *encoder.parameters()]
    grads = [torch.autograd.grad(y.sin().sum(), targets) for y in (got, expected)]
    for g, e, name in zip(*grads, ["x", *dict(encoder.named_parameters())], strict=True):
        torch.testing.assert_close(g, e, rtol=1e-8, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


@torch.no_grad()
def check_steps(encoder, length=70):
    """Steps, a pass over all and two passes that hand on the state give the same, of the same size."""
    x = sequences(length)
    step, whole = clock(x), encoder(x, clock(x))[0]
    one, two = (encoder.init_state(2, device="cpu", dtype=torch.float64) for _ in range(2))
    sizes = {name: tensor.shape for name, tensor in one.items()}
    for t in range(length):
        y, one = encoder(x[:, t : t + 1], step[:, t : t + 1], one)
        torch.testing.assert_close(y[:, 0], whole[:, t], rtol=1e-9, atol=1e-10)
    cut = 2 * length // 3
    first, two = encoder(x[:, :cut], step[:, :cut], two)
    second, two = encoder(x[:, cut:], step[:, cut:], two)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=1e-9, atol=1e-10)
    assert sizes == {name: tensor.shape for name, tensor in one.items()}
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-9, atol=1e-10)


def moved(name, window, **options):
    """Return by how much an input a window ago moves the output at first: the mean over five seeds."""
    shares = []
    for seed in range(5):
        torch.manual_seed(seed)
        encoder = SEQUENCE_ENCODERS.get(name)(32, window, **options)
        x = torch.randn(1, 1, 32).repeat(2, window, 1)
        x[:, 0] = torch.randn(2, 32)
        with torch.no_grad():
            y, _ = encoder(x, clock(x))
        shares.append(((y[0, -1] - y[1, -1]).norm() / y[0, -1].norm()).item())
    return sum(shares) / len(shares)


def convolved(convolution, x):
    """Return what a short convolution and SiLU give ``(B, L, D)``, one product after the other."""
    rows = []
    for t in range(x.shape[1]):
        y = convolution.bias
        for lag in range(min(len(convolution.weight), t + 1)):
            y = y + convolution.weight[-1 - lag] * x[:, t - lag]
        rows.append(y / (1 + torch.exp(-y)))
    return torch.stack(rows, dim=1)


def rms(x, weight=1.0, eps=2.0**-52):
    """Return features divided by the root of their mean square."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight
