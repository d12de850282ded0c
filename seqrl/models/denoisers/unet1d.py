"""Convolutions along a chunk, coarser and coarser and back again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.registry import DENOISERS
from seqrl.models.denoisers.base import Denoiser, TimeEmbedding


def _convolved(d_input: int, d_output: int, kernel_size: int, num_groups: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(d_input, d_output, kernel_size, padding=kernel_size // 2),
        nn.GroupNorm(num_groups, d_output),
        nn.Mish(),
    )


class _Residual(nn.Module):
    """Two convolutions beside a skip; between them features are scaled and shifted by what it is told (FiLM)."""

    def __init__(self, d_input: int, d_output: int, d_told: int, kernel_size: int, num_groups: int) -> None:
        super().__init__()
        self.first = _convolved(d_input, d_output, kernel_size, num_groups)
        self.second = _convolved(d_output, d_output, kernel_size, num_groups)
        self.film = nn.Sequential(nn.Mish(), nn.Linear(d_told, 2 * d_output))
        self.skip = nn.Conv1d(d_input, d_output, 1) if d_input != d_output else nn.Identity()

    def forward(self, x: Float[Tensor, "N C K"], told: Float[Tensor, "N D"]) -> Float[Tensor, "N E K"]:
        scale, shift = self.film(told).unsqueeze(-1).chunk(2, dim=1)
        out: Tensor = self.second((1.0 + scale) * self.first(x) + shift) + self.skip(x)
        return out


class _Level(nn.Module):
    """Two residual blocks at one resolution."""

    def __init__(self, d_input: int, d_output: int, d_told: int, kernel_size: int, num_groups: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            _Residual(width, d_output, d_told, kernel_size, num_groups) for width in (d_input, d_output)
        )

    def forward(self, x: Tensor, told: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, told)
        return x


@DENOISERS.register("unet1d")
class UNet1d(Denoiser):
    """A U-Net over the steps of a chunk, each level with half the steps of the one before.

    Source: Chi et al. (2023), Diffusion Policy, arXiv 2303.04137, section 3.1; Janner et al. (2022, arXiv 2205.09991).
    """

    def __init__(
        self,
        chunk_steps: int,
        d_action: int,
        d_condition: int,
        *,
        widths: Sequence[int] = (64, 128, 256),
        kernel_size: int = 5,
        num_groups: int = 8,
        d_time: int = 128,
    ) -> None:
        super().__init__(chunk_steps, d_action, d_condition)
        halvings = 2 ** (len(widths) - 1)
        if chunk_steps % halvings:
            raise ConfigError(
                f"denoiser 'unet1d' with {len(widths)} widths halves a chunk {len(widths) - 1} times, but chunk_steps "
                f"{chunk_steps} is not a multiple of {halvings}; take another number, or denoiser 'transformer'"
            )
        if odd := [width for width in widths if width % num_groups]:
            raise ConfigError(f"denoiser.widths {odd[0]} is not a multiple of num_groups {num_groups}")
        self.time = TimeEmbedding(d_time)
        block = (d_time + d_condition, kernel_size, num_groups)
        ends = list(pairwise([d_action, *widths]))
        self.down = nn.ModuleList(_Level(*end, *block) for end in ends)
        self.smaller = nn.ModuleList(nn.Conv1d(w, w, 3, stride=2, padding=1) for w in widths[:-1])
        self.middle = _Level(widths[-1], widths[-1], *block)
        self.up = nn.ModuleList(_Level(2 * after, before, *block) for before, after in reversed(ends[1:]))
        self.larger = nn.ModuleList(nn.ConvTranspose1d(w, w, 4, stride=2, padding=1) for w in reversed(widths[:-1]))
        self.output = nn.Sequential(
            _convolved(widths[0], widths[0], kernel_size, num_groups), nn.Conv1d(widths[0], d_action, 1)
        )

    def forward(
        self, x: Float[Tensor, "N K A"], time: Float[Tensor, " N"], condition: Float[Tensor, "N D"]
    ) -> Float[Tensor, "N K A"]:
        """Return one number per entry."""
        told = torch.cat([self.time(time).to(condition.dtype), condition], dim=-1)
        x, seen = x.transpose(1, 2), []
        for level, smaller in zip(self.down, [*self.smaller, nn.Identity()], strict=True):
            x = level(x, told)
            seen.append(x)
            x = smaller(x)
        x = self.middle(x, told)
        for level, larger in zip(self.up, self.larger, strict=True):
            x = larger(level(torch.cat([x, seen.pop()], dim=1), told))
        numbers: Tensor = self.output(x).transpose(1, 2)
        return numbers
