"""Run file of TD3+BC and ReBRAC."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.agent import OfflineOptimizerSection, TwinCriticSection, ValueSection


class TD3BCSection(ValueSection):
    """TD3+BC: a deterministic policy between the critics' favourite action and the data's."""

    variant: Literal["td3_bc", "rebrac"] = Field(
        "td3_bc", description="Stay near the data in the policy's loss (td3_bc), or in the targets too (rebrac)."
    )
    alpha: PositiveFloat = Field(
        2.5, description="Of td3_bc: weight of the values against the distance; near 0 it clones the data."
    )
    actor_beta: NonNegativeFloat = Field(
        0.01, description="Of rebrac: weight of the squared distance to the data's action in the policy's loss."
    )
    critic_beta: NonNegativeFloat = Field(
        0.01, description="Of rebrac: weight of the squared distance of the next actions in the critics' targets."
    )
    policy_delay: PositiveInt = Field(
        1, description="Gradient steps of the critics per step of the policy and of all targets; 2 in the papers."
    )
    target_noise: NonNegativeFloat = Field(0.2, description="Standard deviation of the noise on the target's actions.")
    target_noise_clip: NonNegativeFloat = Field(0.5, description="Largest such noise.")
    critic: TwinCriticSection = TwinCriticSection()
    optimizer: OfflineOptimizerSection = OfflineOptimizerSection()

    @property
    def some_rest(self) -> bool:
        """Whether some networks take no gradient in some gradient steps."""
        return self.policy_delay > 1

    @model_validator(mode="after")
    def _is_deterministic(self) -> TD3BCSection:
        if self.distribution.choice()[0] not in ("auto", "deterministic"):
            raise ValueError("distribution: the policy is deterministic; use auto, or deterministic with its options")
        return self


@register_config("td3_bc")
class TD3BCConfig(BaseConfig):
    """Run file of TD3+BC and ReBRAC."""

    algo: TD3BCSection = TD3BCSection()
