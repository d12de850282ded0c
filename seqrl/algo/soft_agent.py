"""What algorithms share whose policy climbs its own critics, with a worth for its entropy or without (SAC, SVG(0))."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.objectives import masked_mean, random_subset_reduction
from seqrl.algo.value_agent import Pass, Terms, ValueAgent
from seqrl.configs.sections.agent import EntropySection, SoftSection
from seqrl.core.errors import ConfigError
from seqrl.models.actors import Actor
from seqrl.models.distributions import Categorical
from seqrl.models.temperature import Temperature

INITIAL_WORTH, TARGET_SHARE = 0.2, 0.1
SoftSectionT = TypeVar("SoftSectionT", bound=SoftSection)


class SoftAgent(ValueAgent[SoftSectionT]):
    """A policy per discount that climbs the values of its own actions, under critics of its own policy.

    Discrete actions are summed over; others are sampled.

    Attributes:
        climbs: Whether the policy does; if not, it learns something else, but the critics still judge it.
        temperature: The worth of the policies' entropy, where ``algo.entropy`` asks for it.

    Source: Haarnoja et al. (2018), Soft Actor-Critic Algorithms and Applications, arXiv 1812.05905.
    """

    climbs = True
    temperature: Temperature | None

    def _create_networks(self) -> None:
        section = self.algo_config
        self.uses_target_actor = section.use_target_actor
        self.looks_ahead = self.learns_values and not self.uses_target_actor
        super()._create_networks()
        if self.climbs and not self.actor.head.has_rsample:
            raise ConfigError(
                f"algo.distribution.type {section.distribution.choice()[0]!r} has no reparametrised sample, which the "
                "policy-gradient loss needs: choose another distribution (or, where there is that key, set "
                "algo.online_coeff to 0)"
            )
        self.temperature = None if section.entropy is None else self._build_temperature(section.entropy)
        if self.temperature is not None:
            self.nets["temperature"] = self.temperature

    @property
    def num_target_critics(self) -> int:
        """How many critics, drawn anew everywhere, make a target: all."""
        return self.algo_config.critic.num_critics

    def _build_temperature(self, entropy: EntropySection) -> Temperature:
        if not self.actor.head.has_entropy:
            raise ConfigError("algo.entropy: the entropy of this algo.distribution is fixed, so nothing could raise it")
        if entropy.alpha != "auto":
            return Temperature(len(self.discounts), alpha=entropy.alpha)
        codec, target = self.codec, entropy.target
        values, choices = codec.parts or ((codec, None) if codec.kind == "continuous" else (None, codec))
        most = 0.0 if choices is None else sum(map(math.log, choices.factors or [2] * choices.dim))
        if values is not None:
            target = TARGET_SHARE * most - float(values.dim) if target is None else target
        else:
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
        executed = actions_KBLGA.clamp(-1.0, 1.0) if self.codec.kind in ("continuous", "hybrid") else actions_KBLGA
        return self.values_of(critic(share, executed)), executed

    def _own_values(self, p: Pass) -> tuple[Float[Tensor, "B T G C"], Float[Tensor, "B T G C"]]:
        """Return V of the current policies, whose gradients reach the policies' parameters alone, and Q - V.

        Q - V is a mean of differences to the values of single actions, without gradients: where the policy does
        what the data did it is exactly 0, not what rounding makes of it, which decides a filter's ties.
        """
        num_t, legal = p.batch.num_transitions, p.batch.inputs.action_mask
        given = (p.share.detach(), self.actor, p.parameters[:, :num_t], None if legal is None else legal[:, :num_t])
        q_BTGC = self.values_of(p.raw.detach())
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.climbs):
            if self.sums_over_actions:
                own_BTGC, probs_BTGA = self._expected(*given)
                gap_BTAGC = q_BTGC.unsqueeze(2) - self.values_of(given[0].transpose(2, 3).unsqueeze(-1))
                probs_BTAG1 = probs_BTGA.detach().transpose(2, 3).unsqueeze(-1)
                return own_BTGC, (probs_BTAG1 * gap_BTAGC).sum(2)
            values_KBTGC, actions_KBTGA = self._sampled(
                self.constant_critic(), *given, self.algo_config.num_actions_for_value_in_actor_loss
            )
        same_KBTG = (actions_KBTGA.detach() == p.batch.actions.unsqueeze(2)).all(-1)
        gap_KBTGC = q_BTGC - values_KBTGC.detach()
        return values_KBTGC.mean(0), gap_KBTGC.masked_fill(same_KBTG.unsqueeze(-1), 0.0).mean(0)

    # --------------------------------------------------------------------------------------------- losses
    def next_values(self, p: Pass) -> Float[Tensor, "B T G"]:
        """Return V under the following copies; the smallest of the critics that make a target, if the policy climbs."""
        section, state, inputs = self.algo_config, p.state[:, 1:].detach(), p.batch.inputs.after_first()
        actor = self.target_actor if self.uses_target_actor else self.actor
        parameters = actor.parameters_of(state, inputs) if self.uses_target_actor else p.parameters[:, 1:].detach()
        values_BTGC = self._policy_values(
            self.target_critic, self.target_critic.share(state), actor, parameters, inputs.action_mask,
            section.num_actions_for_value_in_critic_loss,
        )  # fmt: skip
        values_BTG = random_subset_reduction(values_BTGC, self.num_target_critics, minimum=self.climbs)
        if self.temperature is None or section.entropy is None or not section.entropy.backup:
            return values_BTG
        policy = actor.distribution(parameters, inputs.action_mask)
        return values_BTG + self._worth(self.temperature) * policy.entropy()

    def actor_terms(self, p: Pass) -> Terms:
        """Return the policy gradient."""
        return self.policy_gradient(p, self._own_values(p)[0])

    def policy_gradient(
        self, p: Pass, own_BTGC: Float[Tensor, "B T G C"], *, weight: float = 1.0, name: str = "actor"
    ) -> Terms:
        """Return the loss that makes own actions more valuable, and what moves the worth of entropy.

        Args:
            p: Of the batch.
            own_BTGC: Values of own actions, with gradients.
            weight: Of the loss.
            name: Of the loss.
        """
        losses: dict[str, tuple[float, Tensor]] = {}
        metrics: dict[str, Tensor] = {}
        if self.temperature is not None:
            entropy_BTG = self.policy_over_data(p).entropy()
            own_BTGC = own_BTGC + (self._worth(self.temperature) * entropy_BTG).unsqueeze(-1)
            losses |= self._temperature_losses(self.temperature, entropy_BTG, p)
            metrics |= self._temperature_metrics(self.temperature)
        own_BTGC = self.normalized(own_BTGC)
        judged_BTG = own_BTGC.amin(-1) if self.algo_config.online_value == "min" else own_BTGC.mean(-1)
        return Terms({**losses, name: (weight, -judged_BTG.mean(-1))}, metrics)

    def _temperature_losses(
        self, temperature: Temperature, entropy_BTG: Tensor, p: Pass
    ) -> dict[str, tuple[float, Tensor]]:
        """Return what moves a learned temperature: a scalar, so that edits of the actor's mask see actions only."""
        if not temperature.is_learned:
            return {}
        entropy_BTG = entropy_BTG + self._forced_entropy(p)
        return {"temperature": (1.0, masked_mean(temperature.loss(entropy_BTG), p.batch.mask))}

    def _forced_entropy(self, p: Pass) -> Float[Tensor, "B T 1"] | float:
        """Return what illegal actions take from the default target, a share of the entropy of random choice."""
        legal, section = p.batch.inputs.action_mask, self.algo_config.entropy
        if legal is None or section is None or section.target is not None or self.codec.parts:
            return 0.0
        legal = legal[:, : p.batch.num_transitions]
        if self.codec.kind == "binary":
            return TARGET_SHARE * math.log(2) * (~legal).sum(-1, keepdim=True)
        factors = legal.split(self.codec.factors, dim=-1)
        forced = [math.log(f.shape[-1]) - f.sum(-1).clamp(min=1).log() for f in factors]
        return TARGET_SHARE * torch.stack(forced, dim=-1).sum(-1, keepdim=True)

    def _temperature_metrics(self, temperature: Temperature) -> dict[str, Tensor]:
        names = self.discounts_by_name if self.wants_metrics and temperature.is_learned else []
        return {f"temperature/alpha_{name}": temperature.alpha[i] for i, name in enumerate(names)}

    def advantage(self, gap_BTGC: Tensor) -> Float[Tensor, "B T G"]:
        """Return the advantage of the data's actions, from Q - V of each critic.

        With PopArt it is in the units of the environment's rewards, else in multiplied ones.
        """
        return gap_BTGC.mean(-1) / (self.multiplier if self.algo_config.use_popart else 1.0)

    def judged(self, p: Pass) -> dict[str, Float[Tensor, "B T G"]]:
        """Return V of the current policies, and the advantage of the data's actions over it."""
        own_BTGC, gap_BTGC = self._own_values(p)
        return {"v": own_BTGC.mean(-1), "advantage": self.advantage(gap_BTGC)}
