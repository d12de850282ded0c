"""Multi-layer perceptrons, activations and normalisation layers by name."""

from __future__ import annotations

from torch import nn

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


def make_activation(name: str) -> nn.Module:
    """Return the activation of that name."""
    return _ACTIVATIONS[name]()


def make_norm(name: str, width: int) -> nn.Module:
    """Return the normalisation over the last dimension of that name; ``none`` is the identity."""
    if name == "layer":
        return nn.LayerNorm(width)
    if name == "rms":
        return nn.RMSNorm(width)
    return nn.Identity()


def make_mlp(d_input: int, d_hidden: int, num_layers: int, d_output: int, activation: str) -> nn.Sequential:
    """Return ``num_layers`` hidden layers of ``d_hidden`` and a linear output."""
    layers: list[nn.Module] = []
    width = d_input
    for _ in range(num_layers):
        layers += [nn.Linear(width, d_hidden), make_activation(activation)]
        width = d_hidden
    return nn.Sequential(*layers, nn.Linear(width, d_output))
