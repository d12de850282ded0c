"""What every image core is, and which image sizes it can take."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
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
    def forward(
        self, x: Float[Tensor, "N C H W"], condition: Float[Tensor, "N D"] | None = None
    ) -> Float[Tensor, "N F"]:
        """Return flat features of images whose values are in [-1, 1].

        ``condition`` is given only if the core can be conditioned (:class:`ConvolutionalCore`).
        """


class ConvolutionalCore(ImageCore):
    """Layers that keep the image's layout, then a pooling. A subclass writes ``features``.

    After :meth:`condition_on`, feature maps are scaled and shifted by a linear function of a vector (FiLM): the last
    map, or those of ``map_channels`` if a subclass writes ``modulated_features``.

    Source: Perez et al. (2018), FiLM: visual reasoning with a general conditioning layer (arXiv 1709.07871).

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
        self.map_channels: tuple[int, ...] = (num_channels,)
        self.film: nn.ModuleList | None = None

    @abstractmethod
    def features(self, x: Float[Tensor, "N C H W"]) -> Float[Tensor, "N K h w"]:
        """Return the feature map."""

    def modulated_features(self, x: Float[Tensor, "N C H W"], films: Sequence[Tensor]) -> Float[Tensor, "N K h w"]:
        """Return the feature map, scaled and shifted by the last of ``films``, ``(N, 2 K)``."""
        return modulated(self.features(x), films[-1])

    def condition_on(self, d_condition: int) -> None:
        """Let a vector of width ``d_condition`` scale and shift the feature maps; it changes nothing at first."""
        self.film = nn.ModuleList(nn.Linear(d_condition, 2 * channels) for channels in self.map_channels)
        for layer in self.film:
            nn.init.zeros_(layer.weight)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(
        self, x: Float[Tensor, "N C H W"], condition: Float[Tensor, "N D"] | None = None
    ) -> Float[Tensor, "N F"]:
        """Return the pooled features; ``condition`` is what :meth:`condition_on` announced."""
        if self.film is None or condition is None:
            y: Tensor = self.pool(self.features(x))
        else:
            y = self.pool(self.modulated_features(x, [layer(condition) for layer in self.film]))
        return y


def modulated(x: Float[Tensor, "N K h w"], film: Float[Tensor, "N K2"]) -> Float[Tensor, "N K h w"]:
    """Return ``(1 + scale) x + shift``, with a scale and a shift for each channel."""
    scale, shift = film.unsqueeze(-1).unsqueeze(-1).chunk(2, dim=1)
    return torch.addcmul(shift, x, 1.0 + scale)


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
    """Return the pool that a core gets when its ``type`` is all that is given; flatten if it takes none."""
    parameter = inspect.signature(core).parameters.get("pool")
    return "flatten" if parameter is None else str(parameter.default)


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
