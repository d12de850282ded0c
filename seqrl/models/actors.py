"""From the memory's output to a distribution over actions."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqrl.models.distributions import ActionDistribution, DistributionHead
from seqrl.models.mlp import make_mlp


class Actor(nn.Module):
    """An MLP that gives the parameters of an action distribution.

    Args:
        d_input: Width of the memory's output.
        head: Turns parameters into a distribution.
        num_layers: Hidden layers.
        d_hidden: Their width.
        activation: Their activation.
    """

    def __init__(
        self,
        d_input: int,
        head: DistributionHead,
        *,
        num_layers: int = 2,
        d_hidden: int = 256,
        activation: str = "leaky_relu",
    ) -> None:
        super().__init__()
        self.head = head
        self.mlp = make_mlp(d_input, d_hidden, num_layers, head.num_parameters, activation)

    def forward(
        self, x: Float[Tensor, "*lead D"], action_mask: Bool[Tensor, "*lead A"] | None = None
    ) -> ActionDistribution:
        """Return the distribution at every position; its parameters are float32 whatever the precision."""
        distribution: ActionDistribution = self.head(self.mlp(x).float(), action_mask)
        return distribution
