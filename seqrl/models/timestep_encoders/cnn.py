"""One image and the side input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.obs_entry import Values
from seqrl.core.registry import TIMESTEP_ENCODERS, Choice
from seqrl.core.spaces import MASK_KEY, ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.mlp import make_activation, make_norm
from seqrl.models.timestep_encoders.base import SECTION_KEY, TimestepEncoder, check_names, described
from seqrl.models.timestep_encoders.images import Channels, ImageReader, Scale, is_image
from seqrl.models.two_hot import symlog


@TIMESTEP_ENCODERS.register("cnn")
class CNNTimestepEncoder(TimestepEncoder):
    """``norm(W3 act([W1 core(image), W2 symlog(side input)]))``; no moving statistics.

    The policy observes nothing but the image, and perhaps an ``action_mask``, which is not read here.

    Args:
        obs: Name -> spec of the observation entries.
        d_action: Width of the previous action, or 0.
        d_reward: 1 if the previous reward is read, else 0.
        image_key: The entry to read; None takes the only image.
        channels: Which axis holds the channels; ``auto`` takes the one that is smaller than the two others.
        core: Image core and its options.
        randomizers: Image randomizers and their options, in their order; at work in training only.
        scale: ``pixels`` (uint8, or floats in [0, 1]), or ``none`` for numbers that are read as they are.
        d_image: Width of the image's share.
        d_side: Width of the side input's share.
        d_output: Width of the output.
        activation: Between the two.
        norm: Of the output.

    Raises:
        ConfigError: If there is no such image, or anything beside it.
    """

    def __init__(
        self,
        obs: Mapping[str, ObsSpec],
        d_action: int,
        d_reward: int,
        *,
        image_key: str | None = None,
        channels: Channels = "auto",
        core: Choice = ("nature", {}),
        randomizers: Sequence[Choice] = (),
        scale: Scale = "pixels",
        d_image: int = 256,
        d_side: int = 12,
        d_output: int = 256,
        activation: str = "leaky_relu",
        norm: str = "layer",
    ) -> None:
        image_key = _chosen_image(obs, image_key)
        super().__init__({image_key: obs[image_key]}, d_action, d_reward)
        self.image_key = image_key
        self.d_output = d_output
        self.image = ImageReader(
            obs[image_key],
            SECTION_KEY,
            core=core,
            randomizers=randomizers,
            channels=channels,
            scale=scale,
            d_output=d_image,
        )
        self.side_linear = nn.Linear(self.d_side, d_side) if self.d_side else None
        self.activation = make_activation(activation)
        self.output = nn.Linear(d_image + (d_side if self.d_side else 0), d_output)
        self.norm = make_norm(norm, d_output)

    @property
    def allowed_values(self) -> dict[str, Values]:
        """Which numbers the image may hold."""
        return {self.image_key: self.image.allowed_values}

    def forward(self, inputs: SeqInputs) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        x: Tensor = self.image(inputs.obs[self.image_key])
        if self.side_linear is not None:
            side = self.side_linear(symlog(self.side(inputs)))
            x = torch.cat([x, side.to(x.dtype)], dim=-1)
        y: Tensor = self.norm(self.output(self.activation(x)))
        return y


def _chosen_image(obs: Mapping[str, ObsSpec], image_key: str | None) -> str:
    """Return the name of the image to read, which has to be all that the policy observes."""
    images = [name for name, spec in obs.items() if is_image(spec)]
    if image_key is None:
        image_key = _only_image(obs, images)
    check_names(f"{SECTION_KEY}.image_key", [image_key], obs)
    if image_key not in images:
        raise ConfigError(
            f"{SECTION_KEY}.image_key: {image_key!r} is not an image (three axes, or two of uint8) but "
            f"{described({image_key: obs[image_key]})}; "
            + (f"images: {', '.join(images)}" if images else "there is no image: use timestep_encoder.type 'mlp'")
        )
    others = {name: spec for name, spec in obs.items() if name not in (image_key, MASK_KEY)}
    if others:
        raise ConfigError(
            f"{SECTION_KEY}.type: 'cnn' reads the image {image_key!r} alone, but the policy also observes "
            f"{described(others)}; use type 'multimodal', or set observation.keys to [\"{image_key}\"]"
        )
    return image_key


def _only_image(obs: Mapping[str, ObsSpec], images: list[str]) -> str:
    if not images:
        raise ConfigError(
            f"{SECTION_KEY}.type: 'cnn' reads an image (three axes, or two of uint8), but the policy observes "
            f"{described(obs)}; use type 'mlp' or 'multimodal', or stack frames along the channels"
        )
    if len(images) > 1:
        raise ConfigError(
            f"{SECTION_KEY}.image_key: null means the only image, but there are {', '.join(images)}; use type "
            "'multimodal' for all of them, or set observation.keys to one"
        )
    return images[0]
