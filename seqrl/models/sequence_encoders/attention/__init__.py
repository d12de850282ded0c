"""Causal attention over sequences and over a ring buffer of past inputs, by several back-ends that agree."""

from seqrl.models.sequence_encoders.attention.backends import SDPA, Attention, Auto, Vanilla, make_attention
from seqrl.models.sequence_encoders.attention.flash import Flash
from seqrl.models.sequence_encoders.attention.flex import Flex
from seqrl.models.sequence_encoders.attention.pattern import Alibi, AttentionScore, Pattern
from seqrl.models.sequence_encoders.attention.ring import Slots, num_slots, ring_slots, slot_to_write

__all__ = [
    "SDPA", "Alibi", "Attention", "AttentionScore", "Auto", "Flash", "Flex", "Pattern", "Slots", "Vanilla",
    "make_attention", "num_slots", "ring_slots", "slot_to_write",
]  # fmt: skip
