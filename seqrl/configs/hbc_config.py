"""Run file of hierarchical behaviour cloning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.bc_config import BCSection
from seqrl.configs.gl_config import GLSection
from seqrl.configs.sections.policy import OptimizerSection
from seqrl.configs.sections.run import ImitationObservationSection


class HierarchyOptimizerSection(OptimizerSection):
    """The optimiser of a planner and of the policy that follows it."""

    clip: Literal["global", "per_group"] = Field(
        "per_group", description="Clip the gradient of all networks together, or that of each network alone."
    )


class HBCSection(BCSection, GLSection):
    """Hierarchical behaviour cloning: a planner of subgoals and a policy that follows them, each with a memory."""

    optimizer: HierarchyOptimizerSection = HierarchyOptimizerSection()


@register_config("hbc")
class HBCConfig(BaseConfig):
    """Run file of hierarchical behaviour cloning."""

    observation: ImitationObservationSection = ImitationObservationSection()
    algo: HBCSection = HBCSection()
