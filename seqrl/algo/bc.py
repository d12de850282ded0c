"""Behaviour cloning, of single actions or of chunks of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqrl.algo.algo import Algo, Losses, PolicyAlgo, register_algo_factory_func
from seqrl.algo.objectives import action_chunks, masked_mean
from seqrl.algo.trunk import build_actor, build_trunk
from seqrl.configs.bc_config import BCSection
from seqrl.core.errors import ConfigError, DataError
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.distributions import ActionDistribution
from seqrl.models.sequence_encoders import State

PLAN, LEFT = "chunk/plan", "chunk/left"
"""Entries of the acting state: the actions to come, and how many of them are still to be taken."""


@register_algo_factory_func("bc")
def bc_factory(algo_config: BCSection) -> tuple[type[Algo], dict[str, Any]]:
    """Return the class of behaviour cloning."""
    return BC, {}


@dataclass(frozen=True)
class Targets:
    """What the policy should give at each input.

    Attributes:
        actions: ``(B, T, K, A)``, or ``(B, T, A)`` without chunks.
        mask: ``(B, T, K)`` or ``(B, T)``: which of them are there, and supervised.
    """

    actions: Float[Tensor, "B T *K A"]
    mask: Bool[Tensor, "B T *K"]


class BC(PolicyAlgo):
    """Imitate the data's actions given the history (Pomerleau, 1989).

    With ``chunk_steps`` K above 1 the policy gives the next K actions at every input, and takes ``execute_steps`` of
    them before it looks at its next answer (Zhao et al., 2023, arXiv 2304.13705). The memory reads every input.
    """

    actor: Actor

    def _create_networks(self) -> None:
        section: Any = self.algo_config
        self.chunk_steps: int = section.chunk_steps
        self.execute_steps: int = section.execute_steps or section.chunk_steps
        if self.chunk_steps > self.config.train.window_steps:
            raise ConfigError(
                f"algo.chunk_steps {self.chunk_steps} exceeds train.window_steps {self.config.train.window_steps}: no "
                "window would show the last actions of a chunk, so they would never be learned"
            )
        self.trunk = build_trunk(self.config, section.sequence_encoder, self.obs, self.codec)
        self.nets["trunk"] = self.trunk
        self._create_policy(self.chunk_steps if self.chunk_steps > 1 else None)

    def _create_policy(self, num_policies: int | None) -> None:
        section: Any = self.algo_config
        self.actor = build_actor(
            self.trunk.d_output, section.actor, section.distribution, self.obs, self.codec, num_policies
        )
        self.nets["actor"] = self.actor

    # ------------------------------------------------------------------------------------------- training
    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the mean negative log-probability of the data's actions, over real transitions."""
        inputs = batch.inputs.first(batch.num_transitions)
        self._check_chunks(inputs)
        hidden, _ = self.trunk(inputs)
        losses = self._policy_losses(hidden, inputs, self._targets(batch), self.weights(batch))
        return Losses(losses.total, losses.metrics, self.trunk.stats(inputs, batch.mask))

    def _policy_losses(
        self, hidden: Float[Tensor, "B T D"], inputs: SeqInputs, targets: Targets, weights: Float[Tensor, "B T"]
    ) -> Losses:
        distribution: ActionDistribution = self.actor(hidden, inputs)
        nll = -distribution.log_prob(targets.actions)
        total = masked_mean(_over_chunk(weights, nll) * nll, targets.mask)
        return Losses(total, {"loss/nll": masked_mean(nll.detach(), targets.mask)})

    def _targets(self, batch: SeqBatch) -> Targets:
        section: Any = self.algo_config
        supervised = batch.mask
        if not section.supervise_all_steps:  # the last input whose chunk is whole, or the first one
            index = (batch.mask.sum(1) - self.chunk_steps).clamp(min=0)
            supervised = supervised & (torch.arange(batch.num_transitions, device=index.device) == index.unsqueeze(1))
        if self.chunk_steps == 1:
            return Targets(batch.actions, supervised)
        actions, mask = action_chunks(batch.actions, batch.mask, self.chunk_steps)
        return Targets(actions, mask & supervised.unsqueeze(-1))

    def weights(self, batch: SeqBatch) -> Float[Tensor, "B T"]:
        """Return how much each transition counts; a filtered variant overrides this."""
        return torch.ones_like(batch.rewards)

    def _check_chunks(self, inputs: SeqInputs) -> None:
        if self.chunk_steps > 1 and inputs.action_mask is not None:
            raise DataError(
                f"algo.chunk_steps is {self.chunk_steps}, but which actions are legal is known one step ahead only; "
                "with action masks set it to 1"
            )

    # --------------------------------------------------------------------------------------------- acting
    def init_state(self, num_rows: int) -> State:
        """Return an empty memory, and an empty plan."""
        state = super().init_state(num_rows)
        if self.chunk_steps == 1:
            return state
        plan = torch.zeros(num_rows, self.chunk_steps, self.codec.dim, device=self.device)
        return {**state, PLAN: plan, LEFT: torch.zeros(num_rows, dtype=torch.int64, device=self.device)}

    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Empty the memory and the plan of some rows."""
        memory, plan = _split(state)
        if plan:
            plan[LEFT].masked_fill_(rows, 0)
        return {**super().reset_rows(memory, rows), **plan}

    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return the greedy or a sampled action; the next one of the plan, where there is any."""
        self._check_chunks(inputs)
        memory, plan = _split(state)
        hidden, memory = self.trunk(inputs, memory)
        chosen = self._choose(hidden, inputs, deterministic)[:, -1]
        if not plan:
            return chosen, memory
        is_new = plan[LEFT] == 0
        actions = torch.where(is_new[:, None, None], chosen, plan[PLAN])
        left = torch.where(is_new, self.execute_steps, plan[LEFT]) - 1
        return actions[:, 0], {**memory, PLAN: actions.roll(-1, dims=1), LEFT: left}

    def _choose(self, hidden: Tensor, inputs: SeqInputs, deterministic: bool) -> Float[Tensor, "B L *K A"]:
        """Return the policy's actions at every input."""
        distribution: ActionDistribution = self.actor(hidden, inputs)
        if deterministic:
            return distribution.mode()
        return self.actor.head.for_evaluation(distribution).sample()


def _split(state: State) -> tuple[State, State]:
    """Return the memory's part of an acting state, and the plan's."""
    plan = {k: v for k, v in state.items() if k in (PLAN, LEFT)}
    return {k: v for k, v in state.items() if k not in plan}, plan


def _over_chunk(weights: Float[Tensor, "B T"], like: Tensor) -> Tensor:
    return weights.reshape(*weights.shape, *[1] * (like.dim() - 2))
