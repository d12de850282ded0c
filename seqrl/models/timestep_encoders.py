"""From what is seen at one step to one vector."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqrl.core.registry import TIMESTEP_ENCODERS
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs
from seqrl.models.mlp import make_mlp, make_norm
from seqrl.models.normalizers import InputNormalizer


class TimestepEncoder(nn.Module, ABC):
    """Base of all timestep encoders. Register a subclass with ``TIMESTEP_ENCODERS.register(name)``.

    Args:
        obs: Name -> spec of the observation entries to read.
        d_action: Width of the previous action; 0 if the policy does not read it.
        d_reward: 1 if the policy reads the previous reward, else 0.
    """

    d_output: int

    def __init__(self, obs: Mapping[str, ObsSpec], d_action: int, d_reward: int) -> None:
        super().__init__()
        self.obs = dict(sorted(obs.items()))
        self.d_action = d_action
        self.d_reward = d_reward

    @abstractmethod
    def forward(self, inputs: SeqInputs) -> Float[Tensor, "B L D"]:
        """Return one vector of width ``d_output`` per input."""

    def stats(self, inputs: SeqInputs, mask: Bool[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return sums over the real inputs that :meth:`update` needs; none by default."""
        return {}

    def update(self, stats: Mapping[str, Tensor]) -> None:
        """Move statistics after a gradient step."""

    def side_inputs(self, inputs: SeqInputs) -> list[Tensor]:
        """Return the previous reward and action ``(B, L, n)``, as far as the policy reads them."""
        side = [inputs.prev_reward.unsqueeze(-1)] if self.d_reward else []
        return [*side, inputs.prev_action] if self.d_action else side


@TIMESTEP_ENCODERS.register("mlp")
class MLPTimestepEncoder(TimestepEncoder):
    """Entries in the order of their names, flattened (categories as one-hot), then an MLP and a norm."""

    def __init__(
        self,
        obs: Mapping[str, ObsSpec],
        d_action: int,
        d_reward: int,
        *,
        num_layers: int = 2,
        d_hidden: int = 512,
        d_output: int = 256,
        activation: str = "leaky_relu",
        norm: str = "layer",
        normalize_inputs: bool = True,
    ) -> None:
        super().__init__(obs, d_action, d_reward)
        d_input = sum(flat_width(spec) for spec in self.obs.values()) + d_action + d_reward
        self.d_output = d_output
        self.normalizer = InputNormalizer(d_input) if normalize_inputs else None
        self.mlp = make_mlp(d_input, d_hidden, num_layers, d_output, activation)
        self.norm = make_norm(norm, d_output)

    def forward(self, inputs: SeqInputs) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        x = self._features(inputs)
        if self.normalizer is not None:
            x = self.normalizer(x)
        y: Tensor = self.norm(self.mlp(x))
        return y

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


def flat_width(spec: ObsSpec) -> int:
    """Return the width of an observation entry as a vector; categories are one-hot."""
    return sum(spec.nvec) if spec.nvec is not None else math.prod(spec.shape)


def flat_entry(x: Tensor, spec: ObsSpec) -> Float[Tensor, "B L W"]:
    """Return an observation entry as float32 vectors; categories are one-hot."""
    if spec.nvec is None:
        return x.reshape(*x.shape[:2], -1).float()
    index = x.reshape(*x.shape[:2], -1).long()
    parts = [nn.functional.one_hot(index[..., i], n) for i, n in enumerate(spec.nvec)]
    return torch.cat(parts, dim=-1).float()


def build_timestep_encoder(name: str, options: dict[str, Any], *sizes: Any) -> TimestepEncoder:
    """Return the registered encoder ``name``, made with run-time sizes and options."""
    encoder: TimestepEncoder = TIMESTEP_ENCODERS.get(name)(*sizes, **options)
    return encoder
