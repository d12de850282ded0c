"""What the agents report on logging steps."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqrl.algo.objectives import masked_mean
from seqrl.models.distributions import ActionDistribution
from seqrl.models.popart import PopArt

WEIGHT_QUANTILES = (0.1, 0.5, 0.9)


@torch.no_grad()
def value_metrics(
    mask: Bool[Tensor, "B T"],
    discounts: Sequence[str],
    targets: Float[Tensor, "B T G"],
    q: Float[Tensor, "B T G C"],
) -> dict[str, Tensor]:
    """Return Q and the spread of its ensemble per discount, and the range of the targets.

    Values are in multiplied reward units.
    """
    metrics = {
        "target/mean": masked_mean(targets.mean(-1), mask),
        "target/min": targets.masked_fill(~mask.unsqueeze(-1), torch.inf).amin(),
        "target/max": targets.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(),
    }
    for i, name in enumerate(discounts):
        metrics[f"q/mean_{name}"] = masked_mean(q[:, :, i].mean(-1), mask)
        metrics[f"q/ensemble_std_{name}"] = masked_mean(q[:, :, i].std(-1, correction=0), mask)
    return metrics


@torch.no_grad()
def weight_metrics(mask: Bool[Tensor, "B T"], weight: Float[Tensor, "B T G"]) -> dict[str, Tensor]:
    """Return what a filter of the imitation lets through: share above a half, mean, quantiles."""
    ordered = weight.float().masked_fill(~mask.unsqueeze(-1), torch.inf).flatten().sort().values
    num_real = mask.sum() * weight.shape[-1]
    index = (torch.tensor(WEIGHT_QUANTILES, device=weight.device) * (num_real - 1)).clamp(min=0).long()
    quantiles = ordered.gather(0, index).masked_fill(num_real == 0, 0.0)
    return {
        "filter/share": masked_mean((weight > 0.5).float().mean(-1), mask),
        "filter/mean": masked_mean(weight.mean(-1), mask),
    } | {f"filter/q{100 * share:.0f}": quantiles[i] for i, share in enumerate(WEIGHT_QUANTILES)}


@torch.no_grad()
def popart_metrics(popart: PopArt, discounts: Sequence[str]) -> dict[str, Tensor]:
    """Return mean and standard deviation of each discount's targets, as PopArt knows them."""
    return {f"popart/mean_{name}": popart.mean[i].clone() for i, name in enumerate(discounts)} | {
        f"popart/std_{name}": popart.std[i] for i, name in enumerate(discounts)
    }


@torch.no_grad()
def policy_metrics(policy: ActionDistribution, mask: Bool[Tensor, "B T"]) -> dict[str, Tensor]:
    """Return the entropy of the policies ``(B, T, G)``: their mean, and that of the one that acts.

    Where it is estimated by a sample, the generators are put back, so that logging changes no run.
    """
    devices = [mask.device] if mask.is_cuda else []
    with contextlib.nullcontext() if torch.compiler.is_compiling() else torch.random.fork_rng(devices):
        entropy = policy.entropy()
    return {
        "policy/entropy": masked_mean(entropy[..., -1], mask),
        "policy/entropy_all_discounts": masked_mean(entropy.mean(-1), mask),
    }
