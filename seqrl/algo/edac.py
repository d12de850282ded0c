"""SAC-N and EDAC (An et al., 2021, arXiv 2110.01548), on any memory."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.soft_agent import SoftAgent
from seqrl.algo.value_agent import Pass, Terms
from seqrl.configs.edac_config import EDACSection
from seqrl.models.critics import StateActionCritics

SMALL = 1e-10


@register_algo_factory_func("edac")
def edac_factory(algo_config: EDACSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of SAC-N and EDAC."""
    return EDAC, {}


class EDAC(SoftAgent[EDACSection]):
    r"""A soft actor-critic that trusts the smallest of many critics, whose gradients are kept apart.

    Critics that agree away from the data warn of nothing. With :math:`n_i` the direction of :math:`\nabla_a Q_i` at
    the data's action, :math:`\frac{\eta}{C - 1} \sum_{i \neq j} \langle n_i, n_j \rangle` comes to their squared error.
    """

    action_kinds = frozenset({"continuous"})

    def _create_networks(self) -> None:
        super()._create_networks()
        assert isinstance(self.critic, StateActionCritics)
        if self.config.train.compile:  # which knows no gradients of gradients
            self.critic.action_gradients = torch.compiler.disable(self.critic.action_gradients)  # type: ignore[method-assign]

    def critic_terms(self, p: Pass, targets: Float[Tensor, "B T G"]) -> Terms:
        """Return the squared error of Q, and the likeness of the critics' gradients; the memory has no part in it."""
        losses = {"critic": (1.0, self.critic_error(p.raw, targets))}
        if self.algo_config.eta > 0:
            losses["likeness"] = (self.algo_config.eta, self._likeness(p).mean(-1))
        return Terms(losses)

    def _likeness(self, p: Pass) -> Float[Tensor, "B T G"]:
        """Return the sum of the cosines between all ordered pairs of critics, divided by C - 1."""
        assert isinstance(self.critic, StateActionCritics)
        share = self.critic.share(p.state[:, : p.batch.num_transitions].detach())
        gradient_BTGCA = self.critic.action_gradients(share, p.batch.actions.unsqueeze(2))
        direction = gradient_BTGCA / (gradient_BTGCA.norm(dim=-1, keepdim=True) + SMALL)
        others: Tensor = direction.sum(-2).square().sum(-1) - direction.square().sum((-1, -2))
        return others / max(self.algo_config.critic.num_critics - 1, 1)
