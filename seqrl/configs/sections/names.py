"""Names that several sections share."""

from typing import Literal

ActivationName = Literal["leaky_relu", "relu", "gelu", "silu", "tanh"]
NormName = Literal["layer", "rms", "none"]
