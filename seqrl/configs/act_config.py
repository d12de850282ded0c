"""Run file of action chunking with transformers."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.algo import ChunkSection
from seqrl.configs.sections.run import ImitationObservationSection


class ACTSection(ChunkSection):
    """Action chunking with transformers: a memory, an auto-encoder of chunks, an optimiser."""

    chunk_steps: PositiveInt = Field(16, description="Actions predicted together at every step (a chunk).")
    samples_per_window: PositiveInt = Field(
        8, description="Steps per window whose chunks are learned, drawn anew each time; each costs a pass."
    )
    d_latent: PositiveInt = Field(32, description="Width of the latent vector that tells demonstrations apart.")
    kl_weight: NonNegativeFloat = Field(
        10.0,
        description="Weight of the latent's divergence from N(0, 1): high ignores the latent, low lets it carry more.",
    )
    d_model: PositiveInt = Field(128, description="Width of the two transformers.")
    num_heads: PositiveInt = Field(4, description="Attention heads.")
    num_encoder_layers: PositiveInt = Field(4, description="Layers of the posterior, which sees the chunk.")
    num_decoder_layers: PositiveInt = Field(1, description="Layers of the decoder, which predicts the chunk.")
    dropout: float = Field(0.1, ge=0.0, lt=1.0, description="Dropout in both transformers.")

    @model_validator(mode="after")
    def _heads_divide(self) -> ACTSection:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}")
        return self


@register_config("act")
class ACTConfig(BaseConfig):
    """Run file of action chunking with transformers."""

    observation: ImitationObservationSection = ImitationObservationSection()
    algo: ACTSection = ACTSection()
