"""Subgoal prediction: where will a demonstrator be, some steps ahead (Mandlekar et al., 2020, arXiv 2003.06085)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.algo.algo import Algo, PolicyAlgo, register_algo_factory_func
from seqrl.algo.bc_vae import build_latent, prior_parameters
from seqrl.algo.losses import Losses
from seqrl.algo.objectives import inputs_ahead, masked_mean, take_positions
from seqrl.algo.trunk import build_trunk
from seqrl.configs.gl_config import GLSection
from seqrl.core.errors import ConfigError
from seqrl.core.spaces import GOAL_PREFIX, ObsSpec
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.latents import Latent
from seqrl.models.mlp import make_mlp
from seqrl.models.sequence_encoders import State
from seqrl.models.timestep_encoders import flat_entry, flat_width, is_image


@register_algo_factory_func("gl")
def gl_factory(algo_config: GLSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of subgoal prediction."""
    return GL, {}


class GL(PolicyAlgo[GLSection]):
    """Predict the observation some steps ahead, given the history and a latent vector for what it does not tell.

    It plans and does not act: :class:`~seqrl.algo.HBC` follows its subgoals. They are made of the inputs as the
    networks know them, scaled.
    """

    acts = False
    reads_vectors = True
    fitted = ("loss/subgoal",)
    needs = frozenset({"next_obs"})

    def _create_networks(self) -> None:
        section = self.algo_config.planner
        self.subgoal_obs = subgoal_entries(section.subgoal_keys, self.obs)
        self.d_subgoal = sum(self.subgoal_widths.values())
        self.steps_ahead = section.subgoal_steps
        self.trunk = build_trunk(self.config, self.algo_config.sequence_encoder, self.obs, self.codec)
        self.nets["trunk"] = self.trunk
        d_state, sizes = self.trunk.d_output, (section.d_hidden, section.num_layers)
        self.latent: Latent | None = None
        if section.latent is not None:
            self.latent = build_latent(section.latent)
            posterior = make_mlp(d_state + self.d_subgoal, *sizes, self.latent.num_posterior, "leaky_relu")
            self.is_conditioned = section.latent.is_conditioned
            d_prior = d_state if self.is_conditioned else 1
            has_prior = self.latent.num_prior > 0
            prior = make_mlp(d_prior, *sizes, self.latent.num_prior, "leaky_relu") if has_prior else nn.Identity()
            self.nets.update({"latent": self.latent, "posterior": posterior, "prior": prior})
        d_latent = 0 if self.latent is None else self.latent.width
        self.nets["subgoal"] = make_mlp(d_state + d_latent, *sizes, self.d_subgoal, "leaky_relu")

    @property
    def subgoal_widths(self) -> dict[str, int]:
        """Entry -> how many of a subgoal's numbers are its own, in their order."""
        return {k: flat_width(spec) for k, spec in self.subgoal_obs.items()}

    def subgoals_in(self, inputs: SeqInputs) -> Float[Tensor, "B L S"]:
        """Return what a subgoal is made of, at every input."""
        return torch.cat([flat_entry(inputs.obs[k], spec) for k, spec in self.subgoal_obs.items()], dim=-1)

    # ------------------------------------------------------------------------------------------- training
    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return half the squared error of the subgoals, summed over their entries, and the latent's divergence."""
        inputs = batch.inputs.first(batch.num_transitions)
        hidden, _ = self.trunk(inputs, before=batch.before)
        index, is_known = inputs_ahead(batch, self.steps_ahead)
        goal = take_positions(self.subgoals_in(batch.inputs), index)
        stats = self.trunk.stats(inputs, batch.mask)
        known = goal * is_known.unsqueeze(-1)
        z, divergence = hidden[..., :0].float(), torch.zeros_like(batch.rewards)
        if self.latent is not None:
            posterior = self.nets["posterior"](torch.cat([hidden, known.to(hidden.dtype)], dim=-1)).float()
            z, divergence = self.latent.draw(posterior, self._prior(hidden))
        error = 0.5 * (self._decoded(hidden, z) - known).square().sum(-1)
        mask = self.mask_edits.actor(batch, error.detach(), is_known)
        metrics = {"loss/subgoal": masked_mean(error.detach(), is_known)}
        section = self.algo_config.planner.latent
        if section is None:
            return Losses(masked_mean(error, mask), metrics, stats)
        metrics["loss/divergence"] = masked_mean(divergence.detach(), is_known)
        return Losses(masked_mean(error + section.kl_weight * divergence, mask), metrics, stats)

    def _prior(self, hidden: Tensor) -> Tensor:
        assert self.latent is not None
        return prior_parameters(self.latent, self.nets["prior"], hidden, is_conditioned=self.is_conditioned)

    def _decoded(self, hidden: Tensor, z: Tensor) -> Float[Tensor, "*lead S"]:
        subgoal: Tensor = self.nets["subgoal"](torch.cat([hidden, z.to(hidden.dtype)], dim=-1)).float()
        return subgoal

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move what follows the weights, and the temperature of categorical latents."""
        if self.latent is not None:
            self.latent.move()
        super().on_gradient_step(stats)

    # ------------------------------------------------------------------------------------------- planning
    def plan(
        self, hidden: Float[Tensor, "B L D"], num: int, *, is_greedy: bool, shared: torch.Generator | None = None
    ) -> Float[Tensor, "K B L S"]:
        """Return subgoals at every input: of latents that are drawn, or of the likeliest one.

        Args:
            hidden: Of the memory.
            num: K.
            is_greedy: Take the likeliest latent.
            shared: Where draws come from that are the same for all rows.
        """
        wide = hidden.expand(num, *hidden.shape)
        if self.latent is None:
            return self._decoded(wide, wide[..., :0])
        prior = self._prior(hidden).expand(num, *hidden.shape[:-1], -1)
        return self._decoded(wide, self.latent.from_prior(prior, is_greedy=is_greedy, shared=shared))

    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> NoReturn:
        """Refuse.

        Raises:
            ConfigError: It gives subgoals, no actions.
        """
        raise ConfigError("algorithm 'gl' plans subgoals and gives no actions; 'hbc' and 'iris' follow them")


def subgoal_entries(keys: list[str], obs: Mapping[str, ObsSpec]) -> dict[str, ObsSpec]:
    """Return the entries that a subgoal consists of.

    Raises:
        ConfigError: If one is not among the observations, is an image, or none is left.
    """
    if unknown := sorted(set(keys) - obs.keys()):
        raise ConfigError(f"algo.planner.subgoal_keys: {', '.join(unknown)} not among {', '.join(obs)}")
    if images := [k for k in keys if is_image(obs[k])]:
        raise ConfigError(f"algo.planner.subgoal_keys: {images[0]} is an image, which cannot be part of a subgoal")
    chosen = keys or [k for k, spec in obs.items() if not (is_image(spec) or k.startswith(GOAL_PREFIX))]
    if not chosen:
        raise ConfigError(f"a subgoal needs an observation entry that is not an image; there are {', '.join(obs)}")
    return {k: obs[k] for k in sorted(chosen)}
