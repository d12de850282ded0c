"""The off-policy actor-critic on whole trajectories (AMAGO, Grigsby et al., 2024, arXiv 2310.09971, appendix A)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import functional_call

from seqrl.algo.agent_metrics import policy_metrics, popart_metrics, value_metrics
from seqrl.algo.algo import Algo, Losses, PolicyAlgo, ValueAlgo, register_algo_factory_func
from seqrl.algo.objectives import masked_mean, n_step_targets, random_subset_reduction
from seqrl.algo.trunk import build_actor, build_trunk
from seqrl.configs.actor_critic_config import ActorCriticSection
from seqrl.core.errors import ConfigError
from seqrl.core.registry import FILTERS
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.critics import Critics, StateActionCritics, StateCritics
from seqrl.models.distributions import ActionDistribution, Categorical
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

    actor: Actor
    critic: Critics

    # ------------------------------------------------------------------------------------------ networks
    def _create_networks(self) -> None:
        section = self.agent_config
        self.discounts = torch.tensor([*section.extra_gammas, section.gamma], device=self.device)
        self.learns_values = self.needs_next_obs = section.online_coeff > 0 or section.filter.type != "none"
        self.trunk = build_trunk(self.config, section.sequence_encoder, self.obs, self.codec)
        self.actor = build_actor(
            self.trunk.d_output, section.actor, section.distribution, self.obs, self.codec, len(self.discounts)
        )
        if section.online_coeff > 0 and not self.actor.head.has_rsample:
            raise ConfigError(
                f"algo.distribution.type {section.distribution.type!r} has no reparametrised sample, which the "
                "policy-gradient loss needs: set algo.online_coeff to 0, or choose another distribution"
            )
        self.nets.update({"trunk": self.trunk, "actor": self.actor})
        if not self.learns_values:
            return
        self.weight_of_advantage = partial(FILTERS.get(section.filter.type), **section.filter.options())
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

    def _build_critic(self) -> Critics:
        sizes = self.agent_config.critic.options()
        if self.sums_over_actions:
            return StateCritics(self.trunk.d_output, self.codec.dim, len(self.discounts), **sizes)
        return self._build_action_critic(**sizes)

    def _build_action_critic(self, **sizes: Any) -> StateActionCritics:
        num_active = len(self.codec.factors) or None
        return StateActionCritics(self.trunk.d_output, self.codec.dim, self.discounts, num_active=num_active, **sizes)

    # ------------------------------------------------------------------------------------------- values
    def values_of(self, raw: Float[Tensor, "*lead O"]) -> Float[Tensor, "*lead"]:
        """Return values, in multiplied reward units, of the critics' raw outputs."""
        return raw.squeeze(-1) * (self.popart.scale if self.agent_config.use_popart else 1.0)

    def normalized(self, values: Float[Tensor, "*lead G C"]) -> Float[Tensor, "*lead G C"]:
        """Return values in the units in which losses compare them."""
        return self.popart.normalize(values) if self.agent_config.use_popart else values

    def critic_loss(
        self, raw: Float[Tensor, "B T G C O"], targets: Float[Tensor, "B T G"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, ""]:
        """Return the squared error of the normalised values, over discounts and critics."""
        error = self.normalized(self.values_of(raw)) - self.normalized(targets.unsqueeze(-1))
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

    def _policy_values(
        self, critic: Any, share: Tensor, actor: Actor, parameters: Tensor, action_mask: Tensor | None, num_samples: int
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
            policy = actor.distribution(parameters, action_mask)
            assert isinstance(policy, Categorical)
            with torch.autocast(share.device.type, enabled=False):
                return self.values_of(torch.einsum("blgac,blga->blgc", share, policy.probs).unsqueeze(-1))
        repeated = parameters.expand(num_samples, *parameters.shape)
        mask = None if action_mask is None else action_mask.expand(num_samples, *action_mask.shape)
        policy = actor.distribution(repeated, mask)
        actions_KBLGA = policy.rsample() if torch.is_grad_enabled() else policy.sample()
        # Critics only know what environments execute.
        executed = actions_KBLGA.clamp(-1.0, 1.0) if self.codec.kind == "continuous" else actions_KBLGA
        return self.values_of(critic(share, executed)).mean(0)

    def _judged(
        self, batch: SeqBatch, state: Tensor, parameters: Tensor
    ) -> tuple[Float[Tensor, "B T G C O"], Float[Tensor, "B L G C"]]:
        """Return the critics' raw outputs for the data's actions, and V of the current policies.

        Gradients of the first reach critic and state; those of the second the policy's parameters, and nothing else.
        """
        section = self.agent_config
        share = self.critic.share(state)
        raw = self.critic(share[:, :-1], batch.actions[None, :, :, None])[0]
        frozen = {k: v.detach() for k, v in self.critic.named_parameters()}

        def constant_critic(*inputs: Tensor) -> Tensor:
            output: Tensor = functional_call(self.critic, frozen, inputs)
            return output

        with torch.set_grad_enabled(torch.is_grad_enabled() and section.online_coeff > 0):
            own_BLGC = self._policy_values(
                constant_critic, share.detach(), self.actor, parameters, batch.inputs.action_mask,
                section.num_actions_for_value_in_actor_loss,
            )  # fmt: skip
        return raw, own_BLGC

    # --------------------------------------------------------------------------------------------- losses
    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return critic, policy-gradient and filtered imitation losses, weighed and added."""
        section = self.agent_config
        state_BLD, _ = self.trunk(batch.inputs)
        parameters = self.actor.parameters_of(state_BLD, batch.inputs)
        stats = self.trunk.stats(batch.inputs, batch.input_mask)
        actor_mask = self.edit_actor_mask(batch.mask)
        metrics: dict[str, Tensor] = {"data/padded_share": 1.0 - batch.mask.float().mean()}
        total = state_BLD.new_zeros(())
        weight_BTG = torch.ones((), device=self.device)
        if self.learns_values:
            targets_BTG = self._td_targets(batch, state_BLD.detach(), parameters.detach())
            raw, own_BLGC = self._judged(batch, state_BLD, parameters)
            critic_loss = self.critic_loss(raw, targets_BTG, batch.mask)
            total = total + section.critic_loss_weight * critic_loss
            q_BTGC = self.values_of(raw.detach())
            weight_BTG = self._filter_weights(q_BTGC, own_BLGC.detach()[:, :-1])
            stats["popart"] = self.popart.stats(targets_BTG, batch.mask)
            metrics["loss/critic"] = critic_loss.detach()
            if self.wants_metrics:
                metrics |= value_metrics(batch.mask, self.discounts_by_name, targets_BTG, q_BTGC, weight_BTG)
                metrics |= popart_metrics(self.popart, self.discounts_by_name) if section.use_popart else {}
            if section.online_coeff > 0:
                own_BTGC = self.normalized(own_BLGC[:, :-1])
                judged_BTG = own_BTGC.amin(-1) if section.online_value == "min" else own_BTGC.mean(-1)
                online = -masked_mean(judged_BTG.mean(-1), actor_mask)
                total = total + section.online_coeff * online
                metrics["loss/actor_online"] = online.detach()
        policy = self._policy_over_data(batch, parameters)
        if section.offline_coeff > 0:
            offline = self._imitation_loss(policy, batch.actions, weight_BTG, actor_mask)
            total = total + section.offline_coeff * offline
            metrics["loss/actor_offline"] = offline.detach()
        if self.wants_metrics:
            metrics |= policy_metrics(policy, batch.mask)
        return Losses(total, metrics, stats)

    def _td_targets(self, batch: SeqBatch, state: Tensor, parameters: Tensor) -> Float[Tensor, "B T G"]:
        """Return bootstrapped targets, in multiplied reward units."""
        section = self.agent_config
        with torch.no_grad():
            actor = self.target_actor if section.use_target_actor else self.actor
            if section.use_target_actor:
                parameters = actor.parameters_of(state, batch.inputs)
            values_BLGC = self._policy_values(
                self.target_critic, self.target_critic.share(state), actor, parameters, batch.inputs.action_mask,
                section.num_actions_for_value_in_critic_loss,
            )  # fmt: skip
            values_BLG = random_subset_reduction(values_BLGC, section.num_critics_td, minimum=section.online_coeff > 0)
            rewards = batch.rewards * section.reward_multiplier
            return n_step_targets(rewards, batch.terminated, batch.mask, values_BLG, self.discounts, section.n_step)

    def _filter_weights(self, q_BTGC: Tensor, v_BTGC: Tensor) -> Float[Tensor, "B T G"]:
        weights: Tensor = self.weight_of_advantage(self.advantage(q_BTGC, v_BTGC))
        return weights

    def _policy_over_data(self, batch: SeqBatch, parameters: Tensor) -> ActionDistribution:
        """Return the policies ``(B, T, G)`` at the inputs that have an action."""
        num_t, legal = batch.num_transitions, batch.inputs.action_mask
        return self.actor.distribution(parameters[:, :num_t], None if legal is None else legal[:, :num_t])

    def _imitation_loss(
        self, policy: ActionDistribution, actions: Tensor, weight_BTG: Tensor, mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, ""]:
        actions_BTGA = actions.unsqueeze(2).expand(-1, -1, len(self.discounts), -1)
        log_prob_BTG = policy.log_prob(actions_BTGA)
        if self.codec.kind == "binary":
            log_prob_BTG = log_prob_BTG / self.codec.dim
        return masked_mean(-(weight_BTG.detach() * log_prob_BTG).mean(-1), mask)

    @property
    def discounts_by_name(self) -> list[str]:
        """The discounts as they appear in the names of metrics."""
        return [str(gamma) for gamma in (*self.agent_config.extra_gammas, self.agent_config.gamma)]

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
        parameters = self.actor.parameters_of(hidden, inputs)[..., -1:, :]
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
        raw, own = self._judged(batch, state, self.actor.parameters_of(state, batch.inputs))
        q, v = self.values_of(raw), own[:, :-1]
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
