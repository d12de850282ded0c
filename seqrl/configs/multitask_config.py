"""Run file of the multi-task agent."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.section import Section
from seqrl.configs.sections.agent import AgentSection


class ReturnBinsSection(Section):
    """How returns become classes. Values are in multiplied reward units."""

    low: float = Field(-100_000.0, description="Smallest return.")
    high: float = Field(100_000.0, description="Largest return.")
    num_bins: PositiveInt = Field(128, ge=2, description="Bins.")
    use_symlog: bool = Field(True, description="Space the bins evenly in symlog space; false: linearly.")
    value_space: Literal["symlog", "return"] = Field(
        "symlog", description="Take expectations before (biased when returns are random) or after symexp."
    )
    label: Literal["two_hot", "hl_gauss"] = Field(
        "hl_gauss", description="Target encoding: the two nearest bins (learns later), or a Gaussian over bins."
    )
    sigma_bins: PositiveFloat = Field(0.75, description="Width of the HL-Gauss label, in bins.")
    initial_value: float | None = Field(
        None, description="Return around which the critics begin, four bins wide; null leaves it to chance."
    )

    @model_validator(mode="after")
    def _label_fits_space(self) -> ReturnBinsSection:
        if self.use_symlog and self.value_space == "return" and self.label == "hl_gauss":
            raise ValueError(
                "label 'hl_gauss' is symmetric in symlog space, so its mean after symexp is too large, and "
                "bootstrapping would make values grow without bound: use label 'two_hot', value_space 'symlog', or "
                "use_symlog false"
            )
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")
        return self


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
