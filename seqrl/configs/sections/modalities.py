"""Sections of the built-in modalities: how the timestep encoder ``multimodal`` reads one observation entry."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from seqrl.configs.section import Component, Section
from seqrl.configs.sections.images import NatureSection
from seqrl.configs.sections.names import ActivationName
from seqrl.core.registry import IMAGE_CORES, IMAGE_RANDOMIZERS, MODALITIES


@MODALITIES.register_section("vector")
class VectorSection(Section):
    """Numbers or categories of any shape, flattened."""

    type: Literal["vector"] = "vector"
    normalize_inputs: bool = Field(True, description="Standardise by moving statistics.")
    normalizer_rate: float = Field(
        1e-4, gt=0.0, le=1.0, description="Update rate of these statistics; the first updates are larger."
    )
    normalizer_min_std: float = Field(
        0.0,
        ge=0.0,
        description="Inputs that vary less are divided by this, not by their own standard deviation, so that they stay "
        "small; 0 divides all that vary by more than 0.01.",
    )
    num_layers: NonNegativeInt = Field(0, description="Hidden layers.")
    d_hidden: PositiveInt = Field(256, description="Width of the hidden layers.")
    d_output: PositiveInt = Field(64, description="Width of the entry's encoding.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the hidden layers.")


@MODALITIES.register_section("image")
class ImageSection(Section):
    """An image of uint8 or of floats in [0, 1]."""

    type: Literal["image"] = "image"
    core: Annotated[Section, Component(IMAGE_CORES)] = Field(NatureSection(), description="The convolutions.")
    randomizers: list[Annotated[Section, Component(IMAGE_RANDOMIZERS)]] = Field(
        [], description="What disturbs the images in training, in this order."
    )
    channels: Literal["auto", "first", "last"] = Field(
        "auto", description="Axis of the channels; auto is the one that is smaller than both others."
    )
    scale: Literal["pixels", "none"] = Field(
        "pixels", description="Scale uint8 (0 to 255) or floats in [0, 1] to [-1, 1], or read the numbers as they are."
    )
    film: str | None = Field(
        None, description="Entry, such as a task or an instruction, that scales and shifts the core's feature maps."
    )
    d_output: PositiveInt = Field(256, description="Width of the entry's encoding.")


@MODALITIES.register_section("depth")
class DepthSection(Section):
    """An image of distances, of one channel or none."""

    type: Literal["depth"] = "depth"
    max_depth: PositiveFloat = Field(
        description="Farthest distance in the entry's units; what is beyond, or not finite, counts as this far."
    )
    core: Annotated[Section, Component(IMAGE_CORES)] = Field(NatureSection(), description="The convolutions.")
    randomizers: list[Annotated[Section, Component(IMAGE_RANDOMIZERS)]] = Field(
        [], description="What disturbs the images in training, in this order."
    )
    d_output: PositiveInt = Field(256, description="Width of the entry's encoding.")


@MODALITIES.register_section("scan")
class ScanSection(Section):
    """Ranges along an arc, such as a lidar's."""

    type: Literal["scan"] = "scan"
    channels: list[PositiveInt] = Field([32, 64, 64], description="Width of each convolution.")
    kernels: list[PositiveInt] = Field([5, 3, 3], description="Length of each kernel.")
    strides: list[PositiveInt] = Field([2, 2, 1], description="Stride of each convolution.")
    max_range: PositiveFloat | None = Field(
        None, description="Farthest range in the entry's units; null takes any numbers, by symlog."
    )
    pooling: Literal["none", "mean", "max"] = Field(
        "none", description="Over the directions, after the convolutions; none keeps them apart."
    )
    d_output: PositiveInt = Field(128, description="Width of the entry's encoding.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the convolutions.")

    @model_validator(mode="after")
    def _same_number(self) -> ScanSection:
        if not len(self.channels) == len(self.kernels) == len(self.strides):
            raise ValueError(
                f"channels {self.channels}, kernels {self.kernels} and strides {self.strides} must be equally many"
            )
        return self


@MODALITIES.register_section("tokens")
class TokensSection(Section):
    """Integers in a row, such as words."""

    type: Literal["tokens"] = "tokens"
    vocabulary: PositiveInt | None = Field(
        None, description="Tokens are 0 to this - 1, others are 'unknown'; null takes that of a MultiDiscrete entry."
    )
    pad_token: int | None = Field(None, description="Token to leave out, such as padding; null leaves out none.")
    d_embedding: PositiveInt = Field(32, description="Width of the embeddings.")
    d_hidden: PositiveInt = Field(64, description="Width of the GRU that reads them.")
    d_output: PositiveInt = Field(64, description="Width of the entry's encoding.")


@MODALITIES.register_section("text")
class TextSection(Section):
    """Text, by a fixed vector for each sentence: those of a table, or of a function."""

    type: Literal["text"] = "text"
    texts: list[str] = Field(
        [], description="Sentences of the table; without any, the function encodes every sentence."
    )
    vectors: str | None = Field(
        None, min_length=1, description="Local .npy file of the table: a row for each sentence, d_vector numbers wide."
    )
    function: str = Field("ngrams", description="Function of any sentence, by its registered name.")
    d_vector: PositiveInt = Field(256, description="Width of the vectors.")
    d_output: PositiveInt = Field(64, description="Width of the entry's encoding.")


@MODALITIES.register_section("goal")
class GoalSection(Section):
    """Goals to be reached in order."""

    type: Literal["goal"] = "goal"
    num_goals: PositiveInt | None = Field(
        None, description="Goals in the entry; null is its first axis, or one for a flat entry."
    )
    num_layers: NonNegativeInt = Field(1, description="Hidden layers of the network that embeds one goal.")
    d_hidden: PositiveInt = Field(128, description="Width of the hidden layers.")
    d_goal: PositiveInt = Field(32, description="Width of one embedded goal.")
    d_output: PositiveInt = Field(64, description="Width of the entry's encoding.")
    normalize_inputs: bool = Field(True, description="Standardise by moving statistics that all goals share.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the hidden layers.")
