"""ResNet-18 and ResNet-50, from scratch or from a local file of pretrained weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.registry import IMAGE_CORES
from seqrl.models.image_cores.base import ConvolutionalCore, Window, modulated
from seqrl.models.image_cores.convolutions import group_norm
from seqrl.models.image_cores.local_weights import are_local_weights_skipped, read_weights

Norm = Callable[[int], nn.Module]

_STEM = (Window(7, 2, 3), Window(3, 2, 1))
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Width and first stride of every stage."""
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


class _Block(nn.Module):
    """Convolutions beside a short cut, with torchvision's parameter names.

    Args:
        before: Channels of the input.
        width: Channels within.
        stride: Of the block.
        norm: Makes a norm.
    """

    expansion: ClassVar[int]
    """Channels of the output, in widths."""

    def __init__(self, before: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        after = width * self.expansion
        self.downsample: nn.Module | None = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), norm(after))

    def short_cut(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        return x if self.downsample is None else self.downsample(x)


class _BasicBlock(_Block):
    """Two 3 x 3 convolutions."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__(before, width, stride, norm)
        first, second = self.windows(stride)
        self.conv1 = nn.Conv2d(before, width, *first, bias=False)
        self.bn1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, *second, bias=False)
        self.bn2 = norm(width)

    @staticmethod
    def windows(stride: int) -> tuple[Window, ...]:
        return Window(3, stride, 1), Window(3, 1, 1)

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.short_cut(x))


class _Bottleneck(_Block):
    """A 1 x 1, a 3 x 3 and a 1 x 1 convolution to four times the channels; the stride is in the middle one."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__(before, width, stride, norm)
        first, second, third = self.windows(stride)
        self.conv1 = nn.Conv2d(before, width, *first, bias=False)
        self.bn1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, *second, bias=False)
        self.bn2 = norm(width)
        self.conv3 = nn.Conv2d(width, 4 * width, *third, bias=False)
        self.bn3 = norm(4 * width)

    @staticmethod
    def windows(stride: int) -> tuple[Window, ...]:
        return Window(1), Window(3, stride, 1), Window(1)

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.short_cut(x))


BlockClass = type[_BasicBlock] | type[_Bottleneck]


def _windows(block: BlockClass, numbers: Sequence[int]) -> tuple[Window, ...]:
    """Return the layers of a network with ``numbers`` of blocks in its stages that change the size."""
    strides = [stride for n, (_, first) in zip(numbers, _STAGES, strict=True) for stride in (first, *[1] * (n - 1))]
    return (*_STEM, *(window for stride in strides for window in block.windows(stride)))


class ResNetCore(ConvolutionalCore):
    """A ResNet without its last linear layer, under torchvision's parameter names.

    From scratch, group norms take the place of batch norms, under the same names: they have no statistics to move.
    With ``weights``, the batch norms' statistics are constants, and the images are standardised as ImageNet's were.

    Args:
        shape: Channels, height and width of the images.
        weights: A local file, ``.safetensors`` or ``.pth``, with the names of torchvision's network.
        pool: Of the last feature map.
        num_keypoints: Points of the spatial softmax.

    Raises:
        ConfigError: If the file is missing or does not fit, or the images have not three channels.

    Source: He et al. (2016), Deep residual learning (arXiv 1512.03385), table 1; strides as in torchvision.
    """

    name: ClassVar[str]
    block: ClassVar[BlockClass]
    numbers: ClassVar[tuple[int, int, int, int]]
    """Blocks of every stage."""

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
        channels = [width * self.block.expansion for width, _ in _STAGES]
        super().__init__(shape, channels[-1], pool, num_keypoints)
        self.map_channels = tuple(channels)
        self.is_pretrained = weights is not None
        norm: Norm = FrozenBatchNorm2d if self.is_pretrained else group_norm
        self.conv1 = nn.Conv2d(shape[0], 64, *_STEM[0], bias=False)
        self.bn1 = norm(64)
        self.maxpool = nn.MaxPool2d(*_STEM[1])
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            self._make_stage(before, number, norm) for number, before in enumerate((64, *channels[:-1]))
        )
        if weights is not None:
            self._use(weights)

    def _make_stage(self, before: int, number: int, norm: Norm) -> nn.Sequential:
        width, stride = _STAGES[number]
        blocks = [self.block(before, width, stride, norm)]
        for _ in range(1, self.numbers[number]):
            blocks.append(self.block(width * self.block.expansion, width, 1, norm))
        return nn.Sequential(*blocks)

    def features(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        """Return the map of the last stage."""
        return self.modulated_features(x, [])

    def modulated_features(self, x: Float[Tensor, "N C H W"], films: Sequence[Tensor]) -> Float[Tensor, "N K h w"]:
        """Return the map of the last stage; each stage's map is scaled and shifted."""
        if self.is_pretrained:
            x = ((x + 1) / 2 - self.mean) / self.std
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for number, stage in enumerate((self.layer1, self.layer2, self.layer3, self.layer4)):
            x = stage(x)
            x = modulated(x, films[number]) if films else x
        return x

    def _use(self, weights: str) -> None:
        if self.shape[0] != 3:
            raise ConfigError(
                f"image core {self.name!r}: weights are for images of 3 channels, got {self.shape[0]}; "
                "leave weights out (null) for other images"
            )
        self.register_buffer("mean", torch.tensor(_MEAN).reshape(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(_STD).reshape(3, 1, 1), persistent=False)
        if are_local_weights_skipped():
            return
        own = {k: v for k, v in self.state_dict().items() if not k.startswith(("pool.", "film."))}
        tensors = read_weights(weights, own, ("fc.", "num_batches_tracked"))
        self.load_state_dict(tensors, strict=False)


@IMAGE_CORES.register("resnet18")
class ResNet18Core(ResNetCore):
    """18 layers; features of 512 channels."""

    name, block, numbers = "resnet18", _BasicBlock, (2, 2, 2, 2)
    windows = _windows(block, numbers)


@IMAGE_CORES.register("resnet50")
class ResNet50Core(ResNetCore):
    """50 layers; features of 2048 channels."""

    name, block, numbers = "resnet50", _Bottleneck, (3, 4, 6, 3)
    windows = _windows(block, numbers)
