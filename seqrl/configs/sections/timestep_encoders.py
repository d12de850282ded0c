"""Sections of the built-in timestep encoders.

Whether they read the previous action and reward at all is said by ``observation.use_prev_action`` and
``observation.use_prev_reward``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

import seqrl.configs.sections.modalities  # noqa: F401  (registers its sections)
from seqrl.configs.section import Component, Section
from seqrl.configs.sections.images import NatureSection
from seqrl.configs.sections.names import ActivationName, NormName
from seqrl.configs.sections.normed import NormedSection
from seqrl.core.registry import IMAGE_CORES, IMAGE_RANDOMIZERS, MODALITIES, TIMESTEP_ENCODERS


class FlatSection(NormedSection):
    """What encoders share that end in an MLP over everything."""

    normed = ("d_output",)
    num_layers: NonNegativeInt = Field(2, description="Hidden layers.")
    d_hidden: PositiveInt = Field(512, description="Width of the hidden layers.")
    d_output: PositiveInt = Field(256, description="Width of the embedding.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the hidden layers.")
    norm: NormName = Field("layer", description="Normalisation of the embedding.")
    normalize_inputs: bool = Field(True, description="Standardise the inputs by moving statistics.")
    normalizer_rate: float = Field(
        1e-4, gt=0.0, le=1.0, description="Update rate of these statistics; the first updates are larger."
    )
    normalizer_min_std: float = Field(
        0.0,
        ge=0.0,
        description="Inputs that vary less are divided by this, not by their own standard deviation, so that they stay "
        "small; 0 divides all that vary by more than 0.01.",
    )
    obs_keys: list[str] | None = Field(
        None,
        description="Entries of observation.keys to read, beside goals and the algorithm's own inputs; null reads all.",
    )
    auto_scale: bool = Field(
        False, description="Raise d_hidden to the width of the inputs, at most 2048; not beside images."
    )


@TIMESTEP_ENCODERS.register_section("mlp")
class MLPTimestepEncoderSection(FlatSection):
    """Flattens every observation entry, adds previous action and reward, and applies an MLP."""

    type: Literal["mlp"] = "mlp"
    d_output: PositiveInt | None = Field(  # type: ignore[assignment]
        256, description="Width of the embedding; null passes the inputs on without a layer, with num_layers 0."
    )

    @model_validator(mode="after")
    def _has_no_layer_without_a_width(self) -> MLPTimestepEncoderSection:
        if self.d_output is None and self.num_layers:
            raise ValueError(f"without d_output there is no layer: num_layers must be 0, got {self.num_layers}")
        return self


@TIMESTEP_ENCODERS.register_section("auto")
class AutoTimestepEncoderSection(FlatSection):
    """Is ``mlp`` where nothing is an image, and else ``multimodal``, with a small CNN for each image."""

    type: Literal["auto"] = "auto"


@TIMESTEP_ENCODERS.register_section("cnn")
class CNNTimestepEncoderSection(NormedSection):
    """Reads one image, and the previous action and reward."""

    normed = ("d_output",)
    type: Literal["cnn"] = "cnn"
    image_key: str | None = Field(None, description="Observation entry to read; null is the only image.")
    channels: Literal["auto", "first", "last"] = Field(
        "auto", description="Axis of the channels; auto is the one that is smaller than both others."
    )
    core: Annotated[Section, Component(IMAGE_CORES)] = Field(NatureSection(), description="The convolutions.")
    randomizers: list[Annotated[Section, Component(IMAGE_RANDOMIZERS)]] = Field(
        [], description="What disturbs the images in training, in this order."
    )
    scale: Literal["pixels", "none"] = Field(
        "pixels", description="Scale uint8 (0 to 255) or floats in [0, 1] to [-1, 1], or read the numbers as they are."
    )
    d_image: PositiveInt = Field(256, description="Width of the image's encoding.")
    d_side: PositiveInt = Field(12, description="Width of the encoding of previous action and reward.")
    d_output: PositiveInt = Field(256, description="Width of the embedding.")
    activation: ActivationName = Field("leaky_relu", description="Activation before the last layer.")
    norm: NormName = Field("layer", description="Normalisation of the embedding.")


@TIMESTEP_ENCODERS.register_section("multimodal")
class MultimodalTimestepEncoderSection(NormedSection):
    """Reads every observation entry in its own way, and fuses them with the previous action and reward."""

    normed = ("d_output",)
    type: Literal["multimodal"] = "multimodal"
    modalities: dict[str, Annotated[Section, Component(MODALITIES)]] = Field(
        {}, description="How to read which entry; others are an image if they look like one, else a vector."
    )
    num_layers: NonNegativeInt = Field(1, description="Hidden layers after the fusion.")
    d_hidden: PositiveInt = Field(512, description="Width of the hidden layers.")
    d_output: PositiveInt = Field(256, description="Width of the embedding.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the hidden layers.")
    norm: NormName = Field("layer", description="Normalisation of the embedding.")
