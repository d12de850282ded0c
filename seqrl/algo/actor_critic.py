"""The off-policy actor-critic on whole trajectories (AMAGO, Grigsby et al., 2024, arXiv 2310.09971, appendix A)."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.agent_metrics import weight_metrics
from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.soft_agent import SoftAgent
from seqrl.algo.value_agent import Pass, Terms
from seqrl.configs.actor_critic_config import ActorCriticSection
from seqrl.configs.sections.agent import AgentSection
from seqrl.core.registry import FILTERS
from seqrl.core.tensors import SeqInputs
from seqrl.models.distributions import Categorical
from seqrl.models.sequence_encoders import State

AgentSectionT = TypeVar("AgentSectionT", bound=AgentSection)


@register_algo_factory_func("actor_critic")
def actor_critic_factory(algo_config: ActorCriticSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of the off-policy actor-critic."""
    return ActorCritic, {}


class ActorCritic(SoftAgent[AgentSectionT]):
    """One trunk, an actor and an ensemble of critics per discount; policy gradient plus filtered imitation.

    Each of the G discounts has its own policy and its own values, trained only against themselves; the last one acts.
    Advantages, which the filter sees, are in units of the environment's rewards with PopArt, and of multiplied ones
    without.
    """

    def _create_networks(self) -> None:
        section = self.algo_config
        self.climbs = section.online_coeff > 0
        self.learns_values = self.climbs or section.filter.choice()[0] != "none"
        self.fitted = ("loss/critic",) if self.learns_values else ("loss/actor_offline",)
        super()._create_networks()
        name, options = section.filter.choice()
        self.weight_of_advantage = partial(FILTERS.get(name), **options)

    @property
    def num_target_critics(self) -> int:  # noqa: D102
        return self.algo_config.num_critics_td

    @property
    def explores(self) -> bool:  # noqa: D102
        is_one_choice = self.codec.kind == "categorical" and len(self.codec.factors) == 1
        return self.algo_config.boltzmann is not None and self.learns_values and is_one_choice

    def explore(self, inputs: SeqInputs, state: State, luck: Float[Tensor, " B"]) -> tuple[Float[Tensor, "B A"], State]:
        """Return samples of softmax(Q / temperature) in rows of little luck, and of the policy in the others.

        Q is that of the acting discount, a mean over critics. A policy that never takes an action does not learn that
        it is the better one by now, or might be; its critics hold it for nearly as good.
        """
        boltzmann = self.algo_config.boltzmann
        assert boltzmann is not None
        hidden, state = self.trunk(inputs, state)
        policy = self._acting_policy(hidden, inputs)
        assert isinstance(policy, Categorical)
        share = self.critic.share(hidden[:, -1:])
        each_KA = torch.eye(self.codec.dim, device=self.device)
        each_KBLHA = each_KA[:, None, None, None].expand(-1, share.shape[0], 1, 1, -1)
        q_KBGC = self.values_of(self.critic(share, each_KBLHA))[:, :, 0]
        unit = self.popart.std[-1] if self.algo_config.use_popart else 1.0
        q_BA = q_KBGC[:, :, -1].mean(-1).t() / (boltzmann.temperature * unit)
        mask = None if inputs.action_mask is None else inputs.action_mask[:, -1]
        preferred = Categorical(q_BA, self.codec.factors, 0.0, mask)
        by_value_B1 = (luck < boltzmann.share).unsqueeze(-1)
        return torch.where(by_value_B1, preferred.sample(), policy.sample()[:, -1, 0]), state

    # --------------------------------------------------------------------------------------------- losses
    def critic_terms(self, p: Pass, targets: Float[Tensor, "B T G"]) -> Terms:
        """Return the error of the critics."""
        return Terms({"critic": (self.algo_config.critic_loss_weight, self.critic_error(p.raw, targets))})

    def actor_terms(self, p: Pass) -> Terms:
        """Return policy gradient and filtered imitation."""
        section = self.algo_config
        losses: dict[str, tuple[float, Tensor]] = {}
        metrics: dict[str, Tensor] = {}
        weight_BTG = torch.ones((), device=self.device)
        if self.learns_values:
            own_BTGC, gap_BTGC = self._own_values(p)
            weight_BTG = self._filter_weights(gap_BTGC)
            metrics |= weight_metrics(p.batch.mask, weight_BTG) if self.wants_metrics else {}
            if self.climbs:
                climbing = self.policy_gradient(p, own_BTGC, weight=section.online_coeff, name="actor_online")
                losses |= climbing.losses
                metrics |= climbing.metrics
        if section.offline_coeff > 0:
            imitation_BT = -(weight_BTG * self.log_prob_of_data(p)).mean(-1)
            losses["actor_offline"] = (section.offline_coeff, imitation_BT)
        return Terms(losses, metrics)

    def _filter_weights(self, gap_BTGC: Tensor) -> Float[Tensor, "B T G"]:
        weights: Tensor = self.weight_of_advantage(self.advantage(gap_BTGC))
        return weights.detach()

    def judged(self, p: Pass) -> dict[str, Float[Tensor, "B T G"]]:
        """Return V of the current policies, the advantage of the data's actions over it, and the filter's weight."""
        own_BTGC, gap_BTGC = self._own_values(p)
        weight_BTG = self._filter_weights(gap_BTGC)
        return {"v": own_BTGC.mean(-1), "advantage": self.advantage(gap_BTGC), "filter_weight": weight_BTG}
