"""Two transformers over chunks of actions: one reads a chunk, one writes it."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class ChunkReader(nn.Module):
    """From what the memory holds and a chunk of actions to one vector.

    Args:
        chunk_steps: K actions of a chunk.
        d_action: Width of an action.
        d_condition: Width of what the memory holds.
        d_output: Width of the vector.
        d_model: Width of the transformer.
        num_heads: Attention heads.
        num_layers: Layers.
        dropout: Share of features dropped in training.

    Source: Zhao et al. (2023), ACT, arXiv 2304.13705, section 4.2: the encoder.
    """

    def __init__(
        self,
        chunk_steps: int,
        d_action: int,
        d_condition: int,
        d_output: int,
        *,
        d_model: int,
        num_heads: int,
        num_layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.seen, self.action = nn.Linear(d_condition, d_model), nn.Linear(d_action, d_model)
        self.summary = nn.Parameter(0.02 * torch.randn(d_model))
        self.positions = nn.Parameter(0.02 * torch.randn(chunk_steps + 2, d_model))
        layer = nn.TransformerEncoderLayer(
            d_model, num_heads, 4 * d_model, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, num_layers, norm=nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.output = nn.Linear(d_model, d_output)

    def forward(
        self, condition: Float[Tensor, "N D"], actions: Float[Tensor, "N K A"], mask: Bool[Tensor, "N K"]
    ) -> Float[Tensor, "N E"]:
        """Return one vector per chunk; where ``mask`` is False actions have no influence."""
        first = torch.stack(
            [self.summary.to(condition.dtype).expand(condition.shape[0], -1), self.seen(condition)], dim=1
        )
        tokens = torch.cat([first, self.action(actions)], dim=1) + self.positions
        is_none = torch.cat([torch.zeros_like(mask[:, :1]).expand(-1, 2), ~mask], dim=1)
        read: Tensor = self.output(self.layers(tokens, src_key_padding_mask=is_none)[:, 0])
        return read


class ChunkWriter(nn.Module):
    """From what the memory holds and a latent vector to a chunk: one learned query per action attends to both.

    Args:
        chunk_steps: K actions of a chunk.
        d_action: Width of an action.
        d_condition: Width of what the memory holds.
        d_latent: Width of the latent vector.
        d_model: Width of the transformer.
        num_heads: Attention heads.
        num_layers: Layers.
        dropout: Share of features dropped in training.

    Source: Zhao et al. (2023), ACT, arXiv 2304.13705, section 4.2: the decoder.
    """

    def __init__(
        self,
        chunk_steps: int,
        d_action: int,
        d_condition: int,
        d_latent: int,
        *,
        d_model: int,
        num_heads: int,
        num_layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.seen, self.latent = nn.Linear(d_condition, d_model), nn.Linear(d_latent, d_model)
        self.queries = nn.Parameter(0.02 * torch.randn(chunk_steps, d_model))
        layer = nn.TransformerDecoderLayer(
            d_model, num_heads, 4 * d_model, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, num_layers, norm=nn.LayerNorm(d_model))
        self.output = nn.Linear(d_model, d_action)

    def forward(self, condition: Float[Tensor, "N D"], latent: Float[Tensor, "N E"]) -> Float[Tensor, "N K A"]:
        """Return the actions, not clipped."""
        told = torch.stack([self.seen(condition), self.latent(latent)], dim=1)
        actions: Tensor = self.output(self.layers(self.queries.expand(told.shape[0], -1, -1).to(told.dtype), told))
        return actions
