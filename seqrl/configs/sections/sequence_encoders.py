"""Sections of the built-in sequence encoders, the policy's memory."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from seqrl.configs.section import Section
from seqrl.configs.sections.names import ActivationName, NormName
from seqrl.core.registry import SEQUENCE_ENCODERS


@SEQUENCE_ENCODERS.register_section("feedforward")
class FeedForwardSection(Section):
    """No memory: residual blocks on each step alone. The control that shows what memory is worth."""

    type: Literal["feedforward"] = "feedforward"
    d_model: PositiveInt = Field(256, description="Width.")
    d_ff: PositiveInt = Field(1024, description="Hidden width of each residual block.")
    num_layers: NonNegativeInt = Field(1, description="Residual blocks.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout.")
    activation: ActivationName = Field("leaky_relu", description="Activation.")
    norm: NormName = Field("layer", description="Normalisation of the output.")


@SEQUENCE_ENCODERS.register_section("gru")
class GRUSection(Section):
    """Gated recurrent unit (Cho et al., 2014): a fixed-size state, constant time per step."""

    type: Literal["gru"] = "gru"
    d_hidden: PositiveInt = Field(256, description="Width of the recurrent state.")
    num_layers: PositiveInt = Field(2, description="Recurrent layers.")
    d_output: PositiveInt = Field(256, description="Width of the output projection.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout between layers.")
    norm: NormName = Field("layer", description="Normalisation of the output.")


@SEQUENCE_ENCODERS.register_section("transformer")
class TransformerSection(Section):
    """Causal pre-norm Transformer with the stabilisers that reinforcement learning wants."""

    type: Literal["transformer"] = "transformer"
    d_model: PositiveInt = Field(256, description="Width of the residual stream.")
    num_heads: PositiveInt = Field(8, description="Attention heads; must divide d_model.")
    d_ff: PositiveInt = Field(1024, description="Hidden width of the feed-forward blocks.")
    num_layers: PositiveInt = Field(3, description="Layers.")
    window_steps: PositiveInt | None = Field(
        None, description="Inputs that one layer attends to, itself included; null is train.window_steps."
    )
    positions: Literal["fixed", "learned", "rotary", "none"] = Field(
        "fixed", description="Sinusoidal, a table, rotated queries and keys, or none."
    )
    max_steps: PositiveInt = Field(2048, description="Size of the table of learned positions, in episode steps.")
    rotary_base: PositiveFloat = Field(10_000.0, description="Base of the rotary frequencies.")
    dropout_embedding: float = Field(0.05, ge=0.0, lt=1.0, description="Dropout after the input projection.")
    dropout_ff: float = Field(0.05, ge=0.0, lt=1.0, description="Dropout after each feed-forward block.")
    dropout_attention: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout of the attention weights.")
    dropout_qkv: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout of queries, keys and values.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the feed-forward blocks.")
    norm: NormName = Field("layer", description="Normalisation layers.")
    use_sigma_reparam: bool = Field(True, description="Spectrally normalised linear layers (Zhai et al., 2023).")
    use_normformer: bool = Field(True, description="Extra norms after attention and inside the block (Shleifer, 2021).")
    use_head_scale: bool = Field(True, description="A learned scale per head (Shleifer et al., 2021).")

    @model_validator(mode="after")
    def _heads_divide(self) -> TransformerSection:
        if self.d_model % self.num_heads:
            legal = [h for h in range(1, self.d_model + 1) if self.d_model % h == 0]
            raise ValueError(f"num_heads {self.num_heads} does not divide d_model {self.d_model}; legal: {legal}")
        if self.positions == "rotary" and (self.d_model // self.num_heads) % 2:
            width = self.d_model // self.num_heads
            raise ValueError(f"rotary positions need an even width per head, got d_model / num_heads = {width}")
        return self
