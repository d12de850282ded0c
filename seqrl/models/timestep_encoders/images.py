"""From image entries to vectors: the axis of the channels, the scale of the numbers, randomizers and a core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.obs_entry import Values
from seqrl.core.registry import Choice
from seqrl.core.spaces import ObsSpec
from seqrl.models.image_cores import ConvolutionalCore, build_image_core
from seqrl.models.image_randomizers import build_randomizers

Channels = Literal["auto", "first", "last"]
Scale = Literal["pixels", "none"]


def is_image(spec: ObsSpec) -> bool:
    """Tell whether an entry can be read as an image: three axes, or two of uint8, and no categories."""
    axes = len(spec.shape)
    return spec.nvec is None and (axes == 3 or (axes == 2 and spec.dtype == "uint8"))


def channel_axis(shape: Sequence[int]) -> Literal["first", "last"] | None:
    """Return which axis of three is smaller than both others, or None if it is neither the first nor the last."""
    first, middle, last = shape
    if first < min(middle, last):
        return "first"
    return "last" if last < min(first, middle) else None


def _planes(shape: Sequence[int], channels: Literal["first", "last"]) -> tuple[int, int, int]:
    """Return channels, height and width of an image of that shape."""
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    return (shape[0], shape[1], shape[2]) if channels == "first" else (shape[2], shape[0], shape[1])


class ImageReader(nn.Module):
    """Images to vectors: scaled to [-1, 1], randomized in training, a core, and a linear layer.

    ``uint8`` images stay what they are until they are on the device; x becomes ``x / 128 - 1``. Float images lie in
    [0, 1] and become ``2 x - 1``. Randomizers work before that, on numbers in [0, 1]. An image whose channels are last
    keeps its order in memory, in which convolutions are no slower.

    Args:
        spec: Of the entry: ``(C, H, W)``, ``(H, W, C)``, or ``(H, W)`` for one channel.
        key: Where a run file sets the options below, for messages.
        core: Image core and its options.
        randomizers: Image randomizers and their options, in their order.
        channels: Which axis holds the channels; ``auto`` takes the one that is smaller than the two others.
        scale: ``pixels``, or ``none`` for numbers that are read as they are (symbolic grids).
        d_output: Width of the output.

    Raises:
        ConfigError: If the entry, the core and the options do not fit.
    """

    def __init__(
        self,
        spec: ObsSpec,
        key: str,
        *,
        core: Choice,
        randomizers: Sequence[Choice],
        channels: Channels,
        scale: Scale,
        d_output: int,
    ) -> None:
        super().__init__()
        self.channels = self._resolved(spec, key, channels)
        self.scale = scale
        self._check_scale(spec, key, [name for name, _ in randomizers])
        self.whole, self.top = (255.0, 255.0 / 128.0) if spec.dtype == "uint8" else (1.0, 2.0)
        planes = _planes(spec.shape, self.channels)
        try:
            self.randomizers = build_randomizers(list(randomizers), planes) if randomizers else None
        except ConfigError as error:
            raise ConfigError(f"{key}.randomizers: {error}") from error
        if self.randomizers is not None:
            planes = self.randomizers.output_shape
        try:
            self.core = build_image_core(*core, planes)
        except ConfigError as error:
            raise ConfigError(f"{key}.core: {error}") from error
        self.linear = nn.Linear(self.core.d_output, d_output)
        self.key = key

    @property
    def allowed_values(self) -> Values:
        """Which numbers an image may hold."""
        return "unit" if self.scale == "pixels" and self.whole == 1.0 else "finite"

    def condition_on(self, d_condition: int) -> None:
        """Let a vector of width ``d_condition`` scale and shift the core's feature maps.

        Raises:
            ConfigError: If the core has none.
        """
        if not isinstance(self.core, ConvolutionalCore):
            raise ConfigError(f"{self.key}.film: the core {type(self.core).__name__} has no feature maps to modulate")
        self.core.condition_on(d_condition)

    def forward(
        self, x: Shaped[Tensor, "B L *shape"], condition: Float[Tensor, "B L C"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """Return one vector per image, the mean over all crops where there are several."""
        if x.dim() == 4:
            x = x.unsqueeze(2)
        elif self.channels == "last":
            x = x.movedim(-1, 2)
        numbers = self._numbers(x)
        num_views = numbers.shape[0] // x.shape[0] if self.training else 1
        if condition is not None:
            condition = condition.repeat_interleave(num_views, dim=0).flatten(0, 1)
        flat = numbers.flatten(0, 1)
        features = self.core(flat) if condition is None else self.core(flat, condition)
        y: Tensor = self.linear(features).unflatten(0, numbers.shape[:2])
        return y if num_views == 1 else y.unflatten(0, (x.shape[0], num_views)).mean(dim=1)

    def _numbers(self, x: Tensor) -> Tensor:
        """Return what the core reads, ``(B V, L, C, H, W)`` float32 with V views of each window, one after another."""
        if self.scale == "none":
            return x.float()
        numbers = x.to(torch.float32, copy=True)
        if self.randomizers is None:
            return numbers.mul_(self.top / self.whole).sub_(1.0)
        unit: Tensor = self.randomizers(numbers.div_(self.whole))
        return unit.mul(self.top).sub_(1.0)

    @staticmethod
    def _resolved(spec: ObsSpec, key: str, channels: Channels) -> Literal["first", "last"]:
        if channels != "auto" or len(spec.shape) == 2:
            return "last" if channels == "last" else "first"
        axis = channel_axis(spec.shape)
        if axis is None:
            raise ConfigError(
                f"{key}.channels: 'auto' cannot tell which axis of an image of shape {list(spec.shape)} holds the "
                f"channels; set {key}.channels to 'first' or 'last'"
            )
        return axis

    def _check_scale(self, spec: ObsSpec, key: str, randomizers: list[str]) -> None:
        if self.scale == "none" and randomizers:
            raise ConfigError(
                f"{key}.randomizers: {', '.join(randomizers)} work on pixels, but {key}.scale is 'none'; "
                "leave them out, or set scale to 'pixels'"
            )
        if self.scale == "pixels" and spec.dtype != "uint8" and not spec.dtype.startswith("float"):
            raise ConfigError(
                f"{key}.scale: 'pixels' reads uint8 (0 to 255) or floats in [0, 1], but the entry is {spec.dtype}; "
                f"set {key}.scale to 'none' to read the numbers as they are"
            )
