"""One token per action of a chunk, which look at the time and the memory."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.registry import DENOISERS
from seqrl.models.denoisers.base import Denoiser, TimeEmbedding


@DENOISERS.register("transformer")
class TransformerDenoiser(Denoiser):
    """Actions attend to one another and, in each layer, to two tokens: the time and the memory.

    Source: Chi et al. (2023), Diffusion Policy, arXiv 2303.04137, section 3.1.
    """

    def __init__(
        self,
        chunk_steps: int,
        d_action: int,
        d_condition: int,
        *,
        d_model: int = 128,
        num_heads: int = 4,
        num_layers: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(chunk_steps, d_action, d_condition)
        if d_model % num_heads:
            raise ConfigError(f"denoiser.d_model {d_model} is not a multiple of num_heads {num_heads}")
        self.time, self.seen = TimeEmbedding(d_model), nn.Linear(d_condition, d_model)
        self.input = nn.Linear(d_action, d_model)
        self.positions = nn.Parameter(0.02 * torch.randn(chunk_steps, d_model))
        layer = nn.TransformerDecoderLayer(
            d_model, num_heads, 4 * d_model, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, num_layers, norm=nn.LayerNorm(d_model))
        self.output = nn.Linear(d_model, d_action)

    def forward(
        self, x: Float[Tensor, "N K A"], time: Float[Tensor, " N"], condition: Float[Tensor, "N D"]
    ) -> Float[Tensor, "N K A"]:
        """Return one number per entry."""
        told = torch.stack([self.time(time).to(condition.dtype), self.seen(condition)], dim=1)
        numbers: Tensor = self.output(self.layers(self.input(x) + self.positions, told))
        return numbers
