"""What every image core is, and which image sizes it can take."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.registry import IMAGE_CORES
from seqrl.models.image_cores.pooling import make_pool, smallest_map


class Window(NamedTuple):
    """How a convolution or a pooling slides over an image; square, in pixels."""

    kernel: int
    stride: int = 1
    padding: int = 0


def output_size(windows: Sequence[Window], size: int) -> int:
    """Return the height (or width) in pixels that is left of ``size`` after the layers; below 1 if nothing is."""
    for window in windows:
        size = (size + 2 * window.padding - window.kernel) // window.stride + 1
    return size


def smallest_input(windows: Sequence[Window], output: int = 1) -> int:
    """Return the smallest height (or width) in pixels that leaves at least ``output`` pixels after the layers."""
    size = output
    for window in reversed(windows):
        size = max(1, (size - 1) * window.stride + window.kernel - 2 * window.padding)
    return size


class ImageCore(nn.Module, ABC):
    """Base of all image cores. Register a subclass with ``IMAGE_CORES.register(name)``.

    Args:
        shape: Channels, height and width of the images.

    Attributes:
        d_output: Width of the features; a subclass sets it.
    """

    d_output: int

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.shape = shape

    @abstractmethod
    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N F"]:
        """Return flat features of images whose values are in [-1, 1]."""


class ConvolutionalCore(ImageCore):
    """Layers that keep the image's layout, then a pooling. A subclass writes ``features``.

    Args:
        shape: Channels, height and width of the images.
        num_channels: Of the feature map.
        pool: ``flatten``, ``spatial_softmax`` or ``mean``.
        num_keypoints: Points of the spatial softmax.
        windows: The layers that change the size; None takes those of the class.

    Raises:
        ConfigError: If the images are too small.
    """

    windows: ClassVar[tuple[Window, ...]]
    """The layers that change the size, at the default options."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        num_channels: int,
        pool: str,
        num_keypoints: int,
        windows: tuple[Window, ...] | None = None,
    ) -> None:
        super().__init__(shape)
        windows = self.windows if windows is None else windows
        _check_size(type(self), windows, shape, pool)
        height, width = (output_size(windows, size) for size in shape[1:])
        self.pool, self.d_output = make_pool(pool, (num_channels, height, width), num_keypoints)

    @abstractmethod
    def features(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        """Return the feature map."""

    def forward(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N F"]:
        """Return the pooled features."""
        y: Tensor = self.pool(self.features(x))
        return y


def _check_size(cls: type, windows: tuple[Window, ...], shape: tuple[int, int, int], pool: str) -> None:
    height, width = shape[1:]
    smallest = smallest_input(windows, smallest_map(pool))
    if min(height, width) >= smallest:
        return
    cores = {name: IMAGE_CORES.get(name) for name in IMAGE_CORES.names() if name in IMAGE_CORES}
    own = next((name for name, core in cores.items() if core is cls), cls.__name__)
    others = [
        f"{name} takes {_size(smallest_input(core.windows, smallest_map(_default_pool(core))))}"
        for name, core in cores.items()
        if core is not cls and hasattr(core, "windows")
    ]
    if smallest_map(pool) > 1:
        others.append(f"pool 'flatten' or 'mean' takes {_size(smallest_input(windows))}")
    raise ConfigError(
        f"image core {own!r} with pool {pool!r} needs images of at least {smallest} x {smallest}, "
        f"got {height} x {width}; {', '.join(others)}"
    )


def _default_pool(core: type) -> str:
    """Return the pool that a core gets when its ``type`` is all that is given."""
    pool: str = inspect.signature(core).parameters["pool"].default
    return pool


def _size(smallest: int) -> str:
    return "any size" if smallest == 1 else f"{smallest} x {smallest} and larger"


def build_image_core(type_name: str, options: dict[str, Any], shape: tuple[int, int, int]) -> ImageCore:
    """Return the registered core ``type_name`` for images of ``shape`` (C, H, W).

    Raises:
        RegistryError: If there is no such core.
        ConfigError: If the images are too small for it, or an option cannot be met.
    """
    core: ImageCore = IMAGE_CORES.get(type_name)(shape, **options)
    return core
