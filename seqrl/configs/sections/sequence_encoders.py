"""Sections of the built-in sequence encoders, the policy's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from seqrl.configs.section import Component, Section
from seqrl.configs.sections.names import ActivationName, NormName
from seqrl.configs.sections.normed import NormedSection
from seqrl.core.errors import did_you_mean
from seqrl.core.registry import ATTENTION_SCORES, ATTENTIONS, SEQUENCE_ENCODERS


class MemorySection(NormedSection):
    """What all built-in memories have. Those of plug-ins need it only to offer ``num_frames``."""

    normed: ClassVar[tuple[str, ...]] = ()
    num_frames: PositiveInt = Field(1, description="Last inputs that are read side by side; 1 reads each alone.")


@SEQUENCE_ENCODERS.register_section("feedforward")
class FeedForwardSection(MemorySection):
    """No memory: residual blocks on each step alone. Shows what memory is worth."""

    normed = ("d_model",)
    type: Literal["feedforward"] = "feedforward"
    d_model: PositiveInt = Field(256, description="Width of the residual stream, and of the output.")
    d_ff: PositiveInt = Field(1024, description="Hidden width of each residual block.")
    num_layers: NonNegativeInt = Field(1, description="Residual blocks.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout after each layer.")
    activation: ActivationName = Field("leaky_relu", description="Activation of the hidden layers.")
    norm: NormName = Field("layer", description="Normalisation of the output.")


@SEQUENCE_ENCODERS.register_section("identity")
class IdentitySection(MemorySection):
    """No memory and no layers: the timestep encoder alone."""

    type: Literal["identity"] = "identity"


class _RecurrentSection(MemorySection):
    normed = ("d_output",)
    refused: ClassVar[Mapping[str, str]] = {
        "bidirectional": "is not possible: a policy cannot see the future that the second direction would read"
    }
    d_hidden: PositiveInt = Field(256, description="Width of the recurrent state.")
    num_layers: PositiveInt = Field(2, description="Recurrent layers.")
    d_output: PositiveInt | None = Field(256, description="Width of the output projection; null leaves it out.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout between layers.")
    norm: NormName = Field("layer", description="Normalisation of the output.")
    start: Literal["zero", "learned"] = Field("zero", description="State at an episode's or a window's first step.")

    def _widths(self) -> dict[str, int]:
        return {"d_hidden": self.d_hidden} if self.d_output is None else {"d_output": self.d_output}


@SEQUENCE_ENCODERS.register_section("gru")
class GRUSection(_RecurrentSection):
    """Gated recurrent unit (Cho et al., 2014): a fixed-size state, constant time per step."""

    type: Literal["gru"] = "gru"


@SEQUENCE_ENCODERS.register_section("lstm")
class LSTMSection(_RecurrentSection):
    """Long short-term memory (Hochreiter & Schmidhuber, 1997): a fixed-size state, constant time per step."""

    type: Literal["lstm"] = "lstm"


@SEQUENCE_ENCODERS.register_section("mamba")
class MambaSection(MemorySection):
    """Selective state space model (Gu & Dao, 2023): a fixed-size state, constant time per step, linear in length."""

    normed = ("d_model",)
    type: Literal["mamba"] = "mamba"
    d_model: PositiveInt = Field(256, description="Width of the residual stream.")
    d_state: int = Field(16, gt=0, le=256, description="Numbers that each inner feature remembers.")
    d_conv: PositiveInt = Field(4, description="Inputs that the convolution before the memory sees.")
    expand: PositiveInt = Field(2, description="Inner width, as a multiple of d_model.")
    num_layers: PositiveInt = Field(3, description="Blocks.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout after each block.")
    norm: NormName = Field("layer", description="Normalisation before each block and of the output.")


@SEQUENCE_ENCODERS.register_section("min_gru")
class MinGRUSection(MemorySection):
    """GRU whose gates do not read its state (Feng et al., 2024): small, and trained by a parallel scan."""

    normed = ("d_model",)
    type: Literal["min_gru"] = "min_gru"
    d_model: PositiveInt = Field(256, description="Width of the residual stream.")
    expand: PositiveInt = Field(1, description="Width of the recurrent state, as a multiple of d_model.")
    num_layers: PositiveInt = Field(2, description="Layers.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout after each layer.")
    norm: NormName = Field("layer", description="Normalisation before each layer and of the output.")


@SEQUENCE_ENCODERS.register_section("lru")
class LRUSection(MemorySection):
    """Linear recurrent unit (Orvieto et al., 2023): rates and frequencies of forgetting that no input changes."""

    normed = ("d_model",)
    type: Literal["lru"] = "lru"
    d_model: PositiveInt = Field(256, description="Width of the residual stream.")
    d_state: PositiveInt = Field(256, description="Complex numbers that each layer remembers.")
    num_layers: PositiveInt = Field(3, description="Layers.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout after each layer.")
    norm: NormName = Field("layer", description="Normalisation before each layer and of the output.")


class _MatrixSection(MemorySection):
    normed = ("d_model",)
    d_model: PositiveInt = Field(256, description="Width of the residual stream.")
    num_heads: PositiveInt = Field(4, description="Matrices that each layer remembers; must divide expand x d_model.")
    d_state: PositiveInt = Field(64, description="Width of the keys and queries of each head: rows of its matrix.")
    d_conv: PositiveInt = Field(4, description="Inputs that the convolution before the memory sees.")
    expand: PositiveInt = Field(2, description="Width of all values together, as a multiple of d_model.")
    num_layers: PositiveInt = Field(3, description="Layers.")
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout after each layer.")
    norm: NormName = Field("layer", description="Normalisation before each layer and of the output.")

    @model_validator(mode="after")
    def _heads_fit(self) -> _MatrixSection:
        _check_heads(self.num_heads, self.expand * self.d_model, f"{self.expand} x d_model {self.d_model}")
        return self


@SEQUENCE_ENCODERS.register_section("mamba2")
class Mamba2Section(_MatrixSection):
    """State space duality (Dao & Gu, 2024): matrices that forget at rates that the input sets; fast on long windows."""

    type: Literal["mamba2"] = "mamba2"
    num_heads: PositiveInt = Field(8, description="Matrices that each layer remembers; must divide expand x d_model.")


@SEQUENCE_ENCODERS.register_section("gated_deltanet")
class GatedDeltaNetSection(_MatrixSection):
    """Gated DeltaNet (Yang et al., 2024): what is held under a key is replaced, so that associations can change."""

    type: Literal["gated_deltanet"] = "gated_deltanet"
    expand: PositiveInt = Field(1, description="Width of all values together, as a multiple of d_model.")


@SEQUENCE_ENCODERS.register_section("mlstm")
class MLSTMSection(_MatrixSection):
    """xLSTM's mLSTM (Beck et al., 2024): matrices with exponential gates, which can outweigh all that was before."""

    type: Literal["mlstm"] = "mlstm"


@SEQUENCE_ENCODERS.register_section("hybrid")
class HybridSection(MemorySection):
    """Layers of different memories, such as attention between Mamba-2 (after Lieber et al., 2024, Jamba)."""

    normed = ("d_model",)
    refused: ClassVar[Mapping[str, str]] = {"window_steps": "is attention_window now"}
    type: Literal["hybrid"] = "hybrid"
    layers: list[Literal["attention", "gated_deltanet", "lru", "mamba2", "min_gru", "mlstm"]] = Field(
        ["mamba2", "attention", "mamba2"], min_length=1, description="Memories, first to last."
    )
    d_model: PositiveInt = Field(256, description="Width of the residual stream.")
    num_heads: PositiveInt = Field(
        8, description="Heads of attention, and matrices of the others; must divide d_model."
    )
    d_state: PositiveInt = Field(64, description="Width of the keys and queries of a matrix.")
    d_conv: PositiveInt = Field(4, description="Inputs that the convolution before a matrix sees.")
    expand: PositiveInt = Field(2, description="Width of all but attention, as a multiple of d_model.")
    d_ff: PositiveInt = Field(1024, description="Hidden width of the feed-forward block after attention.")
    attention_window: PositiveInt | None = Field(
        None, description="Inputs that attention sees, itself included; null is train.window_steps."
    )
    dropout: float = Field(0.0, ge=0.0, lt=1.0, description="Dropout after each layer.")
    norm: NormName = Field("layer", description="Normalisation before each layer and of the output.")

    @model_validator(mode="after")
    def _heads_fit(self) -> HybridSection:
        _check_heads(self.num_heads, self.d_model, f"d_model {self.d_model}")
        if "attention" in self.layers and self.d_model // self.num_heads % 2:
            raise ValueError(
                f"attention has rotary positions and needs an even width per head, got d_model {self.d_model} / "
                f"num_heads {self.num_heads} = {self.d_model // self.num_heads}"
            )
        return self


def _check_heads(num_heads: int, width: int, what: str) -> None:
    if width % num_heads:
        legal = [h for h in range(1, width + 1) if width % h == 0]
        raise ValueError(f"num_heads {num_heads} does not divide {what}; legal: {legal}")


ATTENTION_LACKS: dict[str, set[str]] = {
    "auto": set(),
    "sdpa": {"logit_clip", "score"},
    "flash": {"num_sinks", "score"},
    "flex": {"dropout_attention"},
    "vanilla": set(),
}
"""Built-in attention back-end -> options of the section below that it cannot do."""

ATTENTION_NAMES = tuple(ATTENTION_LACKS)


@ATTENTION_SCORES.register_section("alibi")
class AlibiSection(Section):
    """Linear penalty of the lag, with a different slope per head (Press et al., 2022)."""

    type: Literal["alibi"] = "alibi"
    max_exponent: PositiveFloat = Field(8.0, description="The last head's slope is 2 to the minus this.")


@SEQUENCE_ENCODERS.register_section("transformer")
class TransformerSection(MemorySection):
    """Causal pre-norm Transformer with the stabilisers that reinforcement learning needs."""

    normed = ("d_model", "d_ff")
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
    attention: str = Field(
        "auto",
        description="Back-end: auto (the fastest that can do it), sdpa, flash, flex, vanilla, or a plug-in's.",
        examples=list(ATTENTION_NAMES),
    )
    num_sinks: NonNegativeInt = Field(
        0, description="First inputs of the memory that are always attended to, besides the window."
    )
    sink_bias: float = Field(0.0, description="Added to the scores of the sinks.")
    logit_clip: PositiveFloat | None = Field(None, description="Bound c of the scores: c tanh(score / c).")
    score: Annotated[Section | None, Component(ATTENTION_SCORES)] = Field(
        None, description="User-defined functions for scores and masks."
    )
    activation: ActivationName = Field("leaky_relu", description="Activation of the feed-forward blocks.")
    norm: NormName = Field("layer", description="Normalisation layers.")
    use_sigma_reparam: bool = Field(True, description="Spectrally normalised linear layers (Zhai et al., 2023).")
    use_normformer: bool = Field(True, description="Extra norms after attention and inside the block (Shleifer, 2021).")
    use_head_scale: bool = Field(True, description="A learned scale per head (Shleifer et al., 2021).")

    @field_validator("attention")
    @classmethod
    def _known(cls, name: str) -> str:
        legal = sorted({*ATTENTION_NAMES, *ATTENTIONS.names()})
        if name not in legal:
            raise ValueError(
                f"unknown attention back-end {name!r}{did_you_mean(name, legal) or ';'} {', '.join(legal)}"
            )
        return name

    def _widths(self) -> dict[str, int]:
        return {"d_model": self.d_model, **({"d_ff": self.d_ff} if self.use_normformer else {})}

    @model_validator(mode="after")
    def _parts_fit(self) -> TransformerSection:
        problems = []
        wanted = {n for n in ("dropout_attention", "num_sinks", "logit_clip", "score") if getattr(self, n)}
        if lacking := sorted(wanted & ATTENTION_LACKS.get(self.attention, set())):
            able = " or ".join(n for n in ATTENTION_NAMES if not wanted & ATTENTION_LACKS[n])
            problems.append(f"attention {self.attention!r} cannot do {', '.join(lacking)}; use {able}")
        if self.sink_bias and not self.num_sinks:
            problems.append(f"sink_bias {self.sink_bias} needs num_sinks of 1 or more")
        width, rest = divmod(self.d_model, self.num_heads)
        if rest:
            legal = [h for h in range(1, self.d_model + 1) if self.d_model % h == 0]
            problems.append(f"num_heads {self.num_heads} does not divide d_model {self.d_model}; legal: {legal}")
        elif self.positions == "rotary" and width % 2:
            problems.append(
                f"positions 'rotary' needs an even width per head, got d_model {self.d_model} / num_heads "
                f"{self.num_heads} = {width}"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self
