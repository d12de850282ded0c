"""Sections of the built-in image cores, and of the randomizers that alter images in training."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from seqrl.configs.section import Section
from seqrl.configs.sections.names import ActivationName
from seqrl.core.registry import IMAGE_CORES, IMAGE_RANDOMIZERS


class ConvolutionalSection(Section):
    """What all convolutional cores share."""

    pool: Literal["flatten", "spatial_softmax", "mean"] = Field(
        "flatten", description="All pixels, the positions of keypoints, or channel means of the last feature map."
    )
    num_keypoints: PositiveInt = Field(32, description="Keypoints of the spatial softmax; two features each.")


class PlainSection(ConvolutionalSection):
    """Convolutions in a row."""

    channels: list[PositiveInt]
    kernels: list[PositiveInt]
    strides: list[PositiveInt]

    @model_validator(mode="after")
    def _equally_many(self) -> Self:
        if not len(self.channels) == len(self.kernels) == len(self.strides):
            raise ValueError(
                f"channels {self.channels}, kernels {self.kernels} and strides {self.strides} must be equally many"
            )
        return self


@IMAGE_CORES.register_section("nature")
class NatureSection(PlainSection):
    """Three strided convolutions (Mnih et al., 2015); images of 36 x 36 and more."""

    type: Literal["nature"] = "nature"
    channels: list[PositiveInt] = Field([32, 64, 64], min_length=1, description="Channels of each convolution.")
    kernels: list[PositiveInt] = Field([8, 4, 3], min_length=1, description="Width of each kernel, in pixels.")
    strides: list[PositiveInt] = Field([4, 2, 1], min_length=1, description="Stride of each convolution, in pixels.")
    activation: ActivationName = Field("relu", description="Activation of the convolutions.")


@IMAGE_CORES.register_section("impala")
class ImpalaSection(ConvolutionalSection):
    """Residual blocks that halve the image in turn (Espeholt et al., 2018); any size."""

    type: Literal["impala"] = "impala"
    block_channels: list[PositiveInt] = Field([16, 32, 32], min_length=1, description="Channels of every block.")
    use_group_norm: bool = Field(True, description="Group norm after every block, in groups of 16 channels.")
    activation: ActivationName = Field("relu", description="Activation of the convolutions.")


@IMAGE_CORES.register_section("drq")
class DrQSection(ConvolutionalSection):
    """Four 3 x 3 convolutions (DrQ-v2; Yarats et al., 2021); images of 15 x 15 and more."""

    type: Literal["drq"] = "drq"
    channels: PositiveInt = Field(32, description="Channels of every convolution.")
    activation: ActivationName = Field("relu", description="Activation of the convolutions.")


@IMAGE_CORES.register_section("gridworld")
class GridworldSection(PlainSection):
    """Three 2 x 2 convolutions for symbolic grids such as MiniGrid's 7 x 7 x 3; 4 x 4 and more."""

    type: Literal["gridworld"] = "gridworld"
    channels: list[PositiveInt] = Field([16, 32, 64], min_length=1, description="Channels of each convolution.")
    kernels: list[PositiveInt] = Field([2, 2, 2], min_length=1, description="Width of each kernel, in pixels.")
    strides: list[PositiveInt] = Field([1, 1, 1], min_length=1, description="Stride of each convolution, in pixels.")
    activation: ActivationName = Field("relu", description="Activation of the convolutions.")


class ResNetSection(ConvolutionalSection):
    """What the residual networks share (He et al., 2016)."""

    weights: str | None = Field(
        None, min_length=1, description="Local .safetensors or .pth with torchvision's names; null is from scratch."
    )
    pool: Literal["flatten", "spatial_softmax", "mean"] = Field(
        "spatial_softmax", description="All pixels, the positions of keypoints, or channel means of the last map."
    )


@IMAGE_CORES.register_section("resnet18")
class ResNet18Section(ResNetSection):
    """ResNet-18: with group norms from scratch, with frozen batch norms from a file."""

    type: Literal["resnet18"] = "resnet18"


@IMAGE_CORES.register_section("resnet50")
class ResNet50Section(ResNetSection):
    """ResNet-50: with group norms from scratch, with frozen batch norms from a file."""

    type: Literal["resnet50"] = "resnet50"


class RandomizerSection(Section):
    """What all randomizers share. All frames of a window are altered in the same way."""

    share: float = Field(1.0, ge=0.0, le=1.0, description="Share of the windows that are altered in training.")


@IMAGE_RANDOMIZERS.register_section("shift")
class ShiftSection(RandomizerSection):
    """Moves the image by whole pixels, and repeats its edge (DrQ-v2; Yarats et al., 2021)."""

    type: Literal["shift"] = "shift"
    pad: PositiveInt = Field(4, description="Largest shift, in pixels, in both directions.")
    share: float = Field(0.75, ge=0.0, le=1.0, description="Share of the windows that are altered in training.")


@IMAGE_RANDOMIZERS.register_section("crop")
class CropSection(RandomizerSection):
    """Cuts out a part: anywhere in training, the centre in evaluation."""

    type: Literal["crop"] = "crop"
    height: PositiveInt = Field(description="Height of the part, in pixels.")
    width: PositiveInt = Field(description="Width of the part, in pixels.")
    num_crops: PositiveInt = Field(1, description="Parts in training; what the core makes of them is averaged.")


@IMAGE_RANDOMIZERS.register_section("color")
class ColorSection(RandomizerSection):
    """Changes brightness, contrast, saturation and hue of RGB images; ranges as in torchvision's ColorJitter."""

    type: Literal["color"] = "color"
    brightness: NonNegativeFloat = Field(
        0.3, description="Largest change x: the brightness is multiplied by a factor from max(0, 1 - x) to 1 + x."
    )
    contrast: NonNegativeFloat = Field(
        0.3, description="Largest change x: the contrast is multiplied by a factor from max(0, 1 - x) to 1 + x."
    )
    saturation: NonNegativeFloat = Field(
        0.3, description="Largest change x: the saturation is multiplied by a factor from max(0, 1 - x) to 1 + x."
    )
    hue: float = Field(0.3, ge=0.0, le=0.5, description="From -x to x, in turns of the colour wheel.")


@IMAGE_RANDOMIZERS.register_section("noise")
class NoiseSection(RandomizerSection):
    """Adds Gaussian noise to every pixel and channel."""

    type: Literal["noise"] = "noise"
    mean: float = Field(0.0, description="Mean, in units of the [0, 1] range.")
    std: NonNegativeFloat = Field(0.05, description="Standard deviation, in units of the [0, 1] range.")
