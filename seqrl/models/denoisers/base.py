"""What every denoiser keeps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.registry import DENOISERS

_TIME_SCALE, _LONGEST_PERIOD = 1000.0, 10_000.0


class Denoiser(nn.Module, ABC):
    """From noisy chunks of actions to what is asked of them: their noise, or where they go.

    Args:
        chunk_steps: K actions of a chunk.
        d_action: Width A of an action.
        d_condition: Width D of what it is told.
    """

    def __init__(self, chunk_steps: int, d_action: int, d_condition: int) -> None:
        super().__init__()
        self.chunk_steps, self.d_action, self.d_condition = chunk_steps, d_action, d_condition

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "N K A"], time: Float[Tensor, " N"], condition: Float[Tensor, "N D"]
    ) -> Float[Tensor, "N K A"]:
        """Return one number per entry.

        Args:
            x: Noisy actions.
            time: In [0, 1], of the noise.
            condition: What the memory holds.
        """


class TimeEmbedding(nn.Module):
    """Sines and cosines of a time in [0, 1], then two layers.

    Args:
        width: Of the output; even.
    """

    rates: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        rates = _TIME_SCALE * torch.exp(-math.log(_LONGEST_PERIOD) * torch.arange(width // 2) / max(width // 2 - 1, 1))
        self.register_buffer("rates", rates, persistent=False)
        self.layers = nn.Sequential(nn.Linear(2 * (width // 2), 4 * width), nn.Mish(), nn.Linear(4 * width, width))

    def forward(self, time: Float[Tensor, " N"]) -> Float[Tensor, "N D"]:
        """Return the embeddings."""
        angles = time.unsqueeze(-1) * self.rates
        embedded: Tensor = self.layers(torch.cat([angles.sin(), angles.cos()], dim=-1))
        return embedded


def build_denoiser(name: str, options: dict[str, Any], chunk_steps: int, d_action: int, d_condition: int) -> Denoiser:
    """Return the registered denoiser of that name."""
    denoiser: Denoiser = DENOISERS.get(name)(chunk_steps, d_action, d_condition, **options)
    return denoiser
