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

MAX_RANDOM = 0.5
"""Probability of a random action where an observation is as unusual as can be."""
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
        by_value = self.algo_config.boltzmann is not None and self.learns_values
        return is_one_choice and (by_value or self.algo_config.novelty > 0)

    def explore(self, inputs: SeqInputs, state: State, luck: Float[Tensor, " B"]) -> tuple[Float[Tensor, "B A"], State]:
        """Return samples of softmax(Q / temperature) in rows of little luck, and of the policy in the others.

        Q is that of the acting discount, a mean over critics. A policy that never takes an action does not learn that
        it is the better one by now, or might be; its critics hold it for nearly as good. Where observations are
        unusual, critics know an action from elsewhere only: there, ``novelty`` takes random ones.
        """
        hidden, state = self.trunk(inputs, state)
        policy = self._acting_policy(hidden, inputs)
        assert isinstance(policy, Categorical)
        mask = None if inputs.action_mask is None else inputs.action_mask[:, -1]
        boltzmann = self.algo_config.boltzmann
        if boltzmann is None or not self.learns_values:
            return self._policy_or_random(policy, inputs, mask), state
        q_BA = self._scaled_values(hidden, boltzmann.temperature)
        by_value_BA = Categorical(q_BA, self.codec.factors, 0.0, mask).sample()
        is_by_value_B1 = (luck < boltzmann.share).unsqueeze(-1)
        return torch.where(is_by_value_B1, by_value_BA, self._policy_or_random(policy, inputs, mask)), state

    def _scaled_values(self, hidden: Tensor, temperature: float) -> Float[Tensor, "B A"]:
        """Return Q of every action in the last step, over the temperature in units of the values' spread."""
        share = self.critic.share(hidden[:, -1:])
        each_KA = torch.eye(self.codec.dim, device=self.device)
        each_KBLHA = each_KA[:, None, None, None].expand(-1, share.shape[0], 1, 1, -1)
        q_KBGC = self.values_of(self.critic(share, each_KBLHA))[:, :, 0]
        unit = self.popart.std[-1] if self.algo_config.use_popart else 1.0
        return q_KBGC[:, :, -1].mean(-1).t() / (temperature * unit)

    def _policy_or_random(self, policy: Categorical, inputs: SeqInputs, mask: Tensor | None) -> Float[Tensor, "B A"]:
        """Return samples of the policy in the last step, or random actions, the more often the rarer it is."""
        novelty = self.algo_config.novelty
        rarity = self.trunk.timestep_encoder.rarity(inputs) if novelty else None
        if rarity is None:
            return policy.sample()[:, -1, 0]
        rate_B1 = (rarity[:, -1:] * (novelty / self.config.train.window_steps)).clamp(max=MAX_RANDOM)
        prob_BA = policy.probs[:, -1, 0]
        legal_BA = torch.ones_like(prob_BA, dtype=torch.bool) if mask is None else mask
        mixed_BA = (1 - rate_B1) * prob_BA + rate_B1 * legal_BA / legal_BA.sum(-1, keepdim=True)
        return Categorical(mixed_BA.log(), self.codec.factors, 0.0, mask).sample()

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
