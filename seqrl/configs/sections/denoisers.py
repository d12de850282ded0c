"""Sections of the networks that remove noise from actions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from seqrl.configs.section import Section
from seqrl.configs.sections.names import ActivationName
from seqrl.core.registry import DENOISERS


@DENOISERS.register_section("unet1d")
class UNet1dSection(Section):
    """Convolutions along the chunk (Diffusion Policy's U-Net)."""

    type: Literal["unet1d"] = "unet1d"
    widths: list[PositiveInt] = Field(
        [64, 128, 256],
        min_length=1,
        description="Channels of each level, which has half the steps of the one before; the paper's are 256, 512, "
        "1024.",
    )
    kernel_size: Literal[1, 3, 5, 7, 9] = Field(5, description="Kernel size of the convolutions, in steps.")
    num_groups: PositiveInt = Field(8, description="Groups of channels that are normalised together.")
    d_time: PositiveInt = Field(128, ge=2, multiple_of=2, description="Width of the embedding of the noise level.")


@DENOISERS.register_section("transformer")
class TransformerDenoiserSection(Section):
    """One token per action of the chunk; any number of them."""

    type: Literal["transformer"] = "transformer"
    d_model: PositiveInt = Field(128, multiple_of=2, description="Width of the residual stream.")
    num_heads: PositiveInt = Field(4, description="Attention heads.")
    num_layers: PositiveInt = Field(4, description="Layers.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout after attention and feed-forward layers.")


@DENOISERS.register_section("mlp")
class MLPDenoiserSection(Section):
    """The chunk as one vector: quickest for short chunks."""

    type: Literal["mlp"] = "mlp"
    d_hidden: PositiveInt = Field(256, description="Width of the hidden layers.")
    num_layers: PositiveInt = Field(3, description="Hidden layers.")
    d_time: PositiveInt = Field(32, ge=2, multiple_of=2, description="Width of the embedding of the noise level.")
    activation: ActivationName = Field("mish", description="Activation of the hidden layers.")
