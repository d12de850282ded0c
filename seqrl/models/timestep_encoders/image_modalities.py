"""Modalities that are pictures: colours and distances."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float, Shaped
from torch import Tensor

from seqrl.core.obs_entry import Values
from seqrl.core.registry import MODALITIES, Choice
from seqrl.core.spaces import ObsSpec
from seqrl.models.timestep_encoders.images import Channels, ImageReader, Scale, is_image
from seqrl.models.timestep_encoders.modalities import Modality, to_unit


@MODALITIES.register("image")
class ImageModality(Modality):
    """An image: scaled to [-1, 1], randomized in training, a core, a linear layer.

    Args:
        name: Of the entry.
        spec: ``(C, H, W)``, ``(H, W, C)``, or ``(H, W)`` of uint8.
        core: Image core and its options.
        randomizers: Image randomizers and their options, in their order; at work in training only.
        channels: Which axis holds the channels; ``auto`` takes the one that is smaller than the two others.
        scale: ``pixels`` (uint8, or floats in [0, 1]), or ``none`` for numbers that are read as they are.
        film: Name of the entry whose embedding scales and shifts the core's feature maps.
        d_output: Width of the output.

    Raises:
        ConfigError: If the entry is no image, or the options do not fit it.
    """

    def __init__(
        self,
        name: str,
        spec: ObsSpec,
        *,
        core: Choice = ("nature", {}),
        randomizers: Sequence[Choice] = (),
        channels: Channels = "auto",
        scale: Scale = "pixels",
        film: str | None = None,
        d_output: int = 256,
    ) -> None:
        super().__init__(name, spec)
        if not is_image(spec):
            raise self.problem("type", "is not an image, which has three axes, or two of uint8; use 'vector'")
        self.d_output, self.film = d_output, film
        self.reader = ImageReader(
            spec,
            self.key,
            core=core,
            randomizers=randomizers,
            channels=channels,
            scale=scale,
            d_output=d_output,
        )
        self.allowed_values = self.reader.allowed_values

    def condition_on(self, d_condition: int) -> None:
        """Let an embedding of this width scale and shift the core's feature maps."""
        self.reader.condition_on(d_condition)

    def forward(
        self, x: Shaped[Tensor, "B L *shape"], condition: Float[Tensor, "B L C"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """Return the embeddings; ``condition`` is the embedding of the entry ``film``."""
        y: Tensor = self.reader(x, condition)
        return y


@MODALITIES.register("depth")
class DepthModality(Modality):
    """An image of distances: [0, max_depth] becomes [-1, 1]; what is not finite is as far as ``max_depth``.

    Args:
        name: Of the entry.
        spec: ``(H, W)``, ``(H, W, 1)`` or ``(1, H, W)`` numbers of any dtype.
        max_depth: Distance, in the entry's units (often metres for floats, millimetres for uint16), that is the limit.
        core: Image core and its options.
        randomizers: Image randomizers and their options, in their order; at work in training only, on depth in [0, 1].
        d_output: Width of the output.

    Raises:
        ConfigError: If the entry is no depth image, or the options do not fit it.
    """

    allowed_values: Values = "any"

    def __init__(
        self,
        name: str,
        spec: ObsSpec,
        *,
        max_depth: float,
        core: Choice = ("nature", {}),
        randomizers: Sequence[Choice] = (),
        d_output: int = 256,
    ) -> None:
        super().__init__(name, spec)
        shape = tuple(spec.shape)
        if len(shape) == 3 and 1 in (shape[0], shape[-1]):
            shape = shape[1:] if shape[0] == 1 else shape[:-1]
        if spec.nvec is not None or len(shape) != 2:
            raise self.problem("type", "is not a depth image, which has the shape (H, W), (H, W, 1) or (1, H, W)")
        self.max_depth, self.size, self.d_output = max_depth, shape, d_output
        self.reader = ImageReader(
            ObsSpec((1, *shape), "float32"),
            self.key,
            core=core,
            randomizers=randomizers,
            channels="first",
            scale="pixels",
            d_output=d_output,
        )

    def forward(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        unit = to_unit(x, self.max_depth).reshape(*x.shape[:2], 1, *self.size)
        y: Tensor = self.reader(unit)
        return y
