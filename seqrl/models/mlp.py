"""Multi-layer perceptrons, activations and normalisation layers by name."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize, softmax

from seqrl.core.errors import ConfigError

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "mish": nn.Mish,
}
_SIMPLEX_WIDTH = 8


def make_activation(name: str) -> nn.Module:
    """Return the activation of that name."""
    return _ACTIVATIONS[name]()


def make_norm(name: str, width: int) -> nn.Module:
    """Return the normalisation over the last dimension of that name; ``none`` is the identity.

    Raises:
        ConfigError: If ``simnorm`` cannot divide the width into groups.
    """
    if name == "layer":
        return nn.LayerNorm(width)
    if name == "rms":
        return nn.RMSNorm(width)
    if name == "hypersphere":
        return Hypersphere()
    if name == "simnorm":
        if width % _SIMPLEX_WIDTH:
            raise ConfigError(f"norm 'simnorm' needs a width that {_SIMPLEX_WIDTH} divides, got {width}")
        return SimNorm()
    return nn.Identity()


class SimNorm(nn.Module):
    """Softmax over groups of eight features (Hansen et al., 2024, TD-MPC2, arXiv 2310.16828, equation 5)."""

    def forward(self, x: Float[Tensor, "*lead D"]) -> Float[Tensor, "*lead D"]:
        """Return features in [0, 1] whose groups sum to one."""
        return softmax(x.unflatten(-1, (-1, _SIMPLEX_WIDTH)), dim=-1).flatten(-2)


class Hypersphere(nn.Module):
    """Projection onto the unit sphere (Lee et al., 2025, SimbaV2, arXiv 2502.15280, section 4)."""

    def forward(self, x: Float[Tensor, "*lead D"]) -> Float[Tensor, "*lead D"]:
        """Return features of Euclidean norm one."""
        return normalize(x, dim=-1)


def make_mlp(
    d_input: int, d_hidden: int, num_layers: int, d_output: int, activation: str, dropout: float = 0.0
) -> nn.Sequential:
    """Return ``num_layers`` hidden layers of ``d_hidden``, with dropout after each, and a linear output."""
    layers: list[nn.Module] = []
    width = d_input
    for _ in range(num_layers):
        layers += [nn.Linear(width, d_hidden), _with_dropout(activation, dropout)]
        width = d_hidden
    return nn.Sequential(*layers, nn.Linear(width, d_output))


def _with_dropout(activation: str, dropout: float) -> nn.Module:
    """Return an activation and a dropout as one layer, so that weights are named alike with and without it."""
    module = make_activation(activation)
    return nn.Sequential(module, nn.Dropout(dropout)) if dropout else module


class ResidualMLP(nn.Module):
    """A linear layer, blocks ``x + LN(W2 act(LN(W1 x)))`` whose inner width is twice the outer, a linear output.

    Args:
        d_input: Width of the input.
        d_hidden: Width between the blocks.
        num_blocks: Blocks.
        d_output: Width of the output.
        activation: Inside the blocks.
        dropout: After it.

    Source: BRO (Nauman et al., 2024, arXiv 2405.16158), figure 2.
    """

    def __init__(
        self, d_input: int, d_hidden: int, num_blocks: int, d_output: int, activation: str, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.input = nn.Linear(d_input, d_hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(d_hidden, 2 * d_hidden),
                nn.LayerNorm(2 * d_hidden),
                _with_dropout(activation, dropout),
                nn.Linear(2 * d_hidden, d_hidden),
                nn.LayerNorm(d_hidden),
            )
            for _ in range(num_blocks)
        )
        self.output = nn.Linear(d_hidden, d_output)

    def forward(self, x: Float[Tensor, "*lead D"]) -> Float[Tensor, "*lead E"]:
        """Return the outputs."""
        x = self.input(x)
        for block in self.blocks:
            x = x + block(x)
        y: Tensor = self.output(x)
        return y
