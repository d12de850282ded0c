"""What the sections of diffusion and flow policies share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt

from seqrl.configs.section import Component, Section
from seqrl.configs.sections.algo import ChunkSection
from seqrl.configs.sections.denoisers import UNet1dSection
from seqrl.core.registry import DENOISERS


class DenoisingSection(ChunkSection):
    """A memory, a network that turns noise into actions, an optimiser."""

    chunk_steps: PositiveInt = Field(16, description="Actions predicted together at every step (a chunk).")
    execute_steps: PositiveInt | None = Field(
        None, description="Actions of a chunk that are taken before the policy is asked again; null takes half of them."
    )
    denoiser: Annotated[Section, Component(DENOISERS)] = Field(
        UNet1dSection(), description="The network that turns noise into actions."
    )
    samples_per_window: PositiveInt = Field(
        8, description="Steps per window whose chunks are learned, drawn anew each time; each costs a pass of it."
    )
    average_decay: float | None = Field(
        0.9999,
        ge=0.0,
        lt=1.0,
        description="Largest decay of the average of the weights (EMA) that acts, except to collect; null acts with "
        "the weights.",
    )
