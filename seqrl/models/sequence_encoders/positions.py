"""Where in its episode an input stands: sinusoidal, learned and rotary positions."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class FixedPositions(nn.Module):
    """Sinusoids of the step (Vaswani et al., 2017, section 3.5), added to the input."""

    frequency: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        half = (width + 1) // 2
        frequency = torch.exp(torch.arange(half) * (-math.log(10_000.0) / max(half, 1)))
        self.width = width
        self.register_buffer("frequency", frequency, persistent=False)

    def forward(self, step: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Return ``(B, L, width)``: the sines, then the cosines."""
        angle = step.unsqueeze(-1).float() * self.frequency.float()
        return torch.cat([angle.sin(), angle.cos()], dim=-1)[..., : self.width]


def rotary_angles(
    step: Int[Tensor, "B L"], width: int, base: float
) -> tuple[Float[Tensor, "B L H"], Float[Tensor, "B L H"]]:
    """Return cosines and sines of the rotation of each pair of features at each step (Su et al., 2021)."""
    exponent = torch.arange(0, width, 2, device=step.device, dtype=torch.float32) / width
    angle = step.unsqueeze(-1).float() * base**-exponent
    return angle.cos(), angle.sin()


def rotate(
    x: Float[Tensor, "B L *heads D"], cos: Float[Tensor, "B L H"], sin: Float[Tensor, "B L H"]
) -> Float[Tensor, "B L *heads D"]:
    """Rotate each pair (feature i, feature i + D/2); computed in float32."""
    cos, sin = (a.view(*a.shape[:2], *[1] * (x.dim() - 3), -1) for a in (cos, sin))
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
