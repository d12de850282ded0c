"""Names that several sections share."""

from typing import Literal

ActivationName = Literal["leaky_relu", "relu", "gelu", "silu", "tanh", "elu", "selu", "mish"]
NormName = Literal["layer", "rms", "simnorm", "hypersphere", "none"]
