"""What an algorithm says of a batch, and who may leave transitions out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.core.errors import PluginError
from seqrl.core.tensors import SeqBatch


@dataclass(frozen=True)
class Losses:
    """What one batch says.

    Attributes:
        total: The scalar to descend.
        metrics: Name ``group/name`` -> detached scalar on the device, for the log.
        stats: Name -> detached *sums* over the batch; added over micro-batches and ranks, then handed to
            :meth:`Algo.on_gradient_step`.
    """

    total: Float[Tensor, ""]
    metrics: dict[str, Tensor] = field(default_factory=dict)
    stats: dict[str, Tensor] = field(default_factory=dict)


def checked_losses(given: object) -> Losses:
    """Return what ``compute_losses`` returned.

    Raises:
        PluginError: If it is no :class:`Losses`, or its total is no scalar, or one that no weight has made where
            gradients are on.
    """
    if not isinstance(given, Losses):
        raise PluginError(f"the losses of a batch have to be seqrl.algo.Losses, not {type(given).__name__}")
    if not isinstance(given.total, Tensor):
        raise PluginError(f"Losses.total has to be a tensor, it is a {type(given.total).__name__}")
    if given.total.ndim or (torch.is_grad_enabled() and not given.total.requires_grad):
        what = f"has shape {tuple(given.total.shape)}" if given.total.ndim else "has no gradient"
        raise PluginError(f"Losses.total has to be a scalar that depends on the weights; it {what}")
    return given


MaskEdit = Callable[[SeqBatch, Tensor, Tensor], Tensor]
"""From a batch, a loss ``(B, T)`` per transition (detached) and a mask ``(B, T)`` to another mask."""


def same_mask(batch: SeqBatch, loss: Tensor, mask: Tensor) -> Tensor:
    """Return the mask as it is."""
    return mask


@dataclass
class MaskEdits:
    """Which transitions count in which loss; an experiment may leave some out.

    Attributes:
        actor: Of the losses of the policy.
        critic: Of the losses of values.
    """

    actor: MaskEdit = same_mask
    critic: MaskEdit = same_mask
