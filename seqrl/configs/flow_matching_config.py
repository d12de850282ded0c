"""Run file of flow matching."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.denoising import DenoisingSection
from seqrl.configs.sections.run import ImitationObservationSection


class FlowMatchingSection(DenoisingSection):
    """Flow matching: a memory, a network that carries noise to actions, an optimiser."""

    solver: Literal["euler", "heun"] = Field(
        "euler", description="Heun's steps are more accurate, and cost two passes."
    )
    inference_steps: PositiveInt = Field(10, description="Integration steps from noise to actions when acting.")


@register_config("flow_matching")
class FlowMatchingConfig(BaseConfig):
    """Run file of flow matching."""

    observation: ImitationObservationSection = ImitationObservationSection()
    algo: FlowMatchingSection = FlowMatchingSection()
