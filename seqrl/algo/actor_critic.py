"""The off-policy actor-critic on whole trajectories (AMAGO, Grigsby et al., 2024, arXiv 2310.09971, appendix A)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.agent_metrics import weight_metrics
from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.objectives import masked_mean, random_subset_reduction
from seqrl.algo.value_agent import Pass, Terms, ValueAgent
from seqrl.configs.actor_critic_config import ActorCriticSection
from seqrl.configs.sections.agent import AgentSection, EntropySection
from seqrl.core.errors import ConfigError
from seqrl.core.registry import FILTERS
from seqrl.core.tensors import SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.distributions import Categorical
from seqrl.models.sequence_encoders import State
from seqrl.models.temperature import Temperature

INITIAL_WORTH, TARGET_SHARE = 0.2, 0.1
AgentSectionT = TypeVar("AgentSectionT", bound=AgentSection)


@register_algo_factory_func("actor_critic")
def actor_critic_factory(algo_config: ActorCriticSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of the off-policy actor-critic."""
    return ActorCritic, {}


class ActorCritic(ValueAgent[AgentSectionT]):
    """One trunk, an actor and an ensemble of critics per discount; policy gradient plus filtered imitation.

    Each of the G discounts has its own policy and its own values, trained only against themselves; the last one acts.
    Discrete actions are summed over; others are sampled. Advantages, which the filter sees, are in units of the
    environment's rewards with PopArt, and of multiplied ones without.

    Attributes:
        temperature: The worth of the policies' entropy, where ``algo.entropy`` asks for it.
    """

    temperature: Temperature | None

    def _create_networks(self) -> None:
        section = self.algo_config
        self.learns_values = section.online_coeff > 0 or section.filter.choice()[0] != "none"
        self.uses_target_actor = section.use_target_actor
        self.fitted = ("loss/critic",) if self.learns_values else ("loss/actor_offline",)
        super()._create_networks()
        if section.online_coeff > 0 and not self.actor.head.has_rsample:
            raise ConfigError(
                f"algo.distribution.type {section.distribution.choice()[0]!r} has no reparametrised sample, which the "
                "policy-gradient loss needs: set algo.online_coeff to 0, or choose another distribution"
            )
        name, options = section.filter.choice()
        self.weight_of_advantage = partial(FILTERS.get(name), **options)
        self.temperature = None if section.entropy is None else self._build_temperature(section.entropy)
        if self.temperature is not None:
            self.nets["temperature"] = self.temperature

    def _build_temperature(self, entropy: EntropySection) -> Temperature:
        if not self.actor.head.has_entropy:
            raise ConfigError("algo.entropy: the entropy of this algo.distribution is fixed, so nothing could raise it")
        if entropy.alpha != "auto":
            return Temperature(len(self.discounts), alpha=entropy.alpha)
        codec, target = self.codec, entropy.target
        if codec.kind == "continuous":
            target = -float(codec.dim) if target is None else target
        else:
            most = sum(map(math.log, codec.factors or [2] * codec.dim))
            target = TARGET_SHARE * most if target is None else target
            if not 0.0 < target < most:
                raise ConfigError(
                    f"algo.entropy.target: policies of {codec.space!r} have entropies from 0 to {most:.3f} nats; give "
                    f"one between, got {target}"
                )
        initial = INITIAL_WORTH if self.algo_config.use_popart else 1.0
        return Temperature(len(self.discounts), alpha=None, target=target, initial=initial)

    def _worth(self, temperature: Temperature) -> Float[Tensor, " G"]:
        """Return what a nat of entropy is worth, in the units of values."""
        return temperature.alpha * self.popart.scale if self.algo_config.use_popart else temperature.alpha

    @property
    def explores(self) -> bool:  # noqa: D102
        return self.algo_config.boltzmann is not None and self.learns_values and self.sums_over_actions

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
        q_BLAGC = self.values_of(self.critic.share(hidden).transpose(2, 3).unsqueeze(-1))
        unit = self.popart.std[-1] if self.algo_config.use_popart else 1.0
        q_BA = q_BLAGC[:, -1, :, -1].mean(-1) / (boltzmann.temperature * unit)
        mask = None if inputs.action_mask is None else inputs.action_mask[:, -1]
        preferred = Categorical(q_BA, self.codec.factors, 0.0, mask)
        by_value_B1 = (luck < boltzmann.share).unsqueeze(-1)
        return torch.where(by_value_B1, preferred.sample(), policy.sample()[:, -1, 0]), state

    def advantage(self, gap_BTGC: Tensor) -> Float[Tensor, "B T G"]:
        """Return the advantage of the data's actions, from Q - V of each critic.

        With PopArt it is in the units of the environment's rewards, else in multiplied ones.
        """
        return gap_BTGC.mean(-1) / (self.algo_config.reward_multiplier if self.algo_config.use_popart else 1.0)

    def _policy_values(
        self,
        critic: Callable[..., Tensor],
        share: Tensor,
        actor: Actor,
        parameters: Tensor,
        action_mask: Tensor | None,
        num_samples: int,
    ) -> Float[Tensor, "B L G C"]:
        """Return V of every input under the policies with these parameters; gradients flow through the actions.

        Args:
            critic: Called with ``share`` and sampled actions.
            share: What the critic makes of the states alone.
            actor: Turns parameters into distributions.
            parameters: ``(B, L, G, P)``.
            action_mask: ``(B, L, A)``.
            num_samples: K, where values are means over samples.
        """
        if self.sums_over_actions:
            return self._expected(share, actor, parameters, action_mask)[0]
        return self._sampled(critic, share, actor, parameters, action_mask, num_samples)[0].mean(0)

    def _expected(
        self, table: Tensor, actor: Actor, parameters: Tensor, action_mask: Tensor | None
    ) -> tuple[Float[Tensor, "B L G C"], Float[Tensor, "B L G A"]]:
        """Return V from the values of all actions, and the probability of each."""
        policy = actor.distribution(parameters, action_mask)
        assert isinstance(policy, Categorical)
        with torch.autocast(table.device.type, enabled=False):
            return self.values_of(torch.einsum("blgac,blga->blgc", table, policy.probs).unsqueeze(-1)), policy.probs

    def _sampled(
        self,
        critic: Callable[..., Tensor],
        share: Tensor,
        actor: Actor,
        parameters: Tensor,
        action_mask: Tensor | None,
        num_samples: int,
    ) -> tuple[Float[Tensor, "K B L G C"], Float[Tensor, "K B L G A"]]:
        """Return the values of samples, and the samples as environments execute them."""
        repeated = parameters.expand(num_samples, *parameters.shape)
        mask = None if action_mask is None else action_mask.expand(num_samples, *action_mask.shape)
        policy = actor.distribution(repeated, mask)
        actions_KBLGA = policy.rsample() if torch.is_grad_enabled() else policy.sample()
        # Critics only know what environments execute.
        executed = actions_KBLGA.clamp(-1.0, 1.0) if self.codec.kind == "continuous" else actions_KBLGA
        return self.values_of(critic(share, executed)), executed

    def _own_values(self, p: Pass) -> tuple[Float[Tensor, "B T G C"], Float[Tensor, "B T G C"]]:
        """Return V of the current policies, whose gradients reach the policies' parameters alone, and Q - V.

        Q - V is a mean of differences to the values of single actions, without gradients: where the policy does
        what the data did it is exactly 0, not what rounding makes of it, which decides a filter's ties.
        """
        section, num_t = self.algo_config, p.batch.num_transitions
        given = (p.share.detach(), self.actor, p.parameters, p.batch.inputs.action_mask)
        q_BTGC = self.values_of(p.raw.detach())
        with torch.set_grad_enabled(torch.is_grad_enabled() and section.online_coeff > 0):
            if self.sums_over_actions:
                own_BLGC, probs_BLGA = self._expected(*given)
                gap_BTAGC = q_BTGC.unsqueeze(2) - self.values_of(given[0][:, :num_t].transpose(2, 3).unsqueeze(-1))
                probs_BTAG1 = probs_BLGA[:, :num_t].detach().transpose(2, 3).unsqueeze(-1)
                return own_BLGC[:, :num_t], (probs_BTAG1 * gap_BTAGC).sum(2)
            values_KBLGC, actions_KBLGA = self._sampled(
                self.constant_critic(), *given, section.num_actions_for_value_in_actor_loss
            )
        same_KBTG = (actions_KBLGA[:, :, :num_t].detach() == p.batch.actions.unsqueeze(2)).all(-1)
        gap_KBTGC = q_BTGC - values_KBLGC[:, :, :num_t].detach()
        return values_KBLGC.mean(0)[:, :num_t], gap_KBTGC.masked_fill(same_KBTG.unsqueeze(-1), 0.0).mean(0)

    # --------------------------------------------------------------------------------------------- losses
    def next_values(self, p: Pass) -> Float[Tensor, "B L G"]:
        """Return V under the following copies, over a random few of the critics."""
        section, state, parameters = self.algo_config, p.state.detach(), p.parameters.detach()
        actor = self.target_actor if self.uses_target_actor else self.actor
        if self.uses_target_actor:
            parameters = actor.parameters_of(state, p.batch.inputs)
        values_BLGC = self._policy_values(
            self.target_critic, self.target_critic.share(state), actor, parameters, p.batch.inputs.action_mask,
            section.num_actions_for_value_in_critic_loss,
        )  # fmt: skip
        values_BLG = random_subset_reduction(values_BLGC, section.num_critics_td, minimum=section.online_coeff > 0)
        if self.temperature is None or section.entropy is None or not section.entropy.backup:
            return values_BLG
        policy = actor.distribution(parameters, p.batch.inputs.action_mask)
        return values_BLG + self._worth(self.temperature) * policy.entropy()

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
            metrics = weight_metrics(p.batch.mask, weight_BTG) if self.wants_metrics else {}
            if self.temperature is not None:
                entropy_BTG = self.policy_over_data(p).entropy()
                own_BTGC = own_BTGC + (self._worth(self.temperature) * entropy_BTG).unsqueeze(-1)
                losses |= self._temperature_losses(self.temperature, entropy_BTG, p)
                metrics |= self._temperature_metrics(self.temperature)
            if section.online_coeff > 0:
                own_BTGC = self.normalized(own_BTGC)
                judged_BTG = own_BTGC.amin(-1) if section.online_value == "min" else own_BTGC.mean(-1)
                losses["actor_online"] = (section.online_coeff, -judged_BTG.mean(-1))
        if section.offline_coeff > 0:
            imitation_BT = -(weight_BTG * self.log_prob_of_data(p)).mean(-1)
            losses["actor_offline"] = (section.offline_coeff, imitation_BT)
        return Terms(losses, metrics)

    def _temperature_losses(
        self, temperature: Temperature, entropy_BTG: Tensor, p: Pass
    ) -> dict[str, tuple[float, Tensor]]:
        """Return what moves a learned temperature: a scalar, so that edits of the actor's mask see actions only."""
        if not temperature.is_learned:
            return {}
        return {"temperature": (1.0, masked_mean(temperature.loss(entropy_BTG), p.batch.mask))}

    def _temperature_metrics(self, temperature: Temperature) -> dict[str, Tensor]:
        names = self.discounts_by_name if self.wants_metrics and temperature.is_learned else []
        return {f"temperature/alpha_{name}": temperature.alpha[i] for i, name in enumerate(names)}

    def _filter_weights(self, gap_BTGC: Tensor) -> Float[Tensor, "B T G"]:
        weights: Tensor = self.weight_of_advantage(self.advantage(gap_BTGC))
        return weights.detach()

    def judged(self, p: Pass) -> dict[str, Float[Tensor, "B T G"]]:
        """Return V of the current policies, the advantage of the data's actions over it, and the filter's weight."""
        own_BTGC, gap_BTGC = self._own_values(p)
        return {
            "v": own_BTGC.mean(-1),
            "advantage": self.advantage(gap_BTGC),
            "filter_weight": self._filter_weights(gap_BTGC),
        }
