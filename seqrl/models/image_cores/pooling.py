"""From feature maps to flat features."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class SpatialSoftmax(nn.Module):
    """Where each of a few learned maps is bright: its expected position.

    A 1 x 1 convolution makes one map per keypoint; the softmax of a map over its pixels is a distribution, whose means
    are x and y, from -1 (first column, first row) to 1 (last ones). The temperature is 1.

    Args:
        shape: Channels, height and width of the feature map.
        num_keypoints: Maps.

    Source: Levine et al. (2016), End-to-end training of deep visuomotor policies (arXiv 1504.00702).
    """

    xs: Tensor
    ys: Tensor

    def __init__(self, shape: tuple[int, int, int], num_keypoints: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.maps = nn.Conv2d(channels, num_keypoints, 1)
        self.register_buffer("xs", torch.linspace(-1, 1, width), persistent=False)
        self.register_buffer("ys", torch.linspace(-1, 1, height), persistent=False)

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N F"]:
        """Return x and y of every keypoint in turn: ``x1, y1, x2, y2, ...``."""
        maps: Tensor = self.maps(x)
        shares = maps.flatten(2).softmax(-1).reshape(maps.shape)
        mean_x = (shares.sum(-2) * self.xs).sum(-1)
        mean_y = (shares.sum(-1) * self.ys).sum(-1)
        return torch.stack([mean_x, mean_y], dim=-1).flatten(1)


class MeanPool(nn.Module):
    """The mean of every channel over all pixels."""

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N C"]:
        """Return the means."""
        return x.mean(dim=(-2, -1))


def smallest_map(pool: str) -> int:
    """Return the least height and width that a feature map needs: of one pixel, the position says nothing."""
    return 2 if pool == "spatial_softmax" else 1


def make_pool(pool: str, shape: tuple[int, int, int], num_keypoints: int) -> tuple[nn.Module, int]:
    """Return the pooling of that name for feature maps of ``shape`` (C, H, W), and the width of its output."""
    channels, height, width = shape
    if pool == "spatial_softmax":
        return SpatialSoftmax(shape, num_keypoints), 2 * num_keypoints
    if pool == "mean":
        return MeanPool(), channels
    return nn.Flatten(), channels * height * width
