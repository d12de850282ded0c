"""Implicit Q-learning (Kostrikov et al., 2021, arXiv 2110.06169), on any memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.agent_metrics import weight_metrics
from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.objectives import expectile_loss
from seqrl.algo.value_agent import Pass, Terms, ValueAgent
from seqrl.configs.iql_config import IQLSection
from seqrl.core.registry import Choice
from seqrl.core.tensors import SeqBatch
from seqrl.models.mlp import make_mlp


@register_algo_factory_func("iql")
def iql_factory(algo_config: IQLSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of implicit Q-learning."""
    return IQL, {}


class IQL(ValueAgent[IQLSection]):
    r"""Values of the best actions that the data shows, and imitation weighed by the advantage over them.

    With :math:`u_t = \min_c \bar Q_c(h_t, a_t) - V(h_t)`, V learns the expectile of u, Q learns :math:`r + \gamma V`
    of the next input, and the policy imitates with weight :math:`\exp(\beta u)`, at most ``max_weight``. No action
    that the data does not hold is ever judged.
    """

    auto_distribution: ClassVar[Mapping[str, Choice]] = {
        "continuous": ("gaussian", {"std": "shared"}),
        "hybrid": ("hybrid", {"values": "gaussian"}),
    }
    fitted = ("loss/critic", "loss/value")

    def _create_networks(self) -> None:
        super()._create_networks()
        critic = self.algo_config.critic
        self.value = make_mlp(
            self.trunk.d_output, critic.d_hidden, critic.num_layers, len(self.discounts), critic.activation
        )
        self.nets["value"] = self.value

    def extra_heads(self, batch: SeqBatch, state: Float[Tensor, "B L D"]) -> Mapping[str, Tensor]:
        """Return V of every input, and the least Q of the data's actions among the target critics, without gradient."""
        v_BLG = self.values_of(self.value(state).float()[..., None, None]).squeeze(-1)
        with torch.no_grad():
            share = self.target_critic.share(state[:, :-1])
            q_BTGC = self.values_of(self.target_critic(share, batch.actions[None, :, :, None])[0])
        return {"v": v_BLG, "q": q_BTGC.amin(-1)}

    def next_values(self, p: Pass) -> Float[Tensor, "B T G"]:
        """Return V."""
        return p.extras["v"][:, 1:]

    def critic_terms(self, p: Pass, targets: Float[Tensor, "B T G"]) -> Terms:
        """Return the squared error of Q, and the expectile loss of V."""
        error_BTG = self._normalized_gap(p)
        value_BT = expectile_loss(error_BTG, self.algo_config.expectile).mean(-1)
        return Terms({"critic": (1.0, self.critic_error(p.raw, targets)), "value": (1.0, value_BT)})

    def actor_terms(self, p: Pass) -> Terms:
        """Return the imitation of the data's actions, weighed by their advantage from before this step."""
        weight_BTG = self._weight(p)
        metrics = weight_metrics(p.batch.mask, weight_BTG) if self.wants_metrics else {}
        return Terms({"actor": (1.0, -(weight_BTG * self.log_prob_of_data(p)).mean(-1))}, metrics)

    def _normalized_gap(self, p: Pass) -> Float[Tensor, "B T G"]:
        """Return u with the gradient of V, in the units in which losses compare values."""
        q, v = p.extras["q"].unsqueeze(-1), p.extras["v"][:, :-1].unsqueeze(-1)
        return (self.normalized(q) - self.normalized(v)).squeeze(-1)

    def _advantage(self, p: Pass) -> Float[Tensor, "B T G"]:
        return p.extras["q"] - p.extras["v"][:, :-1].detach()

    def _weight(self, p: Pass) -> Float[Tensor, "B T G"]:
        return (self.algo_config.beta * self._advantage(p)).exp().clamp(max=self.algo_config.max_weight)

    def judged(self, p: Pass) -> dict[str, Float[Tensor, "B T G"]]:
        """Return V, the advantage of the data's actions over it, and the weight of their imitation."""
        v_BTG = p.extras["v"][:, :-1]
        return {"v": v_BTG, "advantage": self._advantage(p), "filter_weight": self._weight(p)}
