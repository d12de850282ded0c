"""Run file of the off-policy actor-critic."""

from __future__ import annotations

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.sections.agent import AgentSection


class ActorCriticSection(AgentSection):
    """Off-policy actor-critic with regressed values."""


@register_config("actor_critic")
class ActorCriticConfig(BaseConfig):
    """Run file of the off-policy actor-critic."""

    algo: ActorCriticSection = ActorCriticSection()
