"""Memories: causal encoders of sequences that can also be stepped one input at a time."""

from seqrl.models.sequence_encoders.base import SequenceEncoder, State
from seqrl.models.sequence_encoders.feedforward import FeedForward, Identity
from seqrl.models.sequence_encoders.frames import make_sequence_encoder
from seqrl.models.sequence_encoders.gated_deltanet import GatedDeltaNet
from seqrl.models.sequence_encoders.hybrid import Hybrid
from seqrl.models.sequence_encoders.lru import LRU
from seqrl.models.sequence_encoders.mamba import Mamba
from seqrl.models.sequence_encoders.mamba2 import Mamba2
from seqrl.models.sequence_encoders.min_gru import MinGRU
from seqrl.models.sequence_encoders.mlstm import MLSTM
from seqrl.models.sequence_encoders.recurrent import GRU, LSTM
from seqrl.models.sequence_encoders.transformer import Transformer

__all__ = [
    "GRU",
    "LRU",
    "LSTM",
    "MLSTM",
    "FeedForward",
    "GatedDeltaNet",
    "Hybrid",
    "Identity",
    "Mamba",
    "Mamba2",
    "MinGRU",
    "SequenceEncoder",
    "State",
    "Transformer",
    "make_sequence_encoder",
]
