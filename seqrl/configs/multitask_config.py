"""Run file of the multi-task agent."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.section import Section
from seqrl.configs.sections.agent import AgentSection


class ReturnBinsSection(Section):
    """How returns become classes. Values are in multiplied reward units."""

    low: float = Field(-100_000.0, description="Smallest return.")
    high: float = Field(100_000.0, description="Largest return.")
    num_bins: PositiveInt = Field(128, ge=2, description="Bins.")
    use_symlog: bool = Field(True, description="Space the bins evenly in symlog space, or else linearly.")
    value_space: Literal["symlog", "return"] = Field(
        "symlog", description="Take expectations before (biased when returns are random) or after symexp."
    )
    label: Literal["two_hot", "hl_gauss"] = Field("two_hot", description="Target encoding.")
    sigma_bins: PositiveFloat = Field(0.75, description="Width of the HL-Gauss label, in bins.")
    initial_value: float | None = Field(
        None, description="Return that the critics predict at first; null leaves chance."
    )


class MultiTaskSection(AgentSection):
    """Classified values and filtered behaviour cloning: indifferent to the scale of each task's rewards."""

    returns: ReturnBinsSection = ReturnBinsSection()
    online_coeff: NonNegativeFloat = Field(0.0, description="Weight of the actor's policy-gradient loss.")
    offline_coeff: NonNegativeFloat = Field(1.0, description="Weight of the actor's filtered imitation loss.")
    num_actions_for_value_in_actor_loss: PositiveInt = Field(3, description="Sampled actions per own value.")


@register_config("multitask")
class MultiTaskConfig(BaseConfig):
    """Run file of the multi-task agent."""

    algo: MultiTaskSection = MultiTaskSection()
