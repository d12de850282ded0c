"""From the memory's output to a distribution over actions."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.registry import ACTORS
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.distributions import ActionDistribution, DistributionHead
from seqrl.models.mlp import ResidualMLP, make_mlp
from seqrl.models.timestep_encoders import flat_entry, flat_width


@ACTORS.register("mlp")
class Actor(nn.Module):
    """A network that gives the parameters of an action distribution.

    Args:
        d_input: Width of the memory's output.
        head: Turns parameters into a distribution.
        num_layers: Hidden layers, or residual blocks.
        d_hidden: Their width.
        activation: Their activation.
        is_residual: Use residual blocks with norms instead of plain layers.
        dropout: Share of hidden features dropped in training.
        obs: Observation entries that it reads besides the memory's output, as they are.
        num_policies: G distributions per input, one per discount or per step of a chunk; None for a single one.
    """

    def __init__(
        self,
        d_input: int,
        head: DistributionHead,
        *,
        num_layers: int = 2,
        d_hidden: int = 256,
        activation: str = "leaky_relu",
        is_residual: bool = False,
        dropout: float = 0.0,
        obs: Mapping[str, ObsSpec] | None = None,
        num_policies: int | None = None,
    ) -> None:
        super().__init__()
        self.head = head
        self.obs = dict(sorted((obs or {}).items()))
        self.num_policies = num_policies
        d_input += sum(flat_width(spec) for spec in self.obs.values())
        network = ResidualMLP if is_residual else make_mlp
        d_output = (num_policies or 1) * head.num_parameters
        self.mlp = network(d_input, d_hidden, num_layers, d_output, activation, dropout)

    def forward(self, state: Float[Tensor, "B L D"], inputs: SeqInputs) -> ActionDistribution:
        """Return the distribution at every input, of shape ``(B, L)``, or ``(B, L, G)`` with several policies."""
        return self.distribution(self.parameters_of(state, inputs), inputs.action_mask)

    def parameters_of(self, state: Float[Tensor, "B L D"], inputs: SeqInputs) -> Float[Tensor, "B L *G P"]:
        """Return the parameters of the distributions, float32 whatever the precision."""
        extra = [flat_entry(inputs.obs[key], spec).to(state.dtype) for key, spec in self.obs.items()]
        parameters: Tensor = self.mlp(torch.cat([state, *extra], dim=-1) if extra else state).float()
        return parameters if self.num_policies is None else parameters.unflatten(-1, (self.num_policies, -1))

    def distribution(self, parameters: Tensor, action_mask: Tensor | None) -> ActionDistribution:
        """Return the distributions with these parameters, which may carry leading dimensions of samples."""
        if action_mask is not None and self.num_policies is not None:
            action_mask = action_mask.unsqueeze(-2)
        distribution: ActionDistribution = self.head(parameters, action_mask)
        return distribution
