"""Convolutional cores that are trained from scratch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.registry import IMAGE_CORES
from seqrl.models.image_cores.base import ConvolutionalCore, Window
from seqrl.models.mlp import make_activation


@torch.no_grad()
def delta_orthogonal_(weight: Float[Tensor, "O I h w"], gain: float) -> None:
    """Fill the kernel's centre with an orthogonal matrix times ``gain``, and the rest with zeros.

    At stride 1 and without padding effects, such a convolution scales the norm of its input by ``gain``. That holds
    for O >= I, as in the source; with O < I the rows are orthonormal instead, so that the part of the input that is
    kept is scaled by ``gain``. A kernel of even size has no centre: the pixel after the middle stands for it.

    Source: Xiao et al. (2018), Dynamical isometry and a mean field theory of CNNs (arXiv 1806.05393).
    """
    weight.zero_()
    centre = torch.empty(weight.shape[:2], dtype=weight.dtype, device=weight.device)
    nn.init.orthogonal_(centre, gain)
    weight[:, :, weight.shape[2] // 2, weight.shape[3] // 2] = centre


def group_norm(num_channels: int) -> nn.GroupNorm:
    """Return a group norm whose groups have 16 channels, or all of them if 16 does not divide their number."""
    return nn.GroupNorm(num_channels // 16 if num_channels % 16 == 0 else 1, num_channels)


def _plain(channels: Sequence[int], windows: Sequence[Window], activation: str) -> nn.Sequential:
    """Return convolutions from ``channels[i]`` to ``channels[i + 1]``, each followed by the activation."""
    layers: list[nn.Module] = []
    for i, window in enumerate(windows):
        layers += [nn.Conv2d(channels[i], channels[i + 1], *window), make_activation(activation)]
    return nn.Sequential(*layers)


def _init_delta_orthogonal(trunk: nn.Module) -> None:
    for module in trunk.modules():
        if isinstance(module, nn.Conv2d):
            delta_orthogonal_(module.weight, math.sqrt(2))
            assert module.bias is not None
            nn.init.zeros_(module.bias)


@IMAGE_CORES.register("nature")
class NatureCore(ConvolutionalCore):
    """Strided convolutions, by default three of 32, 64 and 64 channels, delta-orthogonal at first.

    Source: Mnih et al. (2015), Human-level control through deep reinforcement learning, Nature 518.
    """

    windows = (Window(8, 4), Window(4, 2), Window(3, 1))

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        channels: Sequence[int] = (32, 64, 64),
        kernels: Sequence[int] = (8, 4, 3),
        strides: Sequence[int] = (4, 2, 1),
        activation: str = "relu",
        pool: str = "flatten",
        num_keypoints: int = 32,
    ) -> None:
        windows = tuple(map(Window, kernels, strides))
        super().__init__(shape, channels[-1], pool, num_keypoints, windows)
        self.trunk = _plain((shape[0], *channels), windows, activation)
        _init_delta_orthogonal(self.trunk)

    def features(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        """Return the map of the last convolution."""
        y: Tensor = self.trunk(x)
        return y


@IMAGE_CORES.register("drq")
class DrQCore(ConvolutionalCore):
    """Four 3 x 3 convolutions, the first of stride 2, delta-orthogonal at first.

    Source: Yarats et al. (2021), Mastering visual continuous control: DrQ-v2 (arXiv 2107.09645).
    """

    windows = (Window(3, 2), Window(3, 1), Window(3, 1), Window(3, 1))

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        channels: int = 32,
        activation: str = "relu",
        pool: str = "flatten",
        num_keypoints: int = 32,
    ) -> None:
        super().__init__(shape, channels, pool, num_keypoints)
        self.trunk = _plain((shape[0], *[channels] * len(self.windows)), self.windows, activation)
        _init_delta_orthogonal(self.trunk)

    def features(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        """Return the map of the last convolution."""
        y: Tensor = self.trunk(x)
        return y


@IMAGE_CORES.register("gridworld")
class GridworldCore(ConvolutionalCore):
    """Convolutions, by default three 2 x 2 ones of 16, 32 and 64 channels, for grids, after MiniGrid's actor-critics.

    Without their max pooling, which asks for grids of 7 x 7 and blurs where a thing lies.
    """

    windows = (Window(2), Window(2), Window(2))

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        channels: Sequence[int] = (16, 32, 64),
        kernels: Sequence[int] = (2, 2, 2),
        strides: Sequence[int] = (1, 1, 1),
        activation: str = "relu",
        pool: str = "flatten",
        num_keypoints: int = 32,
    ) -> None:
        windows = tuple(map(Window, kernels, strides))
        super().__init__(shape, channels[-1], pool, num_keypoints, windows)
        self.trunk = _plain((shape[0], *channels), windows, activation)

    def features(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        """Return the map of the last convolution."""
        y: Tensor = self.trunk(x)
        return y


class _ImpalaResidual(nn.Module):
    """``x + conv(act(conv(act(x))))`` with 3 x 3 convolutions."""

    def __init__(self, channels: int, activation: str) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            make_activation(activation),
            nn.Conv2d(channels, channels, 3, padding=1),
            make_activation(activation),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N C H W"]:
        y: Tensor = x + self.layers(x)
        return y


_IMPALA_BLOCK = (Window(3, 1, 1), Window(3, 2, 1))


@IMAGE_CORES.register("impala")
class ImpalaCore(ConvolutionalCore):
    """Blocks of a 3 x 3 convolution, a max pooling that halves the image, and two residual blocks; an activation last.

    Args:
        shape: Channels, height and width of the images.
        block_channels: Channels of every block.
        use_group_norm: Group norm after every block, in groups of 16 channels; not in the source.
        activation: Everywhere.
        pool: Of the last feature map.
        num_keypoints: Points of the spatial softmax.

    Source: Espeholt et al. (2018), IMPALA (arXiv 1802.01561), figure 3, the large network.
    """

    windows = _IMPALA_BLOCK * 3

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        block_channels: list[int] = [16, 32, 32],  # noqa: B006  (only read; equals the section's)
        use_group_norm: bool = True,
        activation: str = "relu",
        pool: str = "flatten",
        num_keypoints: int = 32,
    ) -> None:
        super().__init__(shape, block_channels[-1], pool, num_keypoints, _IMPALA_BLOCK * len(block_channels))
        layers: list[nn.Module] = []
        for before, channels in zip([shape[0], *block_channels], block_channels, strict=False):
            conv, pooling = _IMPALA_BLOCK
            layers += [nn.Conv2d(before, channels, *conv), nn.MaxPool2d(*pooling)]
            layers += [_ImpalaResidual(channels, activation), _ImpalaResidual(channels, activation)]
            layers += [group_norm(channels)] if use_group_norm else []
        self.trunk = nn.Sequential(*layers, make_activation(activation))

    def features(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        """Return the map of the last block."""
        y: Tensor = self.trunk(x)
        return y
