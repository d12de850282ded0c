"""Behaviour cloning by a conditional variational auto-encoder of actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.chunk_policy import ChunkPolicy, Targets
from seqrl.algo.heads import build_actor
from seqrl.algo.losses import Losses
from seqrl.algo.objectives import masked_mean
from seqrl.configs.bc_vae_config import BCVAESection, LatentSection
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.distributions import ActionDistribution
from seqrl.models.latents import CategoricalLatent, GaussianLatent, Latent, MixtureLatent
from seqrl.models.mlp import make_mlp


@register_algo_factory_func("bc_vae")
def bc_vae_factory(algo_config: BCVAESection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of behaviour cloning by an auto-encoder."""
    return BCVAE, {}


class BCVAE(ChunkPolicy[BCVAESection]):
    """Imitate actions given the history and a latent vector that tells the demonstrators' choices apart.

    A posterior sees the demonstrated actions and gives the latent; the policy decodes it. In acting the latent comes
    from a prior that sees the history only. Greedy actions decode the prior's likeliest latent; sampled ones a draw,
    so that each of several ways is taken as often as it was demonstrated.

    Source: Kingma & Welling (2014, arXiv 1312.6114); Sohn et al. (2015), conditional VAE.
    """

    actor: Actor
    latent: Latent

    def _create_policy(self, num_policies: int | None) -> None:
        section = self.algo_config
        options: LatentSection = section.latent
        self.latent = build_latent(options)
        d_state = self.trunk.d_output
        sizes = (options.d_hidden, options.num_layers)
        d_actions = self.chunk_steps * (self.codec.dim + 1)
        self.posterior = make_mlp(d_state + d_actions, *sizes, self.latent.num_posterior, section.actor.activation)
        self.is_conditioned = options.is_conditioned
        self.prior: nn.Module = nn.Identity()
        if self.latent.num_prior:
            d_prior = d_state if self.is_conditioned else 1
            self.prior = make_mlp(d_prior, *sizes, self.latent.num_prior, section.actor.activation)
        d_seen = d_state if section.decoder_sees_history else 0
        self.actor = build_actor(d_seen, section, self.obs, self.codec, num_policies, self.latent.width)
        parts = {"latent": self.latent, "posterior": self.posterior, "prior": self.prior, "actor": self.actor}
        self.nets.update(parts)

    def _policy_losses(
        self, hidden: Float[Tensor, "B T D"], inputs: SeqInputs, targets: Targets, batch: SeqBatch
    ) -> Losses:
        """Return the negative evidence bound: actions given the latent, and the latent's divergence."""
        section = self.algo_config
        mask = targets.mask if targets.mask.dim() == 3 else targets.mask.unsqueeze(-1)
        shown = targets.actions.reshape(*mask.shape, -1) * mask.unsqueeze(-1)
        seen = torch.cat([hidden, shown.flatten(2), mask.to(hidden.dtype)], dim=-1)
        z, divergence = self.latent.draw(self.posterior(seen).float(), self._prior(hidden))
        distribution = self._decoded(hidden, z, inputs)
        nll = -distribution.log_prob(targets.actions).reshape(mask.shape)
        error = (self.chunk_weights() * nll * mask).sum(-1)
        if section.reconstruction == "mean":
            error = error / mask.sum(-1).clamp(min=1)
        is_shown = mask.any(-1)
        bound = error + section.latent.kl_weight * divergence
        total = masked_mean(self.weights(batch) * bound, self._counted(batch, bound, is_shown))
        metrics = {
            "loss/nll": masked_mean(nll.detach(), mask),
            "loss/divergence": masked_mean(divergence.detach(), is_shown),
        }
        return Losses(total, metrics)

    def _prior(self, hidden: Tensor) -> Tensor:
        return prior_parameters(self.latent, self.prior, hidden, is_conditioned=self.is_conditioned)

    def _choose(self, hidden: Tensor, inputs: SeqInputs, deterministic: bool) -> Float[Tensor, "B L *K A"]:
        z = self.latent.from_prior(self._prior(hidden), is_greedy=deterministic)
        return self._decoded(hidden, z, inputs).mode()

    def _decoded(self, hidden: Tensor, z: Tensor, inputs: SeqInputs) -> ActionDistribution:
        z = z.to(hidden.dtype)
        seen = torch.cat([hidden, z], dim=-1) if self.algo_config.decoder_sees_history else z
        distribution: ActionDistribution = self.actor(seen, inputs)
        return distribution

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move what follows the weights, and the temperature of categorical latents."""
        super().on_gradient_step(stats)
        self.latent.move()


def build_latent(section: LatentSection) -> Latent:
    """Return the latent that the section describes."""
    if section.prior == "categorical":
        return CategoricalLatent(
            section.dim,
            section.num_categories,
            is_learned=section.is_conditioned,
            temperature=section.init_temperature,
            step=section.temperature_step,
            min_temperature=section.min_temperature,
        )
    if section.prior == "gmm":
        return MixtureLatent(section.dim, section.num_modes, learns_weights=section.learns_weights, clip=section.clip)
    return GaussianLatent(section.dim, is_learned=section.prior == "gaussian", clip=section.clip)


def prior_parameters(
    latent: Latent, prior: nn.Module, hidden: Float[Tensor, "*lead D"], *, is_conditioned: bool
) -> Float[Tensor, "*lead Q"]:
    """Return the parameters of a latent's prior at every input; of width 0 if it is fixed.

    Args:
        latent: Whose prior it is.
        prior: What gives the parameters, if it is learned.
        hidden: Of the memory.
        is_conditioned: Whether the prior sees the memory, or is the same everywhere.
    """
    if not latent.num_prior:
        return hidden[..., :0].float()
    parameters: Tensor = prior(hidden if is_conditioned else torch.ones_like(hidden[..., :1]))
    return parameters.float()
