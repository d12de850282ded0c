"""A conditional auto-encoder of single actions, which proposes what data would do."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.tensors import SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.latents import GaussianLatent
from seqrl.models.mlp import make_mlp

MAX_LATENT = 0.5
"""Proposals stay near the middle of the latent's prior, as in the authors' code."""


class ActionVAE(nn.Module):
    """The posterior of a latent vector with prior N(0, 1), and its draws; the decoder is a policy.

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
        self.posterior = make_mlp(d_state + d_action, d_hidden, num_layers, self.latent.num_posterior, activation)
        draws = torch.randn(num_fixed, 1, 1, d_latent, generator=torch.Generator().manual_seed(0))
        self.register_buffer("fixed", draws, persistent=False)

    def losses(
        self, decoder: Actor, state: Float[Tensor, "B T D"], inputs: SeqInputs, actions: Float[Tensor, "B T A"]
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Return half the squared error of decoded actions, summed over dimensions, and the latent's divergence."""
        posterior = self.posterior(torch.cat([state, actions.to(state.dtype)], dim=-1)).float()
        z, divergence = self.latent.draw(posterior, state[..., :0])
        error = -decoder(torch.cat([state, z.to(state.dtype)], dim=-1), inputs).log_prob(actions.unsqueeze(2))
        return error.squeeze(2), divergence

    def proposals(
        self, decoder: Actor, state: Float[Tensor, "B L D"], inputs: SeqInputs, num: int, *, is_greedy: bool
    ) -> Float[Tensor, "K B L 1 A"]:
        """Return decoded draws from the prior; if greedy, of latents that are always the same."""
        lead = (num, *state.shape[:2])
        z = (
            self.fixed[:num].expand(*lead, -1)
            if is_greedy
            else torch.randn(*lead, self.latent.width, device=self.fixed.device)
        )
        wide = torch.cat([state.expand(*lead, -1), z.clamp(-MAX_LATENT, MAX_LATENT).to(state.dtype)], dim=-1)
        given = inputs.map(lambda x: x.repeat(num, *[1] * (x.dim() - 1))) if decoder.obs else inputs
        actions: Tensor = decoder(wide.flatten(0, 1), given).mode().unflatten(0, lead[:2])
        return actions
