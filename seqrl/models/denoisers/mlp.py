"""A chunk as one long vector: quick for short ones."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.core.registry import DENOISERS
from seqrl.models.denoisers.base import Denoiser, TimeEmbedding
from seqrl.models.mlp import make_mlp


@DENOISERS.register("mlp")
class MLPDenoiser(Denoiser):
    """Hidden layers over the actions of a chunk side by side, the time and the memory."""

    def __init__(
        self,
        chunk_steps: int,
        d_action: int,
        d_condition: int,
        *,
        d_hidden: int = 256,
        num_layers: int = 3,
        d_time: int = 32,
        activation: str = "mish",
    ) -> None:
        super().__init__(chunk_steps, d_action, d_condition)
        self.time = TimeEmbedding(d_time)
        width = chunk_steps * d_action
        self.layers = make_mlp(width + d_time + d_condition, d_hidden, num_layers, width, activation)

    def forward(
        self, x: Float[Tensor, "N K A"], time: Float[Tensor, " N"], condition: Float[Tensor, "N D"]
    ) -> Float[Tensor, "N K A"]:
        """Return one number per entry."""
        flat: Tensor = self.layers(torch.cat([x.flatten(1), self.time(time).to(x.dtype), condition], dim=-1))
        return flat.reshape(x.shape)
