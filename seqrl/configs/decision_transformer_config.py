"""Run file of return-conditioned imitation (Decision Transformer)."""

from __future__ import annotations

from pydantic import Field, PositiveFloat

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.bc_config import BCSection


class DecisionTransformerSection(BCSection):
    """Imitation that reads the return still to come: a memory, a policy head, an optimiser."""

    target_return: float | None = Field(
        None,
        description="Return to condition on when acting; null takes the 90th percentile of the training data.",
    )
    return_scale: PositiveFloat | None = Field(
        None, description="What returns are divided by; null takes the largest magnitude in the training data."
    )


@register_config("decision_transformer")
class DecisionTransformerConfig(BaseConfig):
    """Run file of return-conditioned imitation."""

    algo: DecisionTransformerSection = DecisionTransformerSection()
