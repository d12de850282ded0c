"""Run file of flow Q-learning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.section import Section
from seqrl.configs.sections.agent import OfflineOptimizerSection, TwinCriticSection, ValueSection
from seqrl.configs.sections.names import ActivationName


class FlowSection(Section):
    """The flow that imitates the data."""

    num_steps: PositiveInt = Field(10, description="Euler steps from noise to an action.")
    num_layers: PositiveInt = Field(2, description="Hidden layers.")
    d_hidden: PositiveInt = Field(256, description="Their width.")
    activation: ActivationName = Field("gelu", description="Activation.")


class FQLCriticSection(TwinCriticSection):
    """The ensemble of critics."""

    norm: Literal["none", "layer"] = Field("layer", description="Normalisation before each activation.")


class FQLSection(ValueSection):
    """Flow Q-learning: a flow that imitates, and a policy of one step that climbs the critics beside it."""

    alpha: PositiveFloat = Field(
        0.3, description="Weight of the distance to what the flow makes of the same noise: higher stays near the data."
    )
    target_value: Literal["mean", "min"] = Field("mean", description="How the ensemble judges the following action.")
    flow: FlowSection = FlowSection()
    critic: FQLCriticSection = FQLCriticSection()
    optimizer: OfflineOptimizerSection = OfflineOptimizerSection()


@register_config("fql")
class FQLConfig(BaseConfig):
    """Run file of flow Q-learning."""

    algo: FQLSection = FQLSection()
