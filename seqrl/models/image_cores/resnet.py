"""ResNet-18, from scratch or from a local file of pretrained weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.registry import IMAGE_CORES
from seqrl.models.image_cores.base import ConvolutionalCore, Window
from seqrl.models.image_cores.convolutions import group_norm
from seqrl.models.image_cores.local_weights import are_local_weights_skipped, read_weights

Norm = Callable[[int], nn.Module]

_STEM = (Window(7, 2, 3), Window(3, 2, 1))
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and first stride of every stage of two blocks."""
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, in units of the [0, 1] range; what torchvision's weights expect to be removed."""


class FrozenBatchNorm2d(nn.Module):
    """Batch norm whose statistics are constants, also in training; scale and shift are trained.

    Args:
        num_channels: Of the images.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_channels))
        self.bias = nn.Parameter(torch.zeros(num_channels))
        self.register_buffer("running_mean", torch.zeros(num_channels))
        self.register_buffer("running_var", torch.ones(num_channels))

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N C H W"]:
        """Return the standardised, scaled and shifted images."""
        return nn.functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias)


class _BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a short cut, with torchvision's parameter names."""

    def __init__(self, before: int, channels: int, windows: tuple[Window, Window], norm: Norm) -> None:
        super().__init__()
        stride = windows[0].stride
        self.conv1 = nn.Conv2d(before, channels, *windows[0], bias=False)
        self.bn1 = norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, *windows[1], bias=False)
        self.bn2 = norm(channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or before != channels:
            self.downsample = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), norm(channels))

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        short_cut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)) + short_cut)


def _stage(stride: int) -> tuple[Window, Window, Window, Window]:
    return Window(3, stride, 1), Window(3, 1, 1), Window(3, 1, 1), Window(3, 1, 1)


def _make_stage(before: int, channels: int, stride: int, norm: Norm) -> nn.Sequential:
    windows = _stage(stride)
    return nn.Sequential(
        _BasicBlock(before, channels, windows[:2], norm), _BasicBlock(channels, channels, windows[2:], norm)
    )


@IMAGE_CORES.register("resnet18")
class ResNet18Core(ConvolutionalCore):
    """ResNet-18 without its last linear layer, under torchvision's parameter names.

    From scratch, group norms take the place of batch norms, under the same names: they have no statistics to move.
    With ``weights``, the batch norms' statistics are constants, and the images are standardised as ImageNet's were.

    Args:
        shape: Channels, height and width of the images.
        weights: A local file, ``.safetensors`` or ``.pth``, with the names of torchvision's ``resnet18``.
        pool: Of the last feature map.
        num_keypoints: Points of the spatial softmax.

    Raises:
        ConfigError: If the file is missing or does not fit, or the images have not three channels.

    Source: He et al. (2016), Deep residual learning (arXiv 1512.03385), table 1; strides as in torchvision.
    """

    windows = (*_STEM, *(w for _, stride in _STAGES for w in _stage(stride)))
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        weights: str | None = None,
        pool: str = "spatial_softmax",
        num_keypoints: int = 32,
    ) -> None:
        super().__init__(shape, _STAGES[-1][0], pool, num_keypoints)
        self.is_pretrained = weights is not None
        norm: Norm = FrozenBatchNorm2d if self.is_pretrained else group_norm
        self.conv1 = nn.Conv2d(shape[0], 64, *_STEM[0], bias=False)
        self.bn1 = norm(64)
        self.maxpool = nn.MaxPool2d(*_STEM[1])
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            _make_stage(before, channels, stride, norm)
            for before, (channels, stride) in zip((64, 64, 128, 256), _STAGES, strict=True)
        )
        if weights is not None:
            self._use(weights)

    def features(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        """Return the map of the last stage."""
        if self.is_pretrained:
            x = ((x + 1) / 2 - self.mean) / self.std
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        y: Tensor = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return y

    def _use(self, weights: str) -> None:
        if self.shape[0] != 3:
            raise ConfigError(
                f"image core 'resnet18': weights are for images of 3 channels, got {self.shape[0]}; "
                "leave weights out (null) for other images"
            )
        self.register_buffer("mean", torch.tensor(_MEAN).reshape(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(_STD).reshape(3, 1, 1), persistent=False)
        if are_local_weights_skipped():
            return
        own = {k: v for k, v in self.state_dict().items() if not k.startswith("pool.")}
        tensors = read_weights(weights, own, ("fc.", "num_batches_tracked"))
        self.load_state_dict(tensors, strict=False)
