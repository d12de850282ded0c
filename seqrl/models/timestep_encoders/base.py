"""The contract of every timestep encoder, and what several of them need."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqrl.core.errors import ConfigError, did_you_mean
from seqrl.core.obs_entry import Values
from seqrl.core.registry import TIMESTEP_ENCODERS
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqInputs

SECTION_KEY = "observation.timestep_encoder"
"""Where a run file sets a timestep encoder."""


class TimestepEncoder(nn.Module, ABC):
    """Base of all timestep encoders. Register a subclass with ``TIMESTEP_ENCODERS.register(name)``.

    The forward pass writes no buffer; statistics are collected by :meth:`stats` and move in :meth:`update`.

    Args:
        obs: Name -> spec of the observation entries to read.
        d_action: Width of the previous action; 0 if the policy does not read it (``observation.use_prev_action``).
        d_reward: 1 if the policy reads the previous reward (``observation.use_prev_reward``), else 0.

    Attributes:
        d_output: Width of the output.
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

    def rarity(self, inputs: SeqInputs) -> Float[Tensor, "B L"] | None:
        """Return how unusual observations are, about 1 on average; None where that is not known.

        By default it is not; encoders that standardise vectors return the mean of their squared standard scores.
        """
        return None

    @property
    def allowed_values(self) -> dict[str, Values]:
        """Which numbers an entry may hold, where that is more than to be finite."""
        return {}

    @property
    def d_side(self) -> int:
        """Width of the side input: the previous reward and action, as far as the policy reads them."""
        return self.d_reward + self.d_action

    def side_inputs(self, inputs: SeqInputs) -> list[Tensor]:
        """Return the previous reward and action ``(B, L, n)``, as far as the policy reads them."""
        side = [inputs.prev_reward.unsqueeze(-1)] if self.d_reward else []
        return [*side, inputs.prev_action] if self.d_action else side

    def side(self, inputs: SeqInputs) -> Float[Tensor, "B L S"]:
        """Return the side input as one tensor of width ``d_side``, which must not be 0."""
        return torch.cat(self.side_inputs(inputs), dim=-1)


def values_read(nets: nn.Module) -> dict[str, Values]:
    """Return which numbers the entries may hold that the timestep encoders among some networks read."""
    encoders = [net for net in nets.modules() if isinstance(net, TimestepEncoder)]
    return {name: values for encoder in encoders for name, values in encoder.allowed_values.items()}


def check_names(key: str, names: Iterable[str], obs: Mapping[str, ObsSpec]) -> None:
    """Check that ``names``, set at ``key`` of a run file, are observation entries.

    Raises:
        ConfigError: That names the unknown ones, and the nearest entry of each.
    """
    unknown = [f"unknown observation {name!r}{did_you_mean(name, obs)}" for name in sorted(set(names) - obs.keys())]
    if unknown:
        raise ConfigError(f"{key}: {', '.join(unknown)}; the policy observes {described(obs)}")


def described(obs: Mapping[str, ObsSpec]) -> str:
    """Return the entries with dtype and shape, for an error message."""
    return ", ".join(f"{name} ({spec.dtype} {list(spec.shape)})" for name, spec in obs.items()) or "nothing"


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
