"""The off-policy actor-critic on whole trajectories (AMAGO, Grigsby et al., 2024, arXiv 2310.09971, appendix A)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call

from seqrl.algo.algo import Algo, Losses, PolicyAlgo, ValueAlgo, register_algo_factory_func
from seqrl.algo.objectives import masked_mean, n_step_targets, random_subset_reduction
from seqrl.algo.trunk import build_actor, build_trunk
from seqrl.configs.actor_critic_config import ActorCriticSection
from seqrl.core.errors import ConfigError
from seqrl.core.registry import FILTERS
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.critics import StateActionCritics, StateCritics
from seqrl.models.distributions import Categorical
from seqrl.models.popart import PopArt
from seqrl.models.sequence_encoders import State


@register_algo_factory_func("actor_critic")
def actor_critic_factory(algo_config: ActorCriticSection) -> tuple[type[Algo], dict[str, Any]]:
    """Return the class of the off-policy actor-critic."""
    return ActorCritic, {}


class ActorCritic(PolicyAlgo, ValueAlgo):
    """One trunk, an actor and an ensemble of critics per discount; policy gradient plus filtered imitation.

    Each of the G discounts has its own policy and its own values, trained only against themselves; the last one acts.
    Discrete actions are summed over; others are sampled. Advantages, which the filter sees, are in units of the
    critics' raw outputs: with PopArt and the default reward multiplier these are the original reward units.
    """

    needs_next_obs = True

    actor: Actor
    critic: nn.Module

    # ------------------------------------------------------------------------------------------ networks
    def _create_networks(self) -> None:
        section = self.agent_config
        self.discounts = torch.tensor([*section.extra_gammas, section.gamma], device=self.device)
        self.learns_values = section.online_coeff > 0 or section.filter.type != "none"
        self.trunk = build_trunk(self.config, section.sequence_encoder, self.obs, self.codec)
        self.actor = build_actor(
            self.trunk.d_output, section.actor, section.distribution, self.codec, len(self.discounts)
        )
        self.nets.update({"trunk": self.trunk, "actor": self.actor})
        if not self.learns_values:
            return
        self.critic = self._build_critic()
        self.target_critic = _frozen_copy(self.critic)
        self.popart = PopArt(len(self.discounts))
        self.nets.update({"critic": self.critic, "target_critic": self.target_critic, "popart": self.popart})
        if section.use_target_actor:
            self.target_actor = _frozen_copy(self.actor)
            self.nets["target_actor"] = self.target_actor

    @property
    def agent_config(self) -> Any:
        """The section ``algo``, as one that has what the agents share."""
        return self.algo_config

    @property
    def sums_over_actions(self) -> bool:
        """Whether values are expectations over all actions (one discrete factor) rather than means of samples."""
        return len(self.codec.factors) == 1

    def _build_critic(self) -> nn.Module:
        sizes = self.agent_config.critic.options()
        if self.sums_over_actions:
            return StateCritics(self.trunk.d_output, self.codec.dim, len(self.discounts), **sizes)
        return StateActionCritics(self.trunk.d_output, self.codec.dim, self.discounts, **sizes)

    # ------------------------------------------------------------------------------------ values of critics
    def to_values(self, raw: Tensor) -> Tensor:
        """Return values, in multiplied reward units, of the critics' raw outputs."""
        return raw * (self.popart.scale if self.agent_config.use_popart else 1.0)

    def normalized(self, values: Float[Tensor, "*lead G C"]) -> Float[Tensor, "*lead G C"]:
        """Return values in the units in which losses compare them."""
        return self.popart.normalize(values) if self.agent_config.use_popart else values

    def critic_loss(self, raw: Tensor, targets: Float[Tensor, "B T G"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
        """Return the squared error of the normalised values, over discounts and critics."""
        error = self.normalized(self.to_values(raw)) - self.normalized(targets.unsqueeze(-1))
        return masked_mean(error.square().mean((-1, -2)), self.edit_critic_mask(mask))

    def advantage(self, q_BTGC: Tensor, v_BTGC: Tensor) -> Float[Tensor, "B T G"]:
        """Return the advantage of the data's actions, in units of raw critic outputs."""
        scale = self.popart.scale if self.agent_config.use_popart else 1.0
        return (q_BTGC.mean(-1) - v_BTGC.mean(-1)) / scale

    def edit_actor_mask(self, mask: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """Return which transitions count in the actor's losses; a subclass may leave some out."""
        return mask

    def edit_critic_mask(self, mask: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """Return which transitions count in the critic's loss; a subclass may leave some out."""
        return mask

    def _action_values(self, critic: Any, state: Tensor, action: Float[Tensor, "B L A"]) -> Tensor:
        """Return raw outputs ``(B, L, G, C, ...)`` for one action per input."""
        if self.sums_over_actions:
            table_BLGAC = critic(state)
            return torch.einsum("blgac,bla->blgc", table_BLGAC, action)
        return critic(state, action[None, :, :, None])[0].squeeze(-1)  # type: ignore[no-any-return]

    def _policy_values(
        self, critic: Any, actor: Actor, state: Tensor, parameters: Tensor, action_mask: Tensor | None, num_samples: int
    ) -> Float[Tensor, "B L G C"]:
        """Return V of every input under the policies with these parameters; gradients flow through the actions."""
        if self.sums_over_actions:
            policy = actor.distribution(parameters, action_mask)
            assert isinstance(policy, Categorical)
            return torch.einsum("blgac,blga->blgc", self.to_values(critic(state)), policy.probs)
        repeated = parameters.expand(num_samples, *parameters.shape)
        mask = None if action_mask is None else action_mask.expand(num_samples, *action_mask.shape)
        actions_KBLGA = actor.distribution(repeated, mask).rsample()
        return self._sampled_values(critic(state, actions_KBLGA)).mean(0)

    def _sampled_values(self, raw_KBLGCO: Tensor) -> Tensor:
        """Return values of the raw outputs for sampled actions."""
        return self.to_values(raw_KBLGCO.squeeze(-1))

    # --------------------------------------------------------------------------------------------- losses
    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return critic, policy-gradient and filtered imitation losses, weighed and added."""
        section = self.agent_config
        state_BLD, _ = self.trunk(batch.inputs)
        parameters = self.actor.parameters_of(state_BLD)
        stats = self.trunk.stats(batch.inputs, batch.input_mask)
        actor_mask = self.edit_actor_mask(batch.mask)
        metrics: dict[str, Tensor] = {}
        total = state_BLD.new_zeros(())
        weight_BTG = torch.ones((), device=self.device)
        if self.learns_values:
            targets_BTG = self._td_targets(batch, state_BLD.detach(), parameters.detach())
            raw = self._action_values(self.critic, state_BLD[:, :-1], batch.actions)
            critic_loss = self.critic_loss(raw, targets_BTG, batch.mask)
            own_BLGC = self._own_values(state_BLD.detach(), parameters, batch.inputs.action_mask)
            q_BTGC = self._data_values(raw.detach())
            weight_BTG = self._filter_weights(q_BTGC, own_BLGC.detach()[:, :-1])
            total = total + section.critic_loss_weight * critic_loss
            stats["popart"] = self.popart.stats(targets_BTG, batch.mask)
            metrics |= {"loss/critic": critic_loss.detach()}
            metrics |= self._value_metrics(batch, targets_BTG, q_BTGC, weight_BTG)
            if section.online_coeff > 0:
                best_BTG = self.normalized(own_BLGC[:, :-1]).amin(-1)
                online = -masked_mean(best_BTG.mean(-1), actor_mask)
                total = total + section.online_coeff * online
                metrics["loss/actor_online"] = online.detach()
        if section.offline_coeff > 0:
            offline = self._imitation_loss(batch, parameters, weight_BTG, actor_mask)
            total = total + section.offline_coeff * offline
            metrics["loss/actor_offline"] = offline.detach()
        return Losses(total, metrics, stats)

    def _td_targets(self, batch: SeqBatch, state: Tensor, parameters: Tensor) -> Float[Tensor, "B T G"]:
        """Return bootstrapped targets, in multiplied reward units."""
        section = self.agent_config
        with torch.no_grad():
            actor = self.target_actor if section.use_target_actor else self.actor
            if section.use_target_actor:
                parameters = actor.parameters_of(state)
            values_BLGC = self._policy_values(
                self.target_critic, actor, state, parameters, batch.inputs.action_mask,
                section.num_actions_for_value_in_critic_loss,
            )  # fmt: skip
            values_BLG = random_subset_reduction(values_BLGC, section.num_critics_td, minimum=section.online_coeff > 0)
            rewards = batch.rewards * section.reward_multiplier
            return n_step_targets(rewards, batch.terminated, batch.mask, values_BLG, self.discounts, section.n_step)

    def _own_values(self, state: Tensor, parameters: Tensor, action_mask: Tensor | None) -> Float[Tensor, "B L G C"]:
        """Return V of the current policies, with gradients into the actions but into no critic parameter."""
        frozen = {k: v.detach() for k, v in self.critic.named_parameters()}

        def critic(*inputs: Tensor) -> Tensor:
            output: Tensor = functional_call(self.critic, frozen, inputs)
            return output

        num_samples = self.agent_config.num_actions_for_value_in_actor_loss
        return self._policy_values(critic, self.actor, state, parameters, action_mask, num_samples)

    def _data_values(self, raw: Tensor) -> Float[Tensor, "B T G C"]:
        """Return values of the raw outputs for the data's actions."""
        return self.to_values(raw)

    def _filter_weights(self, q_BTGC: Tensor, v_BTGC: Tensor) -> Float[Tensor, "B T G"]:
        section = self.agent_config.filter
        weights: Tensor = FILTERS.get(section.type)(self.advantage(q_BTGC, v_BTGC), **section.options())
        return weights

    def _imitation_loss(
        self, batch: SeqBatch, parameters: Tensor, weight_BTG: Tensor, mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, ""]:
        num_t, num_g = batch.num_transitions, len(self.discounts)
        legal = batch.inputs.action_mask
        policy = self.actor.distribution(parameters[:, :num_t], None if legal is None else legal[:, :num_t])
        actions_BTGA = batch.actions.unsqueeze(2).expand(-1, -1, num_g, -1)
        log_prob_BTG = policy.log_prob(actions_BTGA)
        if self.codec.kind == "binary":
            log_prob_BTG = log_prob_BTG / self.codec.dim
        return masked_mean(-(weight_BTG.detach() * log_prob_BTG).mean(-1), mask)

    def _value_metrics(
        self, batch: SeqBatch, targets_BTG: Tensor, q_BTGC: Tensor, weight_BTG: Tensor
    ) -> dict[str, Tensor]:
        mask = batch.mask
        last_q = q_BTGC[..., -1, :]
        return {
            "q/mean": masked_mean(last_q.mean(-1), mask),
            "q/ensemble_std": masked_mean(last_q.std(-1, correction=0), mask),
            "target/mean": masked_mean(targets_BTG[..., -1], mask),
            "filter/share": masked_mean((weight_BTG > 0.5).float().mean(-1), mask),
            "filter/mean": masked_mean(weight_BTG.mean(-1), mask),
            "popart/mean": self.popart.mean[-1].clone(),
            "popart/std": self.popart.std[-1].clone(),
            "data/padded_share": 1.0 - mask.float().mean(),
        }

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move input statistics, spectral norms, PopArt and the target networks."""
        super().on_gradient_step(stats)
        if not self.learns_values:
            return
        self.popart.update(stats["popart"])
        _follow(self.target_critic, self.critic, self.agent_config.tau)
        if self.agent_config.use_target_actor:
            _follow(self.target_actor, self.actor, self.agent_config.tau)

    # --------------------------------------------------------------------------------------------- acting
    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return the greedy or a sampled action of the last discount's policy."""
        hidden, state = self.trunk(inputs, state)
        parameters = self.actor.parameters_of(hidden)[..., -1:, :]
        distribution = self.actor.distribution(parameters, inputs.action_mask)
        action = distribution.mode() if deterministic else distribution.sample()
        return action[:, -1, 0], state

    # ------------------------------------------------------------------------------------------- analysis
    @torch.no_grad()
    def get_values(self, batch: SeqBatch) -> dict[str, Tensor]:
        """Return what the critics think of a processed batch.

        Returns:
            ``q``, ``v`` (means over critics), ``advantage``, ``filter_weight``, ``ensemble_std``: each ``(B, T, G)``,
            the values in original reward units.

        Raises:
            ConfigError: If the agent has no critics (``filter`` none and ``online_coeff`` 0).
        """
        if not self.learns_values:
            raise ConfigError("this agent has no critics: algo.filter.type is 'none' and algo.online_coeff is 0")
        state, _ = self.trunk(batch.inputs)
        q = self._data_values(self._action_values(self.critic, state[:, :-1], batch.actions))
        v = self._own_values(state, self.actor.parameters_of(state), batch.inputs.action_mask)[:, :-1]
        multiplier = self.agent_config.reward_multiplier
        return {
            "q": q.mean(-1) / multiplier,
            "v": v.mean(-1) / multiplier,
            "advantage": self.advantage(q, v),
            "filter_weight": self._filter_weights(q, v),
            "ensemble_std": q.std(-1, correction=0) / multiplier,
        }

    def get_state_value(self, batch: SeqBatch) -> Tensor:
        """Return V ``(B, T)`` under the acting discount, in original reward units."""
        return self.get_values(batch)["v"][..., -1]

    def get_state_action_value(self, batch: SeqBatch) -> Tensor:
        """Return Q ``(B, T)`` of the data's actions under the acting discount, in original reward units."""
        return self.get_values(batch)["q"][..., -1]


def _frozen_copy(net: Any) -> Any:
    target = copy.deepcopy(net)
    target.requires_grad_(False)
    return target


@torch.no_grad()
def _follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Move every parameter of the target a step towards the source's (Polyak averaging)."""
    torch._foreach_lerp_(list(target.parameters()), [p.detach() for p in source.parameters()], tau)
