"""Rewards in units of the data's returns."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqrl.core.errors import DataError

RANGE = 1000.0


class RewardScale(nn.Module):
    """A factor of rewards, saved with the weights, by which the best return is 1000 above the worst.

    Source: Kostrikov et al. (2021), IQL, arXiv 2110.06169, appendix B.
    """

    factor: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def use(self, low: float, high: float) -> None:
        """Take the worst and the best return.

        Raises:
            DataError: If they are equal, so that rewards tell nothing.
        """
        if not high > low:
            raise DataError(f"train.normalize_rewards: all episodes of the training data have the return {low:.6g}")
        self.factor.fill_(RANGE / (high - low))
