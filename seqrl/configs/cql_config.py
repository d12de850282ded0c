"""Run file of conservative Q-learning and Cal-QL."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.agent import EntropySection, OfflineOptimizerSection, SoftSection, TwinCriticSection


class CQLOptimizerSection(OfflineOptimizerSection):
    """The optimiser, with a lower learning rate for the policy."""

    rates: dict[str, PositiveFloat] = Field(
        {"actor": 0.3}, description="Network (trunk, actor, critic, ...) -> factor of its learning rate; others have 1."
    )


class CQLSection(SoftSection):
    """Conservative Q-learning: values of actions that the data does not show are pushed down."""

    conservative_weight: PositiveFloat = Field(
        5.0, description="Weight of the conservative loss (its start, if learned). Larger stays nearer to the data."
    )
    target_gap: NonNegativeFloat | None = Field(
        None,
        description="Learn the weight so that the loss settles at this many multiplied rewards (5 to 10 in the paper); "
        "null keeps the weight fixed.",
    )
    num_samples: PositiveInt = Field(
        10, description="Continuous actions from each of: uniform noise, the policy at this step, and at the next."
    )
    calibrate: bool = Field(
        False, description="Push the policy's own actions no lower than the data's return from there (Cal-QL)."
    )
    use_target_actor: bool = Field(False, description="Take the target's actions from a target (slowly updated) actor.")
    entropy: EntropySection | None = Field(
        EntropySection(backup=False), description="What entropy is worth in the policy's loss; null: none."
    )
    critic: TwinCriticSection = TwinCriticSection()
    optimizer: CQLOptimizerSection = CQLOptimizerSection()

    @model_validator(mode="after")
    def _calibrates_one_discount(self) -> CQLSection:
        if self.calibrate and self.extra_gammas:
            raise ValueError("calibrate compares with returns of one discount: set extra_gammas to []")
        return self


@register_config("cql")
class CQLConfig(BaseConfig):
    """Run file of conservative Q-learning."""

    algo: CQLSection = CQLSection()
