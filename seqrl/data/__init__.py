"""Trajectories on disk, windows out of them, and batches for training."""

from seqrl.data.dataset import NoData, TrainingDataset
from seqrl.data.mixed_dataset import MixedDataset
from seqrl.data.mixture import Source
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.data.store import Budget, Store, StoreWriter
from seqrl.data.store_info import StoreInfo

__all__ = [
    "Budget",
    "MixedDataset",
    "NoData",
    "SequenceDataset",
    "Source",
    "Store",
    "StoreInfo",
    "StoreWriter",
    "TrainingDataset",
]
