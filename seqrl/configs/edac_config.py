"""Run file of SAC-N and EDAC."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveInt

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.agent import CriticSection, EntropySection, OfflineOptimizerSection, SoftSection


class ManyCriticsSection(CriticSection):
    """The ensemble of critics."""

    num_critics: PositiveInt = Field(10, description="Critics in the ensemble; the smallest of them counts.")


class EDACSection(SoftSection):
    """EDAC: pessimism from many critics that are kept from agreeing."""

    eta: NonNegativeFloat = Field(
        1.0,
        description="Weight against critics whose gradients point the same way; 0 is SAC-N (needs far more critics).",
    )
    use_target_actor: bool = Field(False, description="Take the target's actions from a target (slowly updated) actor.")
    entropy: EntropySection | None = Field(
        EntropySection(),
        description="What the policy's entropy is worth in targets and in the policy's loss; null: none.",
    )
    critic: ManyCriticsSection = ManyCriticsSection()
    optimizer: OfflineOptimizerSection = OfflineOptimizerSection()


@register_config("edac")
class EDACConfig(BaseConfig):
    """Run file of SAC-N and EDAC."""

    algo: EDACSection = EDACSection()
