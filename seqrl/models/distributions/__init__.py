"""Distributions over policy actions: one-hot blocks, bits, or continuous values, each ``(..., A)`` float32."""

from __future__ import annotations

from typing import Any

from seqrl.core.errors import ConfigError
from seqrl.core.registry import DISTRIBUTIONS
from seqrl.core.spaces import ActionCodec
from seqrl.models.distributions.base import ActionDistribution, DistributionHead
from seqrl.models.distributions.continuous import Beta, Deterministic, Gaussian, GaussianMixture, TanhGaussian
from seqrl.models.distributions.discrete import Bernoulli, Categorical
from seqrl.models.distributions.hybrid import Hybrid

__all__ = [
    "ActionDistribution",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Deterministic",
    "DistributionHead",
    "Gaussian",
    "GaussianMixture",
    "Hybrid",
    "TanhGaussian",
    "build_head",
]

AUTO_DISTRIBUTION = {
    "categorical": "categorical",
    "binary": "bernoulli",
    "continuous": "tanh_gaussian",
    "hybrid": "hybrid",
}


def build_head(name: str, options: dict[str, Any], codec: ActionCodec) -> DistributionHead:
    """Return the head ``name``; ``auto`` is the one for the codec's kind of action.

    Raises:
        ConfigError: If the distribution cannot represent these actions.
    """
    if name == "auto":
        name = AUTO_DISTRIBUTION[codec.kind]
    head: DistributionHead = DISTRIBUTIONS.get(name)(codec, **options)
    if codec.kind not in head.kinds:
        fitting = [n for n in DISTRIBUTIONS.names() if n in DISTRIBUTIONS and codec.kind in DISTRIBUTIONS.get(n).kinds]
        raise ConfigError(
            f"algo.distribution.type {name!r} cannot represent {codec.space!r}; use one of: auto, {', '.join(fitting)}"
        )
    return head
