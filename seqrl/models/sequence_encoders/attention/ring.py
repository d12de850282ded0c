"""The ring buffer in which acting keeps keys and values: sinks first, then the last inputs in turn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from seqrl.models.sequence_encoders.attention.blocks import NOWHERE, additive_mask
from seqrl.models.sequence_encoders.attention.pattern import Pattern


@dataclass(frozen=True)
class Slots:
    """What the slots of each row hold at one step; the same for every layer.

    Attributes:
        q_pos: ``(B, 1)`` position of the row's present input.
        k_pos: ``(B, S)`` position of the input in each slot, out of sight where there is none.
        mask: ``(B, 1, 1, S)`` what SDPA takes as a mask; None where scores are not plain.
    """

    q_pos: Tensor
    k_pos: Tensor
    mask: Tensor | None


def num_slots(pattern: Pattern) -> int:
    """Return how many inputs acting has to keep."""
    return pattern.num_sinks + pattern.window


def next_slot(pattern: Pattern, slot: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Return the slot after each row's: sinks keep theirs, later inputs go round."""
    after = slot + 1
    return torch.where(after < num_slots(pattern), after, pattern.num_sinks)


def ring_slots(pattern: Pattern, position: Int[Tensor, " B"], example: Tensor) -> Slots:
    """Return what the slots hold once the input at ``position`` has been written.

    Args:
        pattern: Of the attention.
        position: Inputs that each row has seen before this one.
        example: Tensor whose dtype a bias takes.
    """
    slot = torch.arange(pattern.window, device=position.device)
    after = position[:, None] - pattern.num_sinks
    lag = (after - slot) % pattern.window
    k_pos = torch.where(lag <= after, position[:, None] - lag, NOWHERE)
    if pattern.num_sinks:
        sink = torch.arange(pattern.num_sinks, device=position.device).expand(position.shape[0], -1)
        k_pos = torch.cat([torch.where(sink <= position[:, None], sink, NOWHERE), k_pos], dim=1)
    q_pos = position[:, None]
    mask = additive_mask(pattern, example, q_pos, k_pos) if pattern.has_plain_scores else None
    return Slots(q_pos, k_pos, mask)
