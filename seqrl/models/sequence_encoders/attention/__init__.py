"""Causal attention over sequences and over a ring buffer of past inputs, by several back-ends that agree."""

from seqrl.models.sequence_encoders.attention.acting import RingStep, empty_ring
from seqrl.models.sequence_encoders.attention.backends import SDPA, Attention, Auto, Vanilla, make_attention
from seqrl.models.sequence_encoders.attention.blocks import bias_of_past, step_unwritten
from seqrl.models.sequence_encoders.attention.flash import Flash
from seqrl.models.sequence_encoders.attention.flex import Flex
from seqrl.models.sequence_encoders.attention.pattern import Alibi, AttentionScore, Pattern
from seqrl.models.sequence_encoders.attention.ring import Slots, next_slot, num_slots, ring_slots

__all__ = [
    "SDPA", "Alibi", "Attention", "AttentionScore", "Auto", "Flash", "Flex", "Pattern", "RingStep", "Slots", "Vanilla",
    "bias_of_past", "empty_ring", "make_attention", "next_slot", "num_slots", "ring_slots", "step_unwritten",
]  # fmt: skip
