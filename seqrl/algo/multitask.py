"""The multi-task agent: classified values and filtered imitation (AMAGO-2, Grigsby et al., 2024, arXiv 2411.11188)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import log_softmax, softmax

from seqrl.algo.actor_critic import ActorCritic
from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.heads import build_critics, critic_class
from seqrl.configs.multitask_config import MultiTaskSection
from seqrl.core.errors import ConfigError
from seqrl.models.critics import Critics, StateActionCritics, StateCritics
from seqrl.models.two_hot import TwoHot


@register_algo_factory_func("multitask")
def multitask_factory(algo_config: MultiTaskSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of the multi-task agent."""
    return MultiTask, {}


class MultiTask(ActorCritic[MultiTaskSection]):
    """The actor-critic with critics that classify returns, so that no task's scale drowns another's.

    Discrete actions enter the critic as one-hot vectors, and V is a mean of samples. Values and advantages are in
    multiplied reward units.
    """

    @property
    def sums_over_actions(self) -> bool:
        """Never: the critics take every action as an input."""
        return False

    def _build_critic(self) -> Critics:
        section = self.algo_config
        options = section.returns.options()
        initial_value = options.pop("initial_value")
        low, high, num_bins = (options.pop(k) for k in ("low", "high", "num_bins"))
        self.coder = TwoHot(low, high, num_bins, **options).to(self.device)
        found = StateActionCritics if section.critic.network == "mlp" else critic_class(section.critic, self.codec)
        if issubclass(found, StateCritics):
            raise ConfigError(
                f"algo.critic.network: {section.critic.network!r} has no bins, by which values are classified"
            )
        given = (self.trunk.d_output, section.critic, self.codec, self.discounts)
        critic = build_critics(found, *given, d_out=num_bins)
        assert critic.last.bias is not None
        # All actions begin nearly alike, as the noise of fresh critics would be imitated; exactly alike where the outer
        # bins stand for huge returns.
        with torch.no_grad():
            critic.last.weight.mul_(0.0 if section.returns.value_space == "return" else 0.01)
            critic.last.bias.zero_()
            if initial_value is not None:
                critic.last.bias.copy_(self.coder.initial_logits(initial_value).expand_as(critic.last.bias))
        return critic

    def critic_error(self, raw: Float[Tensor, "B T G C N"], targets: Float[Tensor, "B T G"]) -> Float[Tensor, "B T"]:
        """Return the cross-entropy to the encoded targets, averaged over discounts and critics."""
        labels_BTG1N = self.coder.encode(targets).unsqueeze(-2)
        loss_BTGC = -(labels_BTG1N * log_softmax(raw.float(), dim=-1)).sum(-1)
        return loss_BTGC.mean((-1, -2))

    def advantage(self, gap_BTGC: Tensor) -> Float[Tensor, "B T G"]:
        """Return the advantage of the data's actions, in multiplied reward units, from Q - V of each critic."""
        return gap_BTGC.mean(-1)

    def values_of(self, raw: Float[Tensor, "*lead N"]) -> Float[Tensor, "*lead"]:
        """Return the values that the critics' logits stand for, in multiplied reward units."""
        values: Tensor = self.coder.decode(softmax(raw.float(), dim=-1))
        return values
