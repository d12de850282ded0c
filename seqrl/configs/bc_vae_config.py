"""Run file of behaviour cloning by a variational auto-encoder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.section import Section
from seqrl.configs.sections.algo import ChunkSection, PolicySection
from seqrl.configs.sections.run import ImitationObservationSection


class LatentSection(Section):
    """The latent vector: what the history does not tell about the demonstrated action."""

    prior: Literal["standard", "gaussian", "gmm", "categorical"] = Field(
        "gmm", description="N(0, 1), a learned Gaussian, a learned mixture of them, or independent categories."
    )
    is_conditioned: bool = Field(True, description="A learned prior depends on the history.")
    dim: PositiveInt = Field(8, description="Latent numbers, or categorical variables.")
    num_modes: PositiveInt = Field(10, description="Gaussians of the prior 'gmm'.")
    num_categories: PositiveInt = Field(10, ge=2, description="Categories per variable of the prior 'categorical'.")
    clip: PositiveFloat | None = Field(
        None, description="Clip samples of a Gaussian prior to this many standard deviations around its mean."
    )
    learns_weights: bool = Field(True, description="Learn the weights of the modes of 'gmm'; false: all equal.")
    kl_weight: NonNegativeFloat = Field(0.02, description="Weight of the divergence between posterior and prior.")
    num_layers: NonNegativeInt = Field(2, description="Hidden layers of the posterior and of the prior.")
    d_hidden: PositiveInt = Field(256, description="Their width.")
    init_temperature: PositiveFloat = Field(
        1.0, description="Initial temperature of the Gumbel-softmax ('categorical')."
    )
    temperature_step: NonNegativeFloat = Field(
        0.001, description="How much the temperature falls at every gradient step."
    )
    min_temperature: PositiveFloat = Field(0.3, description="Lowest temperature.")

    @model_validator(mode="after")
    def _temperature_falls(self) -> LatentSection:
        if self.min_temperature > self.init_temperature:
            raise ValueError(f"min_temperature {self.min_temperature} exceeds init_temperature {self.init_temperature}")
        return self


class BCVAESection(ChunkSection, PolicySection):
    """Behaviour cloning with a latent vector: a memory, an auto-encoder of actions, an optimiser."""

    latent: LatentSection = LatentSection()
    decoder_sees_history: bool = Field(
        True, description="The decoder reads the memory as well as the latent; false: the latent alone."
    )
    reconstruction: Literal["sum", "mean"] = Field(
        "sum", description="Sum or average the errors of a chunk's actions; kl_weight weighs against that."
    )


@register_config("bc_vae")
class BCVAEConfig(BaseConfig):
    """Run file of behaviour cloning by a variational auto-encoder."""

    observation: ImitationObservationSection = ImitationObservationSection()
    algo: BCVAESection = BCVAESection()
