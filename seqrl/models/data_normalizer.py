"""Scaling of observations and actions by fixed statistics of the training data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqrl.core.errors import CheckpointError
from seqrl.core.spaces import ObsSpec
from seqrl.core.types import ColumnStats

Scaling = Literal["none", "min_max", "gaussian"]

MIN_SPREAD = 1e-6
"""A feature that varies less is only centred."""


def is_scalable(spec: ObsSpec) -> bool:
    """Tell whether an observation entry is scaled by the data: a number or a vector, neither categories nor bytes."""
    return spec.nvec is None and len(spec.shape) <= 1 and spec.dtype not in ("uint8", "bool")


class Affine(nn.Module):
    """``(x - offset) / scale`` with fixed numbers per feature.

    Args:
        width: Features.

    Attributes:
        is_set: Whether the numbers are known; they come from :meth:`set`, or from a checkpoint.
    """

    offset: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("offset", torch.full((width,), torch.nan))
        self.register_buffer("scale", torch.full((width,), torch.nan))
        self.is_set = False

    def set(self, offset: Any, scale: Any) -> None:
        """Take the numbers; a scale below 1e-6 becomes 1."""
        scale = torch.as_tensor(scale).reshape(-1).double()
        self.offset.copy_(torch.as_tensor(offset).reshape(-1))
        self.scale.copy_(torch.where(scale.abs() < MIN_SPREAD, torch.ones_like(scale), scale))
        self.is_set = True

    def forward(self, x: Float[Tensor, "*lead D"]) -> Float[Tensor, "*lead D"]:
        """Return scaled features."""
        return (x - self.offset) / self.scale

    def inverse(self, x: Float[Tensor, "*lead D"]) -> Float[Tensor, "*lead D"]:
        """Return features in their own units."""
        return x * self.scale + self.offset

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)  # type: ignore[no-untyped-call]
        self.is_set = bool(torch.isfinite(self.scale).all())


class DataNormalizer(nn.Module):
    """Scales what a policy sees and does; its statistics are buffers, so they travel with the weights.

    ``min_max`` maps the data's range to [-1, 1], ``gaussian`` its mean to 0 and its standard deviation to 1, feature by
    feature. Images, categories and everything with more than one dimension stay as they are.

    Args:
        obs: Observation entries of the policy.
        d_action: Width of a continuous policy action; 0 if actions stay as they are.
        obs_scaling: How observations are scaled.
        action_scaling: How actions are scaled.
    """

    def __init__(
        self, obs: Mapping[str, ObsSpec], d_action: int, obs_scaling: Scaling, action_scaling: Scaling
    ) -> None:
        super().__init__()
        self.obs_scaling: Scaling = obs_scaling
        self.action_scaling: Scaling = action_scaling
        self.names = sorted(k for k, spec in obs.items() if obs_scaling != "none" and is_scalable(spec))
        self.entries = nn.ModuleList([Affine(sum(obs[k].shape, 0) or 1) for k in self.names])
        self.action = Affine(d_action) if d_action and action_scaling != "none" else None

    @property
    def is_set(self) -> bool:
        """Whether all statistics are known."""
        return all(m.is_set for m in self.modules() if isinstance(m, Affine))

    def use(self, obs: Mapping[str, ColumnStats], action: ColumnStats | None) -> None:
        """Take the statistics of the training data: of every scaled entry, and of the policy's actions."""
        for name, entry in zip(self.names, self.entries, strict=True):
            entry.set(*_offset_and_scale(obs[name], self.obs_scaling))  # type: ignore[operator]
        if self.action is not None and action is not None:
            self.action.set(*_offset_and_scale(action, self.action_scaling))

    def scaled_obs(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return observations ``(*lead, ...)`` with the scaled entries in float32."""
        self._check()
        out = dict(obs)
        for name, entry in zip(self.names, self.entries, strict=True):
            value = obs[name].float()
            is_number = value.dim() == 2  # (B, L): one number per input
            out[name] = entry(value.unsqueeze(-1)).squeeze(-1) if is_number else entry(value)
        return out

    def own_obs(self, obs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return vectors ``(*lead, W)`` of scaled entries in the units of the environment."""
        entries = dict(zip(self.names, self.entries, strict=True))
        return {k: entries[k].inverse(v) if k in entries else v for k, v in obs.items()}  # type: ignore[operator]

    def scaled_actions(self, actions: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead A"]:
        """Return actions as the networks know them."""
        if self.action is None:
            return actions
        self._check()
        out: Tensor = self.action(actions)
        return out

    def own_actions(self, actions: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead A"]:
        """Return what the networks gave as policy actions."""
        return actions if self.action is None else self.action.inverse(actions)

    def _check(self) -> None:
        if not self.is_set:
            raise CheckpointError(
                "the statistics of train.normalize_obs or train.normalize_actions are missing: give them with "
                "Algo.use_statistics, or load weights that hold them"
            )


def _offset_and_scale(stats: ColumnStats, scaling: Scaling) -> tuple[Any, Any]:
    if scaling == "min_max":
        return (stats.max + stats.min) / 2, (stats.max - stats.min) / 2
    return stats.mean, stats.std
