"""Run file of behaviour cloning."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

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
    optimizer: OptimizerSection = OptimizerSection()


@register_config("bc")
class BCConfig(BaseConfig):
    """Run file of behaviour cloning."""

    observation: ImitationObservationSection = ImitationObservationSection()
    algo: BCSection = BCSection()
