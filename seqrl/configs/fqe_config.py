"""Settings of fitted Q evaluation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from seqrl.configs.base_config import BaseConfig
from seqrl.configs.section import Component, Section
from seqrl.configs.sections.agent import CriticSection, Discount
from seqrl.configs.sections.algo import AlgoSection
from seqrl.configs.sections.policy import OptimizerSection
from seqrl.configs.sections.sequence_encoders import GRUSection
from seqrl.core.registry import SEQUENCE_ENCODERS


class FQECriticSection(CriticSection):
    """The critics, whose mean is the estimate."""

    num_critics: int = Field(2, ge=1, description="Critics in the ensemble.")
    d_hidden: int = Field(64, ge=1, description="Width of the hidden layers.")
    norm: Literal["none", "layer"] = Field("layer", description="Normalisation before each activation.")


class FQESection(AlgoSection):
    """Fitted Q evaluation of a policy."""

    sequence_encoder: Annotated[Section, Component(SEQUENCE_ENCODERS)] = Field(
        GRUSection(d_hidden=64, num_layers=1, d_output=64), description="The memory of the estimate."
    )
    critic: FQECriticSection = FQECriticSection()
    gamma: Discount = Field(0.99, description="Discount of the value.")
    average_decay: float | None = Field(None, ge=0.0, lt=1.0, description="Its values are those of its weights.")
    tau: float = Field(0.05, gt=0.0, le=1.0, description="Step of the target critics towards the online ones.")
    reward_multiplier: PositiveFloat = Field(1.0, description="Scales rewards in the losses only.")
    value_offset: float = Field(
        0.0, description="Value before scaling that the critics start from: they learn the rest."
    )
    optimizer: OptimizerSection = OptimizerSection(
        learning_rate=1e-3, warmup_steps=50, schedule="cosine", final_factor=0.1
    )


class FQEConfig(BaseConfig):
    """Settings of fitted Q evaluation; it is no algorithm to train with a run file."""

    algo: FQESection = FQESection()
