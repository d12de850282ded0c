"""Readers of foreign formats, one file each; a plug-in registers its own under ``@READERS.register("name")``."""

from seqrl.data.readers.base import READERS, NamedTrajectories, Reader
from seqrl.data.readers.choice import choose_reader

__all__ = ["READERS", "NamedTrajectories", "Reader", "choose_reader"]
