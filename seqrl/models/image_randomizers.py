"""What alters images in training, so that a policy does not cling to their details.

A window is altered in one way over all its frames: a memory must not see the world jump.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.registry import IMAGE_RANDOMIZERS


class ImageRandomizer(nn.Module, ABC):
    """Base of all randomizers. Register a subclass with ``IMAGE_RANDOMIZERS.register(name)``.

    Random in training, and the same for all frames of a window; deterministic in evaluation. What it draws comes from
    torch's global generator.

    Args:
        shape: Channels, height and width of the images.
        share: Share of the windows that are altered in training.

    Attributes:
        output_shape: Channels, height and width of what comes out.
    """

    output_shape: tuple[int, int, int]

    def __init__(self, shape: tuple[int, int, int], share: float) -> None:
        super().__init__()
        self.shape = shape
        self.output_shape = shape
        self.share = share

    def forward(self, x: Float[Tensor, "B L C H W"]) -> Float[Tensor, "BK L C Ho Wo"]:
        """Return the images, altered in training; values are in [0, 1] before and after."""
        if not self.training:
            return self.plain(x)
        return self.randomize(x, torch.rand(len(x), device=x.device) < self.share)

    def plain(self, x: Float[Tensor, "B L C H W"]) -> Float[Tensor, "B L C Ho Wo"]:
        """Return the images as they are in evaluation, and in the windows that are left alone."""
        return x

    @abstractmethod
    def randomize(self, x: Float[Tensor, "B L C H W"], is_altered: Bool[Tensor, " B"]) -> Float[Tensor, "BK L C Ho Wo"]:
        """Return the images, altered where ``is_altered`` and plain elsewhere."""


@IMAGE_RANDOMIZERS.register("shift")
class Shift(ImageRandomizer):
    """Moves by up to ``pad`` whole pixels in both directions; what comes into sight repeats the edge.

    Equal to padding by repetition and cutting the original size out of it, for any aspect ratio.

    Source: Yarats et al. (2021), DrQ-v2 (arXiv 2107.09645).
    """

    def __init__(self, shape: tuple[int, int, int], *, pad: int = 4, share: float = 0.75) -> None:
        super().__init__(shape, share)
        self.pad = pad

    def randomize(self, x: Float[Tensor, "B L C H W"], is_altered: Bool[Tensor, " B"]) -> Float[Tensor, "B L C H W"]:
        """Return the moved images."""
        _, height, width = self.shape
        shift_2B = torch.randint(-self.pad, self.pad + 1, (2, len(x)), device=x.device) * is_altered
        rows_BH = (shift_2B[0].unsqueeze(1) + torch.arange(height, device=x.device)).clamp(0, height - 1)
        cols_BW = (shift_2B[1].unsqueeze(1) + torch.arange(width, device=x.device)).clamp(0, width - 1)
        return take_pixels(x, rows_BH, cols_BW)


@IMAGE_RANDOMIZERS.register("crop")
class Crop(ImageRandomizer):
    """Cuts out a part of ``height`` x ``width``: anywhere in training, the centre in evaluation.

    Where the centre lies between two pixels, the part is the one nearer to the top and to the left. With several parts
    (``num_crops`` K), each window becomes K windows, one after another; who reads them takes the mean.

    Raises:
        ConfigError: If the part is larger than the images.
    """

    def __init__(
        self, shape: tuple[int, int, int], *, height: int, width: int, num_crops: int = 1, share: float = 1.0
    ) -> None:
        super().__init__(shape, share)
        self.num_crops = num_crops
        given = {"height": (height, shape[1]), "width": (width, shape[2])}
        wrong = [f"{k} must be in 1 to {most}, got {value}" for k, (value, most) in given.items() if value > most]
        if wrong:
            raise ConfigError(
                f"image randomizer 'crop': images are {shape[1]} x {shape[2]} (height x width), so {'; '.join(wrong)}"
            )
        self.output_shape = (shape[0], height, width)
        self.room = (shape[1] - height, shape[2] - width)

    def plain(self, x: Float[Tensor, "B L C H W"]) -> Float[Tensor, "B L C Ho Wo"]:
        """Return the centres."""
        (top, left), (_, height, width) = (room // 2 for room in self.room), self.output_shape
        return x[..., top : top + height, left : left + width]

    def randomize(self, x: Float[Tensor, "B L C H W"], is_altered: Bool[Tensor, " B"]) -> Float[Tensor, "BK L C Ho Wo"]:
        """Return the parts."""
        if self.num_crops > 1:
            x, is_altered = (y.repeat_interleave(self.num_crops, dim=0) for y in (x, is_altered))
        (rows, cols), (_, height, width) = self.room, self.output_shape
        top_B = torch.randint(rows + 1, (len(x),), device=x.device).where(is_altered, rows // 2)
        left_B = torch.randint(cols + 1, (len(x),), device=x.device).where(is_altered, cols // 2)
        rows_BH = top_B.unsqueeze(1) + torch.arange(height, device=x.device)
        cols_BW = left_B.unsqueeze(1) + torch.arange(width, device=x.device)
        return take_pixels(x, rows_BH, cols_BW)


@IMAGE_RANDOMIZERS.register("color")
class ColorJitter(ImageRandomizer):
    """Changes brightness, contrast, saturation and hue of RGB images, in this order, each kept within [0, 1].

    The four changes and their ranges are those of torchvision's ``ColorJitter``, which takes them in random order.

    Args:
        shape: Channels, height and width of the images.
        brightness: The factor is uniform in [max(0, 1 - x), 1 + x]; likewise for contrast and saturation.
        contrast: Around the mean grey of each frame.
        saturation: Around the grey of each pixel.
        hue: Uniform in [-x, x], in turns of the colour wheel, at most 0.5.
        share: Share of the windows that are altered in training.

    Raises:
        ConfigError: If the images have not three channels.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        *,
        brightness: float = 0.3,
        contrast: float = 0.3,
        saturation: float = 0.3,
        hue: float = 0.3,
        share: float = 1.0,
    ) -> None:
        super().__init__(shape, share)
        if shape[0] != 3:
            raise ConfigError(
                f"image randomizer 'color' needs images of 3 channels (red, green, blue), got {shape[0]}; "
                "leave it out for depth, grey or stacked images"
            )
        self.low = [max(0.0, 1 - brightness), max(0.0, 1 - contrast), max(0.0, 1 - saturation), -hue]
        self.high = [1 + brightness, 1 + contrast, 1 + saturation, hue]

    def randomize(self, x: Float[Tensor, "B L C H W"], is_altered: Bool[Tensor, " B"]) -> Float[Tensor, "B L C H W"]:
        """Return the images in other colours."""
        draws = torch.rand(len(x), 4, device=x.device, dtype=x.dtype)
        low, high = (draws.new_tensor(end) for end in (self.low, self.high))
        y = jitter_color(x, low + (high - low) * draws)
        return torch.where(is_altered[:, None, None, None, None], y, x)


@IMAGE_RANDOMIZERS.register("noise")
class GaussianNoise(ImageRandomizer):
    """Adds Gaussian noise to every pixel and channel of every frame, in units of the [0, 1] range."""

    def __init__(
        self, shape: tuple[int, int, int], *, mean: float = 0.0, std: float = 0.05, share: float = 1.0
    ) -> None:
        super().__init__(shape, share)
        self.mean, self.std = mean, std

    def randomize(self, x: Float[Tensor, "B L C H W"], is_altered: Bool[Tensor, " B"]) -> Float[Tensor, "B L C H W"]:
        """Return the noisy images."""
        y = (x + self.mean + self.std * torch.randn_like(x)).clamp(0, 1)
        return torch.where(is_altered[:, None, None, None, None], y, x)


class RandomizerChain(nn.Module):
    """Randomizers, one after another.

    Args:
        randomizers: Each made for the output shape of the one before.
        shape: Channels, height and width of the images.

    Attributes:
        output_shape: Channels, height and width of what comes out.
    """

    def __init__(self, randomizers: Sequence[ImageRandomizer], shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.randomizers = nn.ModuleList(randomizers)
        self.output_shape = randomizers[-1].output_shape if randomizers else shape

    def forward(self, x: Float[Tensor, "B L C H W"]) -> Float[Tensor, "BK L C Ho Wo"]:
        """Return the images, altered in training; values are in [0, 1] before and after."""
        for randomizer in self.randomizers:
            x = randomizer(x)
        return x


def build_randomizers(specs: Sequence[tuple[str, dict[str, Any]]], shape: tuple[int, int, int]) -> RandomizerChain:
    """Return registered randomizers in the order given; of none, the identity.

    Args:
        specs: Name and options of each.
        shape: Channels, height and width of the images.

    Raises:
        RegistryError: If there is no randomizer of a name.
        ConfigError: If one cannot take the images.
    """
    randomizers: list[ImageRandomizer] = []
    size = shape
    for name, options in specs:
        randomizers.append(IMAGE_RANDOMIZERS.get(name)(size, **options))
        size = randomizers[-1].output_shape
    return RandomizerChain(randomizers, shape)


# ------------------------------------------------------------------------------------------------ formulas
def take_pixels(
    x: Float[Tensor, "B L C H W"], rows: Int[Tensor, "B Ho"], cols: Int[Tensor, "B Wo"]
) -> Float[Tensor, "B L C Ho Wo"]:
    """Return the given rows and columns of every frame of each window."""
    num_windows, length, channels, _, width = x.shape
    rows_shape = (num_windows, length, channels, rows.shape[1], width)
    x = x.gather(3, rows[:, None, None, :, None].expand(rows_shape))
    return x.gather(4, cols[:, None, None, None, :].expand(*x.shape[:4], cols.shape[1]))


def jitter_color(x: Float[Tensor, "B L 3 H W"], amounts: Float[Tensor, "B 4"]) -> Float[Tensor, "B L 3 H W"]:
    """Return the images in other colours.

    Args:
        x: Red, green and blue in [0, 1].
        amounts: Factors >= 0 of brightness, contrast and saturation, and the turn of the hue in [-0.5, 0.5].

    Source: torchvision's ``adjust_brightness``, ``adjust_contrast``, ``adjust_saturation`` and ``adjust_hue``.
    """
    brightness, contrast, saturation, hue = amounts[:, :, None, None, None, None].unbind(1)
    x = (brightness * x).clamp(0, 1)
    x = _blend(x, _grey(x).mean(dim=(-2, -1), keepdim=True), contrast)
    x = _blend(x, _grey(x), saturation)
    return turn_hue(x, hue)


def turn_hue(x: Float[Tensor, "B L 3 H W"], turn: Float[Tensor, "B 1 1 1 1"]) -> Float[Tensor, "B L 3 H W"]:
    """Return the images with the hue turned by a share of the colour wheel; value and chroma stay.

    The hue in sixths of the wheel follows Smith (1978); the way back is the closed form of its six cases.
    """
    red, green, blue = x.split(1, dim=2)
    high, low = x.amax(2, keepdim=True), x.amin(2, keepdim=True)
    chroma = high - low
    scale = torch.where(chroma > 0, chroma, 1.0)
    sixths = torch.where(
        high == red,
        (green - blue) / scale,
        torch.where(high == green, 2 + (blue - red) / scale, 4 + (red - green) / scale),
    )
    start = torch.tensor([5.0, 3.0, 1.0], device=x.device, dtype=x.dtype).reshape(3, 1, 1)
    k = (start + sixths + 6 * turn) % 6
    dip: Tensor = torch.minimum(k, 4 - k).clamp(0, 1)
    return (high - chroma * dip).clamp(0, 1)


def _grey(x: Tensor) -> Tensor:
    red, green, blue = x.split(1, dim=2)
    grey: Tensor = 0.2989 * red + 0.587 * green + 0.114 * blue
    return grey


def _blend(x: Tensor, other: Tensor, share: Tensor) -> Tensor:
    return (share * x + (1 - share) * other).clamp(0, 1)
