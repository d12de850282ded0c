"""What the sections ``algo`` of all algorithms share, so that a misspelt setting is a type error."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from seqrl.configs.section import Component, Section
from seqrl.configs.sections.policy import ActorSection, AutoDistributionSection, OptimizerSection
from seqrl.configs.sections.sequence_encoders import TransformerSection
from seqrl.core.registry import DISTRIBUTIONS, SEQUENCE_ENCODERS


class AlgoSection(Section):
    """What every algorithm has: a memory and an optimiser."""

    sequence_encoder: Annotated[Section, Component(SEQUENCE_ENCODERS)] = Field(
        TransformerSection(), description="The memory."
    )
    memory_dropout: float = Field(
        0.0, ge=0.0, lt=1.0, description="Share of the memory's outputs that training drops; 0.3 if data are few."
    )
    memory_bypass: float | None = Field(
        None,
        ge=0.0,
        lt=1.0,
        description="Let the heads read the present input beside the memory, and alone in this share of the training "
        "windows; null: only the memory.",
    )
    optimizer: OptimizerSection = OptimizerSection()
    average_decay: float | None = Field(
        0.999,
        ge=0.0,
        lt=1.0,
        description="Largest decay of the average of the weights (EMA) that acts, except to collect; null acts with "
        "the weights.",
    )

    @property
    def some_rest(self) -> bool:
        """Whether some networks take no gradient in some gradient steps."""
        return False


class PolicySection(AlgoSection):
    """What every algorithm whose policy is a distribution of actions has."""

    actor: ActorSection = ActorSection()
    distribution: Annotated[Section, Component(DISTRIBUTIONS)] = Field(
        AutoDistributionSection(), description="The distribution of actions."
    )


class ChunkSection(AlgoSection):
    """What policies that may predict several actions at once share."""

    chunk_steps: PositiveInt = Field(1, description="Actions predicted together at every step (a chunk).")
    execute_steps: PositiveInt | None = Field(
        None, description="Actions of a chunk that are taken before the policy is asked again; null takes all of them."
    )
    ensemble_decay: float | None = Field(
        None,
        ge=0.0,
        description="Average, at each step, what all chunks since the episode's start give for it, with weights "
        "exp(-decay * i), i = 0 the oldest; needs execute_steps 1. null takes the newest chunk alone.",
    )
    supervise_all_steps: bool = Field(
        True, description="Imitate at every step of a window; false: only at the last one, which has the most history."
    )
    chunk_decay: float = Field(
        1.0, gt=0.0, le=1.0, description="Weight in the loss of each action of a chunk relative to the one before it."
    )
    pad_actions: Literal["none", "repeat_last"] = Field(
        "none",
        description="What a chunk holds beyond an episode's end: nothing that is learned, or the last action, for "
        "tasks that end in holding still.",
    )

    @model_validator(mode="after")
    def _chunk_is_enough(self) -> ChunkSection:
        if self.execute_steps is not None and self.execute_steps > self.chunk_steps:
            raise ValueError(f"execute_steps {self.execute_steps} exceeds chunk_steps {self.chunk_steps}")
        if self.ensemble_decay is not None and (self.chunk_steps == 1 or self.execute_steps != 1):
            raise ValueError(
                "ensemble_decay averages chunks at every step: set chunk_steps above 1 and execute_steps 1"
            )
        return self
