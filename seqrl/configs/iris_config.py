"""Run file of IRIS: subgoals that are chosen by their value."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from seqrl.configs.base_config import BaseConfig, register_config
from seqrl.configs.hbc_config import HBCSection
from seqrl.configs.iql_config import IQLValueSection


class IRISSection(HBCSection):
    """IRIS: a planner, a policy that follows its subgoals, and values by which they are chosen."""

    num_subgoals: PositiveInt = Field(100, description="Subgoals drawn, of which the best one is followed.")
    value: IQLValueSection = Field(IQLValueSection(), description="What judges them.")


@register_config("iris")
class IRISConfig(BaseConfig):
    """Run file of IRIS."""

    algo: IRISSection = IRISSection()
