"""Any number of entries, each read in its own way, and fused."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.obs_entry import Values
from seqrl.core.registry import MODALITIES, TIMESTEP_ENCODERS, Choice
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.mlp import make_mlp, make_norm
from seqrl.models.timestep_encoders.base import SECTION_KEY, TimestepEncoder, check_names
from seqrl.models.timestep_encoders.images import channel_axis
from seqrl.models.timestep_encoders.modalities import Modality
from seqrl.models.two_hot import symlog

SMALLEST_NATURE, SMALLEST_IMAGE = 36, 15
"""Height and width, in pixels, from which on an image is read by the core ``nature``; by ``drq``. Below it is flat."""


@TIMESTEP_ENCODERS.register("multimodal")
class MultimodalTimestepEncoder(TimestepEncoder):
    """``norm(MLP([modality(entry) for all entries by name, symlog(side input)]))``.

    An entry that ``modalities`` does not name is an ``image`` if it looks like one, and a ``vector`` otherwise
    (:func:`default_choice`).

    Args:
        obs: Name -> spec of the observation entries.
        d_action: Width of the previous action, or 0.
        d_reward: 1 if the previous reward is read, else 0.
        modalities: Entry -> modality and its options.
        num_layers: Hidden layers after the fusion.
        d_hidden: Their width.
        d_output: Width of the output.
        activation: After each hidden layer.
        norm: Of the output.

    Raises:
        ConfigError: If ``modalities`` names no observation, a modality does not fit its entry, or one depends on an
            entry that depends on another.
    """

    def __init__(
        self,
        obs: Mapping[str, ObsSpec],
        d_action: int,
        d_reward: int,
        *,
        modalities: Mapping[str, Choice] = MappingProxyType({}),
        num_layers: int = 1,
        d_hidden: int = 512,
        d_output: int = 256,
        activation: str = "leaky_relu",
        norm: str = "layer",
    ) -> None:
        super().__init__(obs, d_action, d_reward)
        check_names(f"{SECTION_KEY}.modalities", modalities, self.obs)
        chosen = {name: modalities.get(name, default_choice(spec)) for name, spec in self.obs.items()}
        self.modalities = nn.ModuleList(build_modality(*chosen[name], name, spec) for name, spec in self.obs.items())
        self._condition()
        d_input = sum(modality.d_output for modality in self._named().values()) + self.d_side
        if d_input == 0:
            raise ConfigError(f"{SECTION_KEY}.type: 'multimodal' has no observation entry to read")
        self.d_output = d_output
        self.mlp = make_mlp(d_input, d_hidden, num_layers, d_output, activation)
        self.norm = make_norm(norm, d_output)

    @property
    def allowed_values(self) -> dict[str, Values]:
        """Which numbers the entries may hold."""
        return {name: modality.allowed_values for name, modality in self._named().items()}

    def forward(self, inputs: SeqInputs) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        parts = list(self._embedded(inputs).values())
        if self.d_side:
            side = symlog(self.side(inputs))
            parts.append(side.to(parts[0].dtype) if parts else side)
        y: Tensor = self.norm(self.mlp(torch.cat(parts, dim=-1)))
        return y

    def rarity(self, inputs: SeqInputs) -> Float[Tensor, "B L"] | None:
        """Return the mean over all numbers whose modality knows it; None if there is none."""
        found = [modality.rarity(inputs.obs[name]) for name, modality in self._named().items()]
        known = [each for each in found if each is not None]
        return torch.cat(known, dim=-1).mean(-1) if known else None

    def stats(self, inputs: SeqInputs, mask: Bool[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return the sums that the modalities ask for, by the number of the entry and the modality's own name."""
        return {
            f"{index}/{key}": value
            for index, (name, modality) in enumerate(self._named().items())
            for key, value in modality.stats(inputs.obs[name], mask).items()
        }

    def update(self, stats: Mapping[str, Tensor]) -> None:
        """Move the statistics of the modalities."""
        for index, modality in enumerate(self._named().values()):
            prefix = f"{index}/"
            modality.update({key[len(prefix) :]: value for key, value in stats.items() if key.startswith(prefix)})

    def _embedded(self, inputs: SeqInputs) -> dict[str, Tensor]:
        """Return the embedding of each entry; those on which others depend come first."""
        found: dict[str, Tensor] = {}
        for name, modality in sorted(self._named().items(), key=lambda item: item[1].film is not None):
            seen = inputs.obs[name]
            found[name] = modality(seen) if modality.film is None else modality(seen, found[modality.film])
        return {name: found[name] for name in self.obs}

    def _condition(self) -> None:
        """Tell the modalities that depend on another one how wide it is."""
        named = self._named()
        for modality in named.values():
            if (other := modality.film) is None:
                continue
            check_names(f"{modality.key}.film", [other], self.obs)
            if named[other].film is not None:
                raise ConfigError(
                    f"{modality.key}.film: {other!r} depends on another entry itself, and must not: name one that is "
                    "read alone"
                )
            modality.condition_on(named[other].d_output)  # type: ignore[operator]

    def _named(self) -> dict[str, Modality]:
        return dict(zip(self.obs, self.modalities, strict=True))  # type: ignore[arg-type]


def build_modality(kind: str, options: Mapping[str, object], name: str, spec: ObsSpec) -> Modality:
    """Return the registered modality ``kind`` for the entry ``name``."""
    modality: Modality = MODALITIES.get(kind)(name, spec, **options)
    return modality


def default_choice(spec: ObsSpec) -> Choice:
    """Return the modality of an entry that the user has not named: ``image`` with a core for its size, or ``vector``.

    An image has three axes of uint8 or of floats, one of them for the channels, and at least 15 x 15 pixels.
    """
    is_picture = spec.nvec is None and len(spec.shape) == 3 and channel_axis(spec.shape) is not None
    if is_picture and (spec.dtype == "uint8" or spec.dtype.startswith("float")):
        size = sorted(spec.shape)[1]
        if size >= SMALLEST_IMAGE:
            return "image", {"core": ("nature" if size >= SMALLEST_NATURE else "drq", {})}
    return "vector", {}
