"""Run file of behaviour cloning."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt, model_validator

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.section import Component, Section
from seqrl.configs.sections.policy import ActorSection, AutoDistributionSection, OptimizerSection
from seqrl.configs.sections.run import ImitationObservationSection
from seqrl.configs.sections.sequence_encoders import TransformerSection
from seqrl.core.registry import DISTRIBUTIONS, SEQUENCE_ENCODERS


class BCSection(Section):
    """Behaviour cloning: a memory, a policy head, an optimiser."""

    sequence_encoder: Annotated[Section, Component(SEQUENCE_ENCODERS)] = Field(
        TransformerSection(), description="The memory."
    )
    actor: ActorSection = ActorSection()
    distribution: Annotated[Section, Component(DISTRIBUTIONS)] = Field(
        AutoDistributionSection(), description="The distribution of actions."
    )
    chunk_steps: PositiveInt = Field(1, description="Actions given at once, at every step.")
    execute_steps: PositiveInt | None = Field(
        None, description="Actions of a chunk that are taken before the policy is asked again; null takes all of them."
    )
    supervise_all_steps: bool = Field(
        True, description="Imitate at every step of a window; false: only at the last one, with most history."
    )
    optimizer: OptimizerSection = OptimizerSection()

    @model_validator(mode="after")
    def _chunk_is_enough(self) -> BCSection:
        if self.execute_steps is not None and self.execute_steps > self.chunk_steps:
            raise ValueError(f"execute_steps {self.execute_steps} exceeds chunk_steps {self.chunk_steps}")
        return self


@register_config("bc")
class BCConfig(BaseConfig):
    """Run file of behaviour cloning."""

    observation: ImitationObservationSection = ImitationObservationSection()
    algo: BCSection = BCSection()
