"""Run file of subgoal prediction."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.bc_vae_config import LatentSection
from seqrl.configs.section import Section
from seqrl.configs.sections.algo import AlgoSection
from seqrl.configs.sections.run import ImitationObservationSection


class SubgoalLatentSection(LatentSection):
    """The latent vector: what the history does not tell about where the demonstrator went."""

    prior: Literal["standard", "gaussian", "gmm", "categorical"] = Field(
        "gaussian", description="N(0, 1), a learned Gaussian, a learned mixture of them, or independent categories."
    )
    dim: PositiveInt = Field(16, description="Latent numbers, or categorical variables.")


class PlannerSection(Section):
    """What predicts where a demonstrator will be."""

    subgoal_keys: list[str] = Field(
        [],
        description="Observation entries that a subgoal consists of; [] takes all but images and goals.",
    )
    subgoal_steps: PositiveInt = Field(10, description="How many steps ahead a subgoal lies, and how long it is held.")
    latent: SubgoalLatentSection | None = Field(
        SubgoalLatentSection(), description="Latent that tells several ways to go apart; null predicts their mean."
    )
    num_layers: NonNegativeInt = Field(2, description="Hidden layers of the network that makes subgoals.")
    d_hidden: PositiveInt = Field(256, description="Their width.")


class GLSection(AlgoSection):
    """Subgoal prediction: a memory, a network that predicts where a demonstrator will be, an optimiser."""

    planner: PlannerSection = Field(PlannerSection(), description="What predicts where a demonstrator will be.")


@register_config("gl")
class GLConfig(BaseConfig):
    """Run file of subgoal prediction."""

    observation: ImitationObservationSection = ImitationObservationSection()
    algo: GLSection = GLSection()
