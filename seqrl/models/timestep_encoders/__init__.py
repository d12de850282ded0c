"""Timestep encoders: from what is seen at one step to one vector."""

from seqrl.models.timestep_encoders.auto import auto_encoder
from seqrl.models.timestep_encoders.base import (
    SECTION_KEY,
    TimestepEncoder,
    build_timestep_encoder,
    flat_entry,
    flat_width,
    values_read,
)
from seqrl.models.timestep_encoders.cnn import CNNTimestepEncoder
from seqrl.models.timestep_encoders.image_modalities import DepthModality, ImageModality
from seqrl.models.timestep_encoders.images import ImageReader, is_image
from seqrl.models.timestep_encoders.mlp import MLPTimestepEncoder
from seqrl.models.timestep_encoders.modalities import (
    GoalModality,
    Modality,
    ScanModality,
    TokensModality,
    VectorModality,
)
from seqrl.models.timestep_encoders.multimodal import MultimodalTimestepEncoder
from seqrl.models.timestep_encoders.text import TEXT_FUNCTIONS, TextModality

__all__ = [
    "SECTION_KEY",
    "TEXT_FUNCTIONS",
    "CNNTimestepEncoder",
    "DepthModality",
    "GoalModality",
    "ImageModality",
    "ImageReader",
    "MLPTimestepEncoder",
    "Modality",
    "MultimodalTimestepEncoder",
    "ScanModality",
    "TextModality",
    "TimestepEncoder",
    "TokensModality",
    "VectorModality",
    "auto_encoder",
    "build_timestep_encoder",
    "flat_entry",
    "flat_width",
    "is_image",
    "values_read",
]
