"""Memories: causal encoders of sequences that can also be stepped one input at a time."""

from seqrl.models.sequence_encoders.base import SequenceEncoder, State
from seqrl.models.sequence_encoders.feedforward import FeedForward
from seqrl.models.sequence_encoders.gru import GRU
from seqrl.models.sequence_encoders.transformer import Transformer

__all__ = ["GRU", "FeedForward", "SequenceEncoder", "State", "Transformer"]
