"""A new algorithm in one file: clone only what led to a good outcome.

seqrl train --config bc.json --plugin examples/filtered_bc_plugin.py --set algo_name=filtered_bc
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from seqrl.algo import Algo, register_algo_factory_func
from seqrl.algo.bc import BC
from seqrl.configs import BCConfig, register_config
from seqrl.configs.bc_config import BCSection
from seqrl.core.tensors import SeqBatch


class FilteredBCSection(BCSection):
    """Behaviour cloning of windows whose return is high enough."""

    min_return: float = Field(0.5, description="Windows that earn less are not imitated.")


@register_config("filtered_bc")
class FilteredBCConfig(BCConfig):
    """Run file of filtered behaviour cloning."""

    algo: FilteredBCSection = FilteredBCSection()


class FilteredBC(BC):
    """Behaviour cloning of the windows that earn at least ``min_return``."""

    def __init__(self, *args: Any, min_return: float) -> None:
        self.min_return = min_return
        super().__init__(*args)

    def weights(self, batch: SeqBatch) -> Float[Tensor, "B T"]:
        """Return 1 for every transition of a good window, 0 elsewhere."""
        window_return = (batch.rewards * batch.mask).sum(dim=1, keepdim=True)
        return (window_return >= self.min_return).float().expand_as(batch.rewards)


@register_algo_factory_func("filtered_bc")
def filtered_bc_factory(algo_config: FilteredBCSection) -> tuple[type[Algo], dict[str, Any]]:
    """Return the class and its setting."""
    return FilteredBC, {"min_return": algo_config.min_return}
