"""Run file of batch-constrained Q-learning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.agent import OfflineOptimizerSection, TwinCriticSection, ValueSection


class BCQSection(ValueSection):
    """Batch-constrained Q-learning: the best of what a model of the data's actions proposes."""

    proposals: Literal["vae", "gmm"] = Field(
        "vae", description="What proposes continuous actions: an auto-encoder, or a mixture of Gaussians."
    )
    num_candidates: PositiveInt = Field(10, description="Proposals among which a target takes the best.")
    num_acting_candidates: PositiveInt = Field(100, description="Proposals among which acting takes the best.")
    threshold: float = Field(
        0.3,
        ge=0.0,
        le=1.0,
        description="Discrete actions with at least this share of the likeliest one's probability are candidates.",
    )
    min_weight: float = Field(
        0.75, ge=0.0, le=1.0, description="Weight of the smallest critic in targets; the largest has the rest."
    )
    perturbation: NonNegativeFloat = Field(
        0.0, description="How far a network may move proposals of continuous actions towards higher values; 0: none."
    )
    d_latent: PositiveInt | None = Field(
        None, description="Width of the auto-encoder's latent vector; null takes twice that of the action."
    )
    kl_weight: NonNegativeFloat = Field(0.125, description="Weight of the latent's divergence from N(0, 1).")
    critic: TwinCriticSection = TwinCriticSection()
    optimizer: OfflineOptimizerSection = OfflineOptimizerSection()


@register_config("bcq")
class BCQConfig(BaseConfig):
    """Run file of batch-constrained Q-learning."""

    algo: BCQSection = BCQSection()
