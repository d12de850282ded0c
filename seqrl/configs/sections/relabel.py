"""Sections of the relabelers: what changes stored experience when it is sampled for training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, model_validator

from seqrl.configs.section import Section
from seqrl.core.registry import RELABELERS


@RELABELERS.register_section("scale_rewards")
class ScaleRewardsSection(Section):
    """Scale the rewards that the losses see; the policy goes on reading the raw ones."""

    type: Literal["scale_rewards"] = "scale_rewards"
    scale: float = Field(1.0, description="Factor.")
    shift: float = Field(0.0, description="Added after the factor.")
    clip_low: float | None = Field(None, description="Smallest reward after both; null has no limit.")
    clip_high: float | None = Field(None, description="Largest reward after both; null has no limit.")

    @model_validator(mode="after")
    def _ordered(self) -> ScaleRewardsSection:
        if self.clip_low is not None and self.clip_high is not None and self.clip_low >= self.clip_high:
            raise ValueError(f"clip_low {self.clip_low} must be below clip_high {self.clip_high}")
        return self


class GoalRelabelerSection(Section):
    """What both hindsight relabelers share."""

    threshold: NonNegativeFloat = Field(
        description="Distance (Euclidean) at which a goal counts as reached; 0 asks for equality."
    )
    probability: float = Field(0.8, ge=0.0, le=1.0, description="Share of the trajectories that get a new goal.")
    achieved_key: str = Field("achieved_goal", description="Observation entry that holds what has been achieved.")
    goal_key: str = Field("desired_goal", description="Observation entry that holds the goal, and gets the new one.")
    terminate: bool = Field(True, description="End the trajectory where the new goal is reached, and cut it there.")

    @model_validator(mode="after")
    def _distinct(self) -> GoalRelabelerSection:
        keys = {k: v for k, v in self.model_dump().items() if k.endswith("_key") and v is not None}
        if len(set(keys.values())) < len(keys):
            raise ValueError(f"{', '.join(f'{k} {v!r}' for k, v in keys.items())} must differ")
        return self


@RELABELERS.register_section("hindsight")
class HindsightSection(GoalRelabelerSection):
    """Take what was achieved for the goal (hindsight experience replay), and recompute the rewards."""

    type: Literal["hindsight"] = "hindsight"
    strategy: Literal["final", "future"] = Field(
        "final", description="The goal is what the last input has achieved, or that of a random input after the first."
    )
    success_reward: float = Field(0.0, description="Reward of a transition that leads to the goal.")
    failure_reward: float = Field(-1.0, description="Reward of any other transition.")


@RELABELERS.register_section("hindsight_sequence")
class HindsightSequenceSection(GoalRelabelerSection):
    """Take what was achieved at several times for goals to be reached in order, and recompute the rewards."""

    type: Literal["hindsight_sequence"] = "hindsight_sequence"
    progress_key: str | None = Field(
        None, description="Observation entry with the number of goals reached so far, recomputed; null has none."
    )
    success_reward: float = Field(1.0, description="Reward per goal that a transition reaches.")
    failure_reward: float = Field(0.0, description="Reward of a transition that reaches none.")
