"""The return that a policy is asked for, and the unit in which it reads returns."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqrl.core.errors import DataError

PERCENTILE = 0.9


class ReturnTarget(nn.Module):
    """Two numbers that are saved with the weights: from the data, unless given.

    Args:
        target: Return that is asked for; None waits for the data's.
        scale: What returns are divided by; None waits for the data's.

    Source: Chen et al. (2021), Decision Transformer, arXiv 2106.01345.
    """

    target: Tensor
    scale: Tensor
    is_known: Tensor

    def __init__(self, target: float | None, scale: float | None) -> None:
        super().__init__()
        self.waits_for = tuple(name for name, given in (("target", target), ("scale", scale)) if given is None)
        self.register_buffer("target", torch.tensor(0.0 if target is None else target))
        self.register_buffer("is_known", torch.tensor(target is not None))
        self.register_buffer("scale", torch.tensor(1.0 if scale is None else scale))

    def use(self, returns: Tensor) -> None:
        """Take what was not given from the returns ``(N,)`` of the training data's episodes.

        Raises:
            DataError: If all of them are 0, so that they have no unit.
        """
        if "target" in self.waits_for:
            self.target.copy_(returns.double().quantile(PERCENTILE))
            self.is_known.fill_(True)
        if "scale" in self.waits_for:
            largest = returns.abs().max()
            if not largest > 0:
                raise DataError("all episodes of the training data have the return 0, so returns carry no information")
            self.scale.copy_(largest)

    def asked(self) -> Tensor:
        """Return what is asked for.

        Raises:
            DataError: If that is not known.
        """
        if not bool(self.is_known):
            raise DataError(
                "no target return is known: set algo.target_return, or give the data's returns to Algo.use_returns"
            )
        return self.target
