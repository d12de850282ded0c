"""Sections of exploration: how the actions of training environments are disturbed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from seqrl.configs.section import Section
from seqrl.core.registry import EXPLORATIONS


class _AnnealedSection(Section):
    """What both schedules have."""

    anneal_steps: PositiveInt = Field(
        1_000_000, description="Steps of one environment until epsilon reaches its end value."
    )
    randomize: bool = Field(
        True, description="Multiply epsilon by a factor that each environment draws from [0, 1) at every reset."
    )
    max_repeat: PositiveInt = Field(
        1, description="Most steps that a random action is held; usually few. The share of random steps stays the same."
    )


@EXPLORATIONS.register_section("epsilon_greedy")
class EpsilonGreedySection(_AnnealedSection):
    """A random action with probability epsilon; continuous actions get noise of that standard deviation."""

    type: Literal["epsilon_greedy"] = "epsilon_greedy"
    start: float = Field(1.0, ge=0.0, le=1.0, description="Epsilon at first.")
    end: float = Field(0.05, ge=0.0, le=1.0, description="Epsilon in the end.")
    by_episode: bool = Field(
        False,
        description="Epsilon is the share of episodes with random actions only, each held for up to max_repeat steps.",
    )


@EXPLORATIONS.register_section("bilevel")
class BilevelSection(_AnnealedSection):
    """Epsilon also falls within each rollout: explore first, then use what was found (for meta-RL)."""

    type: Literal["bilevel"] = "bilevel"
    rollout_steps: PositiveInt = Field(description="Steps within a rollout over which epsilon falls.")
    start: float = Field(1.0, ge=0.0, le=1.0, description="Epsilon of a rollout's first step, at first.")
    end: float = Field(0.05, ge=0.0, le=1.0, description="Epsilon of a rollout's first step, in the end.")
    late_start: float = Field(0.8, ge=0.0, le=1.0, description="Epsilon after rollout_steps, at first.")
    late_end: float = Field(0.01, ge=0.0, le=1.0, description="Epsilon after rollout_steps, in the end.")


@EXPLORATIONS.register_section("none")
class NoExplorationSection(Section):
    """The policy's own actions."""

    type: Literal["none"] = "none"
