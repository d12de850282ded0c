"""Sections of the built-in timestep encoders."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from seqrl.configs.section import Section
from seqrl.configs.sections.names import ActivationName, NormName
from seqrl.core.registry import TIMESTEP_ENCODERS


@TIMESTEP_ENCODERS.register_section("mlp")
class MLPTimestepEncoderSection(Section):
    """Flattens every observation entry, adds previous action and reward, and applies an MLP."""

    type: Literal["mlp"] = "mlp"
    num_layers: NonNegativeInt = Field(2, description="Hidden layers.")
    d_hidden: PositiveInt = Field(512, description="Width of the hidden layers.")
    d_output: PositiveInt = Field(256, description="Width of the embedding.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the hidden layers.")
    norm: NormName = Field("layer", description="Normalisation of the embedding.")
    normalize_inputs: bool = Field(True, description="Standardise the inputs by moving statistics.")
