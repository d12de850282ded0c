"""Batch-constrained Q-learning (Fujimoto et al., 2019, arXiv 1812.02900 and 1910.01708), on any memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.heads import build_actor
from seqrl.algo.targets import follow, frozen_copy
from seqrl.algo.value_agent import Pass, Terms, ValueAgent
from seqrl.configs.bcq_config import BCQSection
from seqrl.core.errors import ConfigError
from seqrl.core.tensors import SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.critics import Critics
from seqrl.models.distributions import Categorical
from seqrl.models.proposals import ActionVAE, Imitation, Mover, Perturbation
from seqrl.models.sequence_encoders import State


@register_algo_factory_func("bcq")
def bcq_factory(algo_config: BCQSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of batch-constrained Q-learning."""
    return BCQ, {}


class BCQ(ValueAgent[BCQSection]):
    """The best of what a model of the data's actions proposes, in targets and in acting.

    The model imitates; critics choose among its proposals, so they are hardly asked about what the data does not show.
    A discrete action is a candidate if it is likely enough. Continuous ones are draws from an auto-encoder or a mixture
    of Gaussians, which a network may move towards higher values. Greedy acting draws nothing: it decodes the same
    latents at every step, or compares the means of the mixture.
    """

    action_kinds = frozenset({"continuous", "discrete"})
    fitted = ("loss/critic", "loss/actor")

    def _create_networks(self) -> None:
        super()._create_networks()
        if self.codec.kind != "continuous" and not self.sums_over_actions:
            raise ConfigError(
                f"algo.critic.network: {self.algo_config.critic.network!r} judges one action at a time, but this "
                "algorithm compares all of a Discrete space: derive it from StateCritics"
            )

    def _build_actor(self) -> Actor:
        section, d_state, dim = self.algo_config, self.trunk.d_output, self.codec.dim
        given = (d_state, section, self.obs, self.codec, 1)
        sizes = section.actor.model_dump(include={"d_hidden", "num_layers", "activation"})
        self.model: ActionVAE | Imitation = Imitation()
        self.perturbation: Perturbation | None = None
        if self.codec.kind != "continuous":
            return build_actor(*given)
        if section.perturbation > 0:
            self.perturbation = Perturbation(d_state, dim, section.perturbation, **sizes)
            self.target_perturbation = frozen_copy(self.perturbation)
            self.nets.update({"perturbation": self.perturbation, "target_perturbation": self.target_perturbation})
        name = {"vae": "deterministic", "gmm": "gmm"}[section.proposals]
        if section.distribution.choice()[0] not in ("auto", name):
            raise ConfigError(f"algo.distribution.type: proposals {section.proposals!r} need auto or {name}")
        if section.proposals == "vae":
            num = max(section.num_candidates, section.num_acting_candidates)
            self.nets["vae"] = self.model = ActionVAE(d_state, dim, section.d_latent or 2 * dim, num, **sizes)
        return build_actor(*given, self.model.width, auto={"continuous": (name, {})})

    def policy_parameters(self, state: Float[Tensor, "B L D"], inputs: SeqInputs) -> Float[Tensor, "B L 1 P"]:
        """Return the parameters of the model of actions; of an auto-encoder, those at latent 0."""
        wide = torch.cat([state, state.new_zeros(*state.shape[:2], self.model.width)], dim=-1)
        return self.actor.parameters_of(wide, inputs)

    def proposals(
        self, state: Float[Tensor, "B L D"], inputs: SeqInputs, num: int, mover: Mover, is_greedy: bool
    ) -> Float[Tensor, "K B L 1 A"]:
        """Return continuous actions like the data's, moved if there is a mover."""
        drawn = self.model.proposals(self.actor, state, inputs, num, is_greedy=is_greedy).clamp(-1.0, 1.0)
        return drawn if mover is None else mover(state, drawn)

    @torch.no_grad()
    def _candidates(
        self, critic: Critics, state: Tensor, inputs: SeqInputs, num: int, mover: Mover, is_greedy: bool
    ) -> tuple[Float[Tensor, "K B L G C"], Float[Tensor, "K B L A"]]:
        """Return the candidates' values, minus infinity for discrete actions that are none, and the candidates."""
        share = critic.share(state)
        if not self.sums_over_actions:
            actions = self.proposals(state, inputs, num, mover, is_greedy)
            return self.values_of(critic(share, actions)), actions[..., 0, :]
        model = self.actor.distribution(self.policy_parameters(state, inputs), inputs.action_mask)
        assert isinstance(model, Categorical)
        probs_ABL = model.probs[..., 0, :].movedim(-1, 0)
        is_none = (probs_ABL < self.algo_config.threshold * probs_ABL.amax(0)) | (probs_ABL == 0)
        is_none &= ~is_none.all(0)  # where nothing is legal, nothing is told apart
        q_ABLGC = self.values_of(share.movedim(3, 0).unsqueeze(-1)).masked_fill(is_none[..., None, None], -torch.inf)
        each = torch.eye(self.codec.dim, device=self.device)[:, None, None].expand(-1, *share.shape[:2], -1)
        return q_ABLGC, each

    def _best(self, critic: Critics, state: Tensor, inputs: SeqInputs, mover: Mover) -> Tensor:
        """Return the largest of the candidates' values, each between its smallest and its largest critic."""
        weight = self.algo_config.min_weight
        q_KBLGC, _ = self._candidates(critic, state, inputs, self.algo_config.num_candidates, mover, False)
        mixed_KBLG = weight * q_KBLGC.amin(-1) + (1.0 - weight) * q_KBLGC.amax(-1)
        return mixed_KBLG.nan_to_num(nan=-torch.inf, neginf=-torch.inf).amax(0)

    def next_values(self, p: Pass) -> Float[Tensor, "B T G"]:
        """Return the value of the best candidate, for the target critics."""
        mover = self.target_perturbation if self.perturbation else None
        return self._best(self.target_critic, p.state[:, 1:].detach(), p.batch.inputs.after_first(), mover)

    def actor_terms(self, p: Pass) -> Terms:
        """Return what the model of actions learns, and what moves its proposals."""
        state, inputs = p.state[:, :-1], p.batch.inputs.first(p.batch.num_transitions)
        if isinstance(self.model, ActionVAE):
            told = self.model.losses(self.actor, state, inputs, p.batch.actions)
        else:
            of_one = p.batch.actions.unsqueeze(2)  # there is one model, whatever the number of discounts
            told = {"actor": -self.policy_over_data(p).log_prob(of_one).squeeze(2)}
        losses = {name: (self.algo_config.kl_weight if name == "divergence" else 1.0, x) for name, x in told.items()}
        if self.perturbation is not None:
            with torch.no_grad():
                drawn = self.proposals(state, inputs, 1, None, is_greedy=False)
            moved = self.perturbation(state.detach(), drawn)
            q_1BTGC = self.values_of(self.constant_critic()(p.share.detach(), moved))
            losses["perturbation"] = (1.0, -q_1BTGC[0, ..., 0].mean(-1))
        return Terms(losses)

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move what follows the weights."""
        super().on_gradient_step(stats)
        if self.perturbation is not None:
            follow(self.target_perturbation, self.perturbation, self.algo_config.tau)

    def judged(self, p: Pass) -> dict[str, Float[Tensor, "B T G"]]:
        """Return the value of the best candidate, and the advantage of the data's actions over it."""
        num_t = p.batch.num_transitions
        v_BTG = self._best(self.critic, p.state[:, :num_t], p.batch.inputs.first(num_t), self.perturbation)
        return {"v": v_BTG, "advantage": self.values_of(p.raw).mean(-1) - v_BTG}

    def _choice(self, hidden: Tensor, inputs: SeqInputs, is_greedy: bool) -> Float[Tensor, "B L A"]:
        """Return the candidates that the first critic of the acting discount likes best."""
        given = (hidden, inputs, self.algo_config.num_acting_candidates, self.perturbation, is_greedy)
        q_KBLGC, actions = self._candidates(self.critic, *given)
        best_1BL1 = q_KBLGC[..., -1, 0].argmax(0)[None, ..., None]
        return actions.gather(0, best_1BL1.expand(1, *actions.shape[1:])).squeeze(0)

    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return the best candidate."""
        hidden, state = self.trunk(inputs, state)
        return self._choice(hidden, inputs, deterministic)[:, -1], state

    @torch.no_grad()
    def policy_over(self, inputs: SeqInputs, num_samples: int) -> Float[Tensor, "K B L A"]:
        """Return ``num_samples`` choices at every input, by one pass of the memory."""
        hidden, _ = self.trunk(inputs)
        return torch.stack([self._choice(hidden, inputs, is_greedy=False) for _ in range(num_samples)])
