"""What proposes actions that data would take: a policy that imitates it, or an auto-encoder; and what moves them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.tensors import SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.distributions import GaussianMixture
from seqrl.models.latents import GaussianLatent
from seqrl.models.mlp import make_mlp

MAX_LATENT = 0.5
"""Proposals stay near the middle of the latent's prior, as in the authors' code."""


class Imitation(nn.Module):
    """A policy that imitates proposes by itself, as a mixture of Gaussians."""

    width = 0

    def proposals(
        self, policy: Actor, state: Float[Tensor, "B L D"], inputs: SeqInputs, num: int, *, is_greedy: bool
    ) -> Float[Tensor, "K B L 1 A"]:
        """Return draws; if greedy, the means of the mixture's components."""
        parameters = policy.parameters_of(state, inputs)
        mixture = policy.distribution(parameters.expand(1 if is_greedy else num, *parameters.shape), None)
        assert isinstance(mixture, GaussianMixture)
        return mixture.modes().squeeze(1) if is_greedy else mixture.sample()


class ActionVAE(nn.Module):
    """A conditional auto-encoder of single actions: the posterior of a latent vector with prior N(0, 1), and its draws.

    The decoder is a policy.

    Args:
        d_state: Width of the memory's output.
        d_action: Width of the action.
        d_latent: Width of the latent vector.
        num_fixed: Latents that are the same in every greedy proposal.
        d_hidden: Width of the posterior's hidden layers.
        num_layers: How many.
        activation: Theirs.

    Source: Fujimoto et al. (2019), arXiv 1812.02900, section 4.
    """

    fixed: Tensor

    def __init__(
        self,
        d_state: int,
        d_action: int,
        d_latent: int,
        num_fixed: int,
        *,
        d_hidden: int,
        num_layers: int,
        activation: str,
    ) -> None:
        super().__init__()
        self.latent = GaussianLatent(d_latent, is_learned=False)
        self.width = d_latent
        self.posterior = make_mlp(d_state + d_action, d_hidden, num_layers, self.latent.num_posterior, activation)
        draws = torch.randn(num_fixed, 1, 1, d_latent, generator=torch.Generator().manual_seed(0))
        self.register_buffer("fixed", draws, persistent=False)

    def losses(
        self, decoder: Actor, state: Float[Tensor, "B T D"], inputs: SeqInputs, actions: Float[Tensor, "B T A"]
    ) -> dict[str, Float[Tensor, "B T"]]:
        """Return half the squared error of decoded actions, summed over dimensions, and the latent's divergence."""
        posterior = self.posterior(torch.cat([state, actions.to(state.dtype)], dim=-1)).float()
        z, divergence = self.latent.draw(posterior, state[..., :0])
        error = -decoder(torch.cat([state, z.to(state.dtype)], dim=-1), inputs).log_prob(actions.unsqueeze(2))
        return {"actor": error.squeeze(2), "divergence": divergence}

    def proposals(
        self, decoder: Actor, state: Float[Tensor, "B L D"], inputs: SeqInputs, num: int, *, is_greedy: bool
    ) -> Float[Tensor, "K B L 1 A"]:
        """Return decoded draws from the prior; if greedy, of latents that are always the same."""
        lead = (num, *state.shape[:2])
        z = (
            torch.randn(*lead, self.width, device=self.fixed.device)
            if not is_greedy
            else self.fixed[:num].expand(*lead, -1)
        )
        wide = torch.cat([state.expand(*lead, -1), z.clamp(-MAX_LATENT, MAX_LATENT).to(state.dtype)], dim=-1)
        given = inputs.map(lambda x: x.repeat(num, *[1] * (x.dim() - 1))) if decoder.obs else inputs
        actions: Tensor = decoder(wide.flatten(0, 1), given).mode().unflatten(0, lead[:2])
        return actions


class Perturbation(nn.Module):
    """A small step of actions in [-1, 1], by which a network may improve them.

    Args:
        d_state: Width of the memory's output.
        d_action: Width of the action.
        reach: The longest step in each dimension.
        options: Hidden layers, as of :func:`make_mlp`.
    """

    def __init__(self, d_state: int, d_action: int, reach: float, **options: Any) -> None:
        super().__init__()
        self.reach = reach
        self.mlp = make_mlp(d_state + d_action, d_output=d_action, **options)

    def forward(self, state: Float[Tensor, "B L D"], action: Float[Tensor, "K B L 1 A"]) -> Float[Tensor, "K B L 1 A"]:
        """Return the actions after their step, within their range."""
        wide = state.unsqueeze(-2).expand(*action.shape[:-1], -1)
        step: Tensor = self.mlp(torch.cat([wide, action.to(wide.dtype)], dim=-1)).tanh()
        return (action + self.reach * step).clamp(-1.0, 1.0)


Mover = Perturbation | None
"""What may move proposals."""
