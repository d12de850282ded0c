"""Run file of behaviour cloning."""

from __future__ import annotations

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.algo import ChunkSection, PolicySection
from seqrl.configs.sections.run import ImitationObservationSection


class BCSection(ChunkSection, PolicySection):
    """Behaviour cloning: a memory, a policy head, an optimiser."""


@register_config("bc")
class BCConfig(BaseConfig):
    """Run file of behaviour cloning."""

    observation: ImitationObservationSection = ImitationObservationSection()
    algo: BCSection = BCSection()
