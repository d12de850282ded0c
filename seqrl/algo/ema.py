"""Weight averages for evaluation, as diffusion policies need them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqrl.algo.targets import frozen_copy
from seqrl.models.sigma_linear import SigmaLinear


class AveragedNets(nn.Module):
    """Moving averages of networks, with a decay that grows with the steps.

    After ``n`` steps the decay is ``1 - (1 + n)^-power``, at most ``max_decay``, so early weights are soon forgotten.
    Buffers, such as the statistics of inputs, are copied. The singular vectors of a :class:`SigmaLinear` are not: each
    average has its own, which ``Algo`` moves by :meth:`~SigmaLinear.power_iteration`. The averages take no gradient and
    are saved with the weights; put this module into ``Algo.nets``, and call :meth:`move` from
    ``Algo.on_gradient_step``.

    Args:
        nets: Name -> network, without batch normalisation, whose statistics are no weights.
        power: Of the decay.
        max_decay: Largest decay.

    Source: Chi et al. (2023), Diffusion Policy, arXiv 2303.04137, section 6.
    """

    num_steps: Tensor

    def __init__(self, nets: nn.ModuleDict, *, power: float = 0.75, max_decay: float = 0.9999) -> None:
        super().__init__()
        self.averages = nn.ModuleDict({name: frozen_copy(net) for name, net in nets.items()})
        self.power, self.max_decay = power, max_decay
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def move(self, nets: nn.ModuleDict) -> None:
        """Move each average towards its network, after a gradient step."""
        self.num_steps += 1
        step = (1.0 + self.num_steps) ** -self.power  # stays on the device: nothing waits for it
        step = step.clamp(min=1.0 - self.max_decay)
        for name, average in self.averages.items():
            for mean, weight in zip(average.parameters(), nets[name].parameters(), strict=True):
                mean.lerp_(weight.detach(), step.to(mean.dtype))
            own = {buffer for part in average.modules() if isinstance(part, SigmaLinear) for buffer in part.buffers()}
            for copied, buffer in zip(average.buffers(), nets[name].buffers(), strict=True):
                if copied not in own:
                    copied.copy_(buffer)
