"""Memories: causal encoders of sequences that can also be stepped one input at a time."""

from seqrl.models.sequence_encoders.base import SequenceEncoder, State
from seqrl.models.sequence_encoders.feedforward import FeedForward, Identity
from seqrl.models.sequence_encoders.mamba import Mamba
from seqrl.models.sequence_encoders.recurrent import GRU, LSTM
from seqrl.models.sequence_encoders.transformer import Transformer

__all__ = ["GRU", "LSTM", "FeedForward", "Identity", "Mamba", "SequenceEncoder", "State", "Transformer"]
