"""Run file of implicit Q-learning."""

from __future__ import annotations

from pydantic import Field, PositiveFloat

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.agent import OfflineOptimizerSection, TwinCriticSection, ValueOptions, ValueSection


class IQLValueSection(ValueOptions):
    """Values of the data's best actions, never of others, and how they weigh imitation."""

    expectile: float = Field(
        0.7,
        gt=0.0,
        lt=1.0,
        description="Which value of the data's actions counts: 0.5 their mean, towards 1 the best.",
    )
    beta: PositiveFloat = Field(
        3.0, description="Inverse temperature of the imitation: near 0 it clones the data, higher trusts values more."
    )
    max_weight: PositiveFloat = Field(100.0, description="Largest weight of a transition in the imitation.")
    critic: TwinCriticSection = TwinCriticSection()


class IQLSection(IQLValueSection, ValueSection):
    """Implicit Q-learning: values of the data's best actions, never of others, and weighted imitation."""

    optimizer: OfflineOptimizerSection = OfflineOptimizerSection()


@register_config("iql")
class IQLConfig(BaseConfig):
    """Run file of implicit Q-learning."""

    algo: IQLSection = IQLSection()
