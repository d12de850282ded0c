"""What all algorithms share that learn values of actions: one pass of the memory, then hooks for the idea."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.func import functional_call

from seqrl.algo.agent_metrics import policy_metrics, popart_metrics, value_metrics
from seqrl.algo.algo import PolicyAlgo, ValueAlgo
from seqrl.algo.heads import build_actor, build_critics, critic_class
from seqrl.algo.losses import Losses, MaskEdit
from seqrl.algo.objectives import masked_mean, n_step_targets
from seqrl.algo.targets import follow, frozen_copy
from seqrl.algo.trunk import build_trunk
from seqrl.configs.sections.agent import ValueSection
from seqrl.core.errors import ConfigError, DataError, PluginError
from seqrl.core.registry import Choice
from seqrl.core.spaces import MASK_KEY
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.critics import Critics, StateCritics
from seqrl.models.distributions import ActionDistribution
from seqrl.models.popart import PopArt
from seqrl.models.reward_scale import RewardScale
from seqrl.models.sequence_encoders import State

ValueSectionT = TypeVar("ValueSectionT", bound=ValueSection)


def _times(weight: float, loss: Tensor) -> Tensor:
    return loss if weight == 1.0 else weight * loss


@dataclass(frozen=True)
class Pass:
    """What one pass of the memory over a batch gives; G discounts, C critics with O outputs.

    Attributes:
        batch: Processed.
        state: ``(B, L, D)`` of the memory.
        parameters: ``(B, L, G, P)`` of the policies; ``(B, T, G, P)`` unless :attr:`ValueAgent.looks_ahead`; the
            memory's state instead in a step of rest that logs nothing.
        share: What the critics make of the states alone that have an action, ``(B, T, ...)``.
        raw: ``(B, T, G, C, O)`` outputs of the critics for the data's actions.
        extras: Name -> what :meth:`ValueAgent.extra_heads` made of the states.
    """

    batch: SeqBatch
    state: Float[Tensor, "B L D"]
    parameters: Tensor
    share: Tensor
    raw: Tensor
    extras: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Terms:
    """Parts of the loss by name, and what to log of them.

    Attributes:
        losses: Name -> (weight, loss). A loss is ``(B, T)``, one number per transition, whose mean over the real ones
            counts; or a scalar, which counts as it is.
        metrics: Name ``group/name`` -> detached scalar.
    """

    losses: Mapping[str, tuple[float, Tensor]]
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


class ValueAgent(PolicyAlgo[ValueSectionT], ValueAlgo):
    """A memory, a policy and an ensemble of critics per discount, whose targets come from slowly following copies.

    A subclass says what its targets are made of (:meth:`next_values`), what the critics learn (:meth:`critic_terms`)
    and what the policy learns (:meth:`actor_terms`). Each discount has values of its own; the last one acts.

    Attributes:
        auto_distribution: Kind of action -> what ``algo.distribution`` ``auto`` means, where it is not the usual one.
        learns_values: Whether there are critics.
        uses_target_actor: Whether a copy of the policy follows it.
        looks_ahead: Whether losses ask for the policies at every input, or only where there is an action.
        rests: Whether this gradient step leaves the policy and the targets as they are.
    """

    auto_distribution: ClassVar[Mapping[str, Choice]] = {}
    fitted: tuple[str, ...] = ("loss/critic",)
    learns_values = True
    uses_target_actor = False
    looks_ahead = False
    rests = False
    actor: Actor
    critic: Critics

    # ------------------------------------------------------------------------------------------ networks
    def _create_networks(self) -> None:
        section = self.algo_config
        self.discount = section.gamma
        self.discounts = torch.tensor([*section.extra_gammas, section.gamma], device=self.device)
        self.trunk = build_trunk(self.config, section.sequence_encoder, self.obs, self.codec, self.trunk_obs)
        self.actor = self._build_actor()
        self.nets.update({"trunk": self.trunk, "actor": self.actor})
        self.reward_scale: RewardScale | None = None
        if not self.learns_values:
            return
        self.needs = self.needs | {"next_obs"}
        self.critic = self._build_critic()
        self.target_critic = frozen_copy(self.critic)
        self.popart = PopArt(self.discounts, section.popart_rate)
        if self.config.train.normalize_rewards != "none":
            self.nets["reward_scale"] = self.reward_scale = RewardScale()
        self.nets.update({"critic": self.critic, "target_critic": self.target_critic, "popart": self.popart})
        if self.uses_target_actor:
            self.target_actor = frozen_copy(self.actor)
            self.nets["target_actor"] = self.target_actor

    @property
    def multiplier(self) -> float | Tensor:
        """What the losses multiply rewards by."""
        own = self.algo_config.reward_multiplier
        return own if self.reward_scale is None else own * self.reward_scale.factor

    @property
    def scales_rewards(self) -> bool:
        """Whether it has values."""
        return self.learns_values

    @property
    def needs_returns(self) -> bool:
        """Whether rewards are scaled by the range of the data's returns."""
        return self.reward_scale is not None

    def use_returns(self, returns: Float[Tensor, " N"]) -> None:
        """Take the worst and the best return of the training data, by which rewards are scaled if asked."""
        if self.reward_scale is not None:
            self.reward_scale.use(float(returns.min()), float(returns.max()))

    def _build_actor(self) -> Actor:
        num = len(self.discounts)
        return build_actor(
            self.trunk.d_output, self.algo_config, self.obs, self.codec, num, auto=self.auto_distribution
        )

    @property
    def sums_over_actions(self) -> bool:
        """Whether critics give the values of all actions at once (one discrete factor), or take one as an input."""
        return issubclass(critic_class(self.algo_config.critic, self.codec), StateCritics)

    def _build_critic(self) -> Critics:
        section = self.algo_config.critic
        given = (self.trunk.d_output, section, self.codec, self.discounts)
        return build_critics(critic_class(section, self.codec), *given)

    # ------------------------------------------------------------------------------------ units of values
    def values_of(self, raw: Float[Tensor, "*lead G C O"]) -> Float[Tensor, "*lead G C"]:
        """Return values, in multiplied reward units, of the critics' raw outputs."""
        return raw.squeeze(-1) * self.popart.scale[:, None] if self.algo_config.use_popart else raw.squeeze(-1)

    def normalized(self, values: Float[Tensor, "*lead G C"]) -> Float[Tensor, "*lead G C"]:
        """Return values in the units in which losses compare them."""
        return self.popart.normalize(values) if self.algo_config.use_popart else values

    def critic_error(self, raw: Float[Tensor, "B T G C O"], targets: Float[Tensor, "B T G"]) -> Float[Tensor, "B T"]:
        """Return the squared error of the normalised values, averaged over discounts and critics."""
        error = self.normalized(self.values_of(raw)) - self.normalized(targets.unsqueeze(-1))
        return error.square().mean((-1, -2))

    def constant_critic(self) -> Callable[..., Tensor]:
        """Return the critics as a function whose gradients reach its inputs, but not the critics."""
        if torch.compiler.is_compiling():  # it cannot trace the quicker way below
            frozen = {k: v.detach() for k, v in self.critic.named_parameters()}
            return lambda *inputs: functional_call(self.critic, frozen, inputs)
        learned = [p for p in self.critic.parameters() if p.requires_grad]

        def critic(*inputs: Tensor) -> Tensor:
            try:
                for p in learned:
                    p.requires_grad_(False)
                output: Tensor = self.critic(*inputs)
            finally:
                for p in learned:
                    p.requires_grad_(True)
            return output

        return critic

    # --------------------------------------------------------------------------------------------- hooks
    def extra_heads(self, batch: SeqBatch, state: Float[Tensor, "B L D"]) -> Mapping[str, Tensor]:
        """Return what further networks make of the memory's states, for :attr:`Pass.extras`; nothing by default."""
        return {}

    def policy_parameters(self, state: Float[Tensor, "B L D"], inputs: SeqInputs) -> Float[Tensor, "B L G P"]:
        """Return the parameters of the policies at every input."""
        return self.actor.parameters_of(state, inputs)

    @abstractmethod
    def next_values(self, p: Pass) -> Float[Tensor, "B T G"]:
        """Return the values of the inputs that follow the transitions; no gradient is taken."""

    def critic_terms(self, p: Pass, targets: Float[Tensor, "B T G"]) -> Terms:
        """Return the losses of the critics, given targets in multiplied reward units; by default their errors."""
        return Terms({"critic": (1.0, self.critic_error(p.raw, targets))})

    @abstractmethod
    def actor_terms(self, p: Pass) -> Terms:
        """Return the losses of the policy."""

    @abstractmethod
    def judged(self, p: Pass) -> dict[str, Float[Tensor, "B T G"]]:
        """Return ``v`` (multiplied reward units), ``advantage`` and, where it weighs imitation, ``filter_weight``."""

    # --------------------------------------------------------------------------------------------- losses
    def look(self, batch: SeqBatch) -> Pass:
        """Return what one pass over a processed batch gives."""
        state, _ = self.trunk(batch.inputs, before=batch.before)
        num = batch.num_transitions + self.looks_ahead
        is_asked = self.wants_metrics or not self.rests
        parameters = self.policy_parameters(state[:, :num], batch.inputs.first(num)) if is_asked else state
        if not self.learns_values:
            return Pass(batch, state, parameters, state, state)
        share = self.critic.share(state[:, :-1])
        raw = self.critic(share, batch.actions[None, :, :, None])[0]
        return Pass(batch, state, parameters, share, raw, self.extra_heads(batch, state))

    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the losses of critics and policy, weighed and added."""
        return self.losses(self.look(batch))

    def losses(self, p: Pass) -> Losses:
        """Return them, given what one pass gave."""
        batch = p.batch
        stats = self.trunk.stats(batch.inputs, batch.input_mask)
        metrics: dict[str, Tensor] = {}
        if self.wants_metrics:
            metrics["data/padded_share"] = 1.0 - batch.mask.float().mean()
        parts: list[Tensor] = []
        if self.learns_values:
            with torch.no_grad():
                targets = self.targets(batch, self.next_values(p))
            if self.algo_config.use_popart:
                stats["popart"] = self.popart.stats(targets, self._rewards(batch), batch.mask)
            parts += self._weighed(self.critic_terms(p, targets), batch, self.mask_edits.critic, metrics)
            if self.wants_metrics:
                q = self.values_of(p.raw.detach())
                metrics |= value_metrics(batch.mask, self.discounts_by_name, targets, q)
                metrics |= popart_metrics(self.popart, self.discounts_by_name) if self.algo_config.use_popart else {}
        if not self.rests or self.wants_metrics:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.rests):
                terms = self.actor_terms(p)
            parts += self._weighed(terms, batch, self.mask_edits.actor, metrics)
        if self.wants_metrics:
            metrics |= policy_metrics(self.policy_over_data(p), batch.mask)
        return Losses(sum(parts[1:], parts[0]), metrics, stats)

    def _weighed(self, terms: Terms, batch: SeqBatch, edit: MaskEdit, metrics: dict[str, Tensor]) -> list[Tensor]:
        """Return the losses, weighed, over the transitions that count, and log each."""
        terms = self._checked(terms, batch.mask)
        each = [_times(w, loss.detach()) for w, loss in terms.losses.values() if loss.dim() > 0]
        mask = edit(batch, torch.stack(each).sum(0), batch.mask) if each else batch.mask
        parts = []
        for name, (weight, loss) in terms.losses.items():
            value = masked_mean(loss, mask) if loss.dim() > 0 else loss
            metrics[f"loss/{name}"] = value.detach()
            parts.append(_times(weight, value))
        metrics |= terms.metrics
        return parts

    def _checked(self, terms: object, mask: Tensor) -> Terms:
        name = type(self).__name__
        if not isinstance(terms, Terms):
            raise PluginError(f"{name}: critic_terms and actor_terms have to return Terms, one returned {terms!r}")
        for key, (_, loss) in terms.losses.items():
            if loss.dim() > 0 and loss.shape != mask.shape:
                raise PluginError(
                    f"{name}: loss {key!r} has shape {tuple(loss.shape)}; expected {tuple(mask.shape)}, one number per "
                    "transition, or a scalar"
                )
        return terms

    def targets(self, batch: SeqBatch, values: Float[Tensor, "B T G"]) -> Float[Tensor, "B T G"]:
        """Return bootstrapped targets, in multiplied reward units.

        Only the discount that acts looks ``n_step`` ahead: a late reward reaches more inputs by it at once, while
        the others, which teach the memory too, stay free of the noise of the rewards in between.
        """
        given = (self._rewards(batch), self.ended(batch), batch.mask)
        acting = n_step_targets(*given, values[..., -1:], self.discounts[-1:], self.algo_config.n_step)
        if len(self.discounts) == 1:
            return acting
        extra = n_step_targets(*given, values[..., :-1], self.discounts[:-1], 1)
        return torch.cat([extra, acting], dim=-1)

    def ended(self, batch: SeqBatch) -> Bool[Tensor, "B T"]:
        """Return after which transitions nothing is worth anything."""
        bootstraps = self.algo_config.time_limits == "bootstrap"
        return batch.terminated if bootstraps else batch.terminated | batch.truncated

    def _rewards(self, batch: SeqBatch) -> Float[Tensor, "B T"]:
        return batch.rewards * self.multiplier

    def policy_over_data(self, p: Pass) -> ActionDistribution:
        """Return the policies ``(B, T, G)`` at the inputs that have an action."""
        num_t, legal = p.batch.num_transitions, p.batch.inputs.action_mask
        return self.actor.distribution(p.parameters[:, :num_t], None if legal is None else legal[:, :num_t])

    def log_prob_of_data(self, p: Pass) -> Float[Tensor, "B T G"]:
        """Return the log-probability of the data's actions under each policy; a mean over bits where they are bits."""
        actions = p.batch.actions.unsqueeze(2).expand(-1, -1, len(self.discounts), -1)
        log_prob = self.policy_over_data(p).log_prob(actions)
        return log_prob / self.codec.dim if self.codec.kind == "binary" else log_prob

    @property
    def discounts_by_name(self) -> list[str]:
        """The discounts as they appear in the names of metrics."""
        return [str(gamma) for gamma in (*self.algo_config.extra_gammas, self.algo_config.gamma)]

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move input statistics, spectral norms, PopArt and the target networks."""
        super().on_gradient_step(stats)
        if not self.learns_values:
            return
        if self.algo_config.use_popart:
            self.popart.update(stats["popart"])
        if self.rests:
            return
        follow(self.target_critic, self.critic, self.algo_config.tau)
        if self.uses_target_actor:
            follow(self.target_actor, self.actor, self.algo_config.tau)

    def deserialize(self, weights: Mapping[str, Tensor]) -> None:
        """Load what :meth:`serialize` gave; weights from before values had units of their own keep the former ones."""
        if self.learns_values and "popart.mean" in weights:
            former = {f"popart.{k}": v for k, v in self.popart.former_state().items()}
            weights = {**former, **weights}
        super().deserialize(weights)

    # --------------------------------------------------------------------------------------------- acting
    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return the greedy or a sampled action of the last discount's policy."""
        hidden, state = self.trunk(inputs, state)
        distribution = self._acting_policy(hidden, inputs)
        action = distribution.mode() if deterministic else distribution.sample()
        return action[:, -1, 0], state

    @torch.no_grad()
    def policy_over(self, inputs: SeqInputs, num_samples: int) -> Float[Tensor, "K B L A"]:
        """Return ``num_samples`` draws of the last discount's policy at every input, by one pass of the memory."""
        hidden, _ = self.trunk(inputs)
        distribution = self._acting_policy(hidden, inputs)
        return torch.stack([distribution.sample()[:, :, 0] for _ in range(num_samples)])

    def _acting_policy(self, hidden: Tensor, inputs: SeqInputs) -> ActionDistribution:
        parameters = self.policy_parameters(hidden, inputs)[..., -1:, :]
        return self.actor.distribution(parameters, inputs.action_mask)

    # ------------------------------------------------------------------------------------------- analysis
    @torch.no_grad()
    def get_values(self, batch: SeqBatch) -> dict[str, Tensor]:
        """Return what the critics think of a processed batch.

        Returns:
            ``q``, ``v``, ``advantage``, ``ensemble_std`` and, where values weigh imitation, ``filter_weight``: each
            ``(B, T, G)``; q, v and the deviation in original reward units, the advantage as it is weighed.

        Raises:
            ConfigError: If the agent has no critics (``filter`` none and ``online_coeff`` 0).
        """
        if not self.learns_values:
            raise ConfigError("this agent has no critics: algo.filter.type is 'none' and algo.online_coeff is 0")
        p = self.look(batch)
        q, judged = self.values_of(p.raw), self.judged(p)
        multiplier = self.multiplier
        return {
            "q": q.mean(-1) / multiplier,
            **judged,
            "v": judged["v"] / multiplier,
            "ensemble_std": q.std(-1, correction=0) / multiplier,
        }

    def get_state_value(
        self, obs_dict: SeqBatch | Mapping[str, Any], goal_dict: Mapping[str, Any] | None = None
    ) -> Float[Tensor, "B T"]:
        """Return V under the acting discount, in original reward units.

        Args:
            obs_dict: A processed batch; or, as in robomimic, observations in environment units, name -> ``(B, ...)`` at
                the start of an episode, or ``(B, T, ...)`` from there on. No actions and rewards are known then.
            goal_dict: Name -> ``(B, ...)``, beside such observations.
        """
        return self.get_values(self._as_batch(obs_dict, None, goal_dict))["v"][..., -1]

    def get_state_action_value(
        self,
        obs_dict: SeqBatch | Mapping[str, Any],
        actions: Tensor | None = None,
        goal_dict: Mapping[str, Any] | None = None,
    ) -> Float[Tensor, "B T"]:
        """Return Q under the acting discount, in original reward units, of a batch's actions or of these.

        Args:
            obs_dict: As in :meth:`get_state_value`.
            actions: ``(B, A)`` or ``(B, T, A)`` as the policy knows them, beside observations.
            goal_dict: As in :meth:`get_state_value`.

        Raises:
            DataError: If observations are given without actions.
        """
        if actions is None and not isinstance(obs_dict, SeqBatch):
            raise DataError("get_state_action_value needs actions as well as observations")
        return self.get_values(self._as_batch(obs_dict, actions, goal_dict))["q"][..., -1]

    def _as_batch(
        self, obs: SeqBatch | Mapping[str, Any], actions: Tensor | None, goal: Mapping[str, Any] | None
    ) -> SeqBatch:
        """Return a processed batch of windows that begin with an episode; a batch as it is."""
        if isinstance(obs, SeqBatch):
            return obs
        name = next((n for n in obs if n in self.obs), None)
        if name is None:
            raise DataError(f"observations have {', '.join(obs) or 'nothing'}; the policy reads {', '.join(self.obs)}")
        values = {k: torch.as_tensor(v) for k, v in obs.items()}
        if values[name].dim() == len(self.obs[name].shape) + 1:
            values = {k: v.unsqueeze(1) for k, v in values.items()}
        num, steps = values[name].shape[:2]
        done = torch.zeros(num, steps, self.codec.dim) if actions is None else torch.as_tensor(actions)
        aims = {k: torch.as_tensor(v).unsqueeze(1) for k, v in (goal or {}).items()}
        batch = SeqBatch.from_mapping(
            {
                **self._mask_in(values, num, steps),
                "obs": values,
                "actions": done.reshape(num, steps, -1),
                "goal": {k: v.expand(-1, steps + 1, *v.shape[2:]) for k, v in aims.items()},
            }
        )
        return self.inputs.batch(batch.to(self.device))

    def _mask_in(self, obs: Mapping[str, Tensor], num: int, steps: int) -> dict[str, Tensor]:
        """Return the action mask of observations that have one; the input after the last has all actions."""
        if self.codec.kind == "continuous" or MASK_KEY not in obs:
            return {}
        legal = self.codec.legal(obs[MASK_KEY].cpu().numpy(), num, steps)
        if (stuck := self.codec.stuck(legal)).any():
            raise DataError(f"the action mask of row {np.argwhere(stuck)[0, 0]} leaves no legal action")
        after = np.ones((num, 1, legal.shape[-1]), bool)
        return {"action_mask": torch.from_numpy(np.concatenate([legal, after], axis=1))}
