"""Trajectories on disk, windows out of them, and batches for training."""

from seqrl.data.sequence_dataset import SequenceDataset, Source
from seqrl.data.store import Store, StoreInfo, StoreWriter

__all__ = ["SequenceDataset", "Source", "Store", "StoreInfo", "StoreWriter"]
