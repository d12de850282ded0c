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
        num_discounts: G, if there is one policy per discount; None for a single policy.
    """

    def __init__(
        self,
        d_input: int,
        head: DistributionHead,
        *,
        num_layers: int = 2,
        d_hidden: int = 256,
        activation: str = "leaky_relu",
        num_discounts: int | None = None,
    ) -> None:
        super().__init__()
        self.head = head
        self.num_discounts = num_discounts
        self.mlp = make_mlp(d_input, d_hidden, num_layers, (num_discounts or 1) * head.num_parameters, activation)

    def forward(
        self, x: Float[Tensor, "*lead D"], action_mask: Bool[Tensor, "*lead A"] | None = None
    ) -> ActionDistribution:
        """Return the distribution at every position, of shape ``(*lead)``, or ``(*lead, G)`` with several discounts.

        Its parameters are float32 whatever the precision.
        """
        return self.distribution(self.parameters_of(x), action_mask)

    def parameters_of(self, x: Float[Tensor, "*lead D"]) -> Tensor:
        """Return the parameters of the distributions."""
        parameters: Tensor = self.mlp(x).float()
        return parameters if self.num_discounts is None else parameters.unflatten(-1, (self.num_discounts, -1))

    def distribution(self, parameters: Tensor, action_mask: Tensor | None) -> ActionDistribution:
        """Return the distributions with these parameters, which may carry leading dimensions of samples."""
        if action_mask is not None and self.num_discounts is not None:
            action_mask = action_mask.unsqueeze(-2)
        distribution: ActionDistribution = self.head(parameters, action_mask)
        return distribution
