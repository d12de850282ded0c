"""Everything flattened into one vector, then an MLP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.registry import TIMESTEP_ENCODERS
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.mlp import make_mlp, make_norm
from seqrl.models.normalizers import InputNormalizer
from seqrl.models.timestep_encoders.base import SECTION_KEY, TimestepEncoder, check_names, flat_entry, flat_width

MAX_AUTO_WIDTH = 2048
"""Width beyond which ``auto_scale`` raises no layer."""


@TIMESTEP_ENCODERS.register("mlp")
class MLPTimestepEncoder(TimestepEncoder):
    """Entries in the order of their names, flattened (categories as one-hot), then an MLP and a norm.

    Args:
        obs: Name -> spec of the observation entries.
        d_action: Width of the previous action, or 0.
        d_reward: 1 if the previous reward is read, else 0.
        num_layers: Hidden layers.
        d_hidden: Their width.
        d_output: Width of the output; None passes the inputs on without a layer.
        activation: After each hidden layer.
        norm: Of the output.
        normalize_inputs: Standardise all inputs by moving statistics.
        normalizer_rate: Their asymptotic step size.
        normalizer_min_std: What inputs are divided by that vary less.
        obs_keys: Entries to read; None reads all.
        auto_scale: Raise ``d_hidden`` to the width of the inputs, at most 2048.

    Raises:
        ConfigError: If ``obs_keys`` names no observation, or nothing is left to read.
    """

    def __init__(
        self,
        obs: Mapping[str, ObsSpec],
        d_action: int,
        d_reward: int,
        *,
        num_layers: int = 2,
        d_hidden: int = 512,
        d_output: int | None = 256,
        activation: str = "leaky_relu",
        norm: str = "layer",
        normalize_inputs: bool = True,
        normalizer_rate: float = 1e-4,
        normalizer_min_std: float = 0.0,
        obs_keys: Sequence[str] | None = None,
        auto_scale: bool = False,
    ) -> None:
        keys = obs.keys() if obs_keys is None else obs_keys
        check_names(f"{SECTION_KEY}.obs_keys", keys, obs)
        super().__init__({key: obs[key] for key in keys}, d_action, d_reward)
        d_input = sum(flat_width(spec) for spec in self.obs.values()) + self.d_side
        if d_input == 0:
            raise ConfigError(f"{SECTION_KEY}.obs_keys: {list(keys)} leaves nothing to read; null reads all entries")
        if auto_scale:
            d_hidden = max(d_hidden, min(d_input, MAX_AUTO_WIDTH))
        self.d_output = d_input if d_output is None else d_output
        normal = (d_input, normalizer_rate, normalizer_min_std)
        self.normalizer = InputNormalizer(*normal) if normalize_inputs else None
        sizes = (d_input, d_hidden, num_layers, self.d_output)
        self.mlp = nn.Identity() if d_output is None else make_mlp(*sizes, activation)
        self.norm = make_norm(norm, self.d_output)

    def forward(self, inputs: SeqInputs) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        x = self._features(inputs)
        if self.normalizer is not None:
            x = self.normalizer(x)
        y: Tensor = self.norm(self.mlp(x))
        return y

    def rarity(self, inputs: SeqInputs) -> Float[Tensor, "B L"] | None:
        """Return the mean over all numbers of the observations; None if they are not standardised."""
        width = sum(flat_width(spec) for spec in self.obs.values())
        if self.normalizer is None or width == 0:
            return None
        return self.normalizer.rarity(self._features(inputs))[..., :width].mean(-1)

    def stats(self, inputs: SeqInputs, mask: Bool[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return the sums for input normalisation."""
        return {} if self.normalizer is None else {"inputs": self.normalizer.stats(self._features(inputs), mask)}

    def update(self, stats: Mapping[str, Tensor]) -> None:
        """Move the input normalisation."""
        if self.normalizer is not None:
            self.normalizer.update(stats["inputs"])

    def _features(self, inputs: SeqInputs) -> Tensor:
        flat = [flat_entry(inputs.obs[key], spec) for key, spec in self.obs.items()]
        return torch.cat([*flat, *self.side_inputs(inputs)], dim=-1)
