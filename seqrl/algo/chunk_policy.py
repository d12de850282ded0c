"""What all policies share that imitate: one action at a time, or chunks of them from a plan."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqrl.algo.algo import PolicyAlgo
from seqrl.algo.losses import Losses
from seqrl.algo.objectives import action_chunks, held_actions
from seqrl.algo.states import nest, split_state
from seqrl.algo.trunk import build_trunk
from seqrl.configs.sections.algo import ChunkSection
from seqrl.core.errors import ConfigError, DataError
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.sequence_encoders import State

ChunkSectionT = TypeVar("ChunkSectionT", bound=ChunkSection)

CHUNK = "chunk"
"""Prefix, in the acting state, of the actions to come and how many of them are still to be taken."""


@dataclass(frozen=True)
class Targets:
    """What the policy should give at each input.

    Attributes:
        actions: ``(B, T, K, A)``, or ``(B, T, A)`` without chunks.
        mask: ``(B, T, K)`` or ``(B, T)``: which of them are there, and supervised.
    """

    actions: Float[Tensor, "B T *K A"]
    mask: Bool[Tensor, "B T *K"]


class ChunkPolicy(PolicyAlgo[ChunkSectionT]):
    """A memory and a policy that gives the next K actions at every input (Zhao et al., 2023, arXiv 2304.13705).

    It takes ``execute_steps`` of them before it looks at its next answer; the memory reads every input. With
    ``ensemble_decay`` it averages at each step what all chunks so far give for it. A subclass says how actions are
    made (:meth:`_choose`) and learned (:meth:`_policy_losses`).
    """

    def _create_networks(self) -> None:
        section = self.algo_config
        self.chunk_steps: int = section.chunk_steps
        self.execute_steps: int = section.execute_steps or self._steps_by_default()
        if self.chunk_steps > self.config.train.window_steps:
            raise ConfigError(
                f"algo.chunk_steps {self.chunk_steps} exceeds train.window_steps {self.config.train.window_steps}: no "
                "window would show the last actions of a chunk, so they would never be learned"
            )
        if section.ensemble_decay is not None and self.codec.kind != "continuous":
            raise ConfigError("algo.ensemble_decay averages actions, so it needs continuous ones")
        self.trunk = build_trunk(self.config, section.sequence_encoder, self.obs, self.codec, self.trunk_obs)
        self.nets["trunk"] = self.trunk
        self._create_policy(self.chunk_steps if self.chunk_steps > 1 else None)

    def _steps_by_default(self) -> int:
        """Return how many actions of a chunk are taken where the run file does not say: all."""
        return self.chunk_steps

    # --------------------------------------------------------------------------------------------- hooks
    @abstractmethod
    def _create_policy(self, num_policies: int | None) -> None:
        """Make the networks behind the memory; ``num_policies`` is K, None without chunks."""

    @abstractmethod
    def _policy_losses(
        self, hidden: Float[Tensor, "B T D"], inputs: SeqInputs, targets: Targets, batch: SeqBatch
    ) -> Losses:
        """Return the losses of the policy, given the memory's output."""

    @abstractmethod
    def _choose(self, hidden: Tensor, inputs: SeqInputs, deterministic: bool) -> Float[Tensor, "B L *K A"]:
        """Return the policy's actions at every input."""

    def weights(self, batch: SeqBatch) -> Float[Tensor, "B T"]:
        """Return how much each transition counts; a filtered variant overrides this."""
        return torch.ones_like(batch.rewards)

    def weights_over_chunks(self, batch: SeqBatch) -> Float[Tensor, "B T K"]:
        """Return how much each action of each chunk counts."""
        return self.weights(batch).unsqueeze(-1) * self.chunk_weights()

    def chunk_weights(self) -> Float[Tensor, " K"]:
        """Return how much the actions of a chunk count, beside the first."""
        weights: Tensor = self.algo_config.chunk_decay ** torch.arange(self.chunk_steps, device=self.device)
        return weights

    # ------------------------------------------------------------------------------------------- training
    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the losses of the policy over real transitions."""
        inputs = batch.inputs.first(batch.num_transitions)
        self._check_chunks(inputs)
        hidden, _ = self.trunk(inputs, before=batch.before)
        losses = self._policy_losses(hidden, inputs, self._targets(batch), batch)
        return Losses(losses.total, losses.metrics, self.trunk.stats(inputs, batch.mask))

    def _targets(self, batch: SeqBatch) -> Targets:
        supervised = batch.mask
        if not self.algo_config.supervise_all_steps:  # the last input whose chunk is whole, or the first one
            index = (batch.mask.sum(1) - self.chunk_steps).clamp(min=0)
            supervised = supervised & (torch.arange(batch.num_transitions, device=index.device) == index.unsqueeze(1))
        if self.chunk_steps == 1:
            return Targets(batch.actions, supervised)
        given = (batch.actions, batch.mask)
        if self.algo_config.pad_actions == "repeat_last":
            given = held_actions(batch, self.chunk_steps)
        actions, mask = (x[:, : batch.num_transitions] for x in action_chunks(*given, self.chunk_steps))
        return Targets(actions, mask & supervised.unsqueeze(-1))

    def _counted(self, batch: SeqBatch, loss: Float[Tensor, "B T *K"], mask: Bool[Tensor, "B T *K"]) -> Tensor:
        """Return the mask without the transitions that an experiment leaves out of the policy's losses."""
        per_step = loss.detach().reshape(*batch.mask.shape, -1).mean(-1)
        kept = self.mask_edits.actor(batch, per_step, batch.mask)
        return mask & kept.reshape(*kept.shape, *[1] * (mask.dim() - 2))

    def _check_chunks(self, inputs: SeqInputs) -> None:
        if self.chunk_steps > 1 and inputs.action_mask is not None:
            raise DataError(
                f"algo.chunk_steps is {self.chunk_steps}, but legal actions are known only one step ahead; "
                "with action masks, set it to 1"
            )

    # --------------------------------------------------------------------------------------------- acting
    def init_state(self, num_rows: int) -> State:
        """Return an empty memory, and an empty plan."""
        state = super().init_state(num_rows)
        if self.chunk_steps == 1:
            return state
        size = (num_rows, self.chunk_steps, self.codec.dim)
        plan = {"plan": torch.zeros(size, device=self.device)}
        if self.algo_config.ensemble_decay is None:
            plan["left"] = torch.zeros(num_rows, dtype=torch.int64, device=self.device)
        else:
            plan["weight"] = torch.zeros(size[:2], device=self.device)
        return {**state, **nest(CHUNK, plan)}

    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Empty the memory and the plan of some rows."""
        plan, memory = split_state(state, CHUNK)
        for value in plan.values():
            value[rows] = 0
        return {**super().reset_rows(memory, rows), **nest(CHUNK, plan)}

    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return the greedy or a sampled action; the next one of the plan, where there is any."""
        self._check_chunks(inputs)
        plan, memory = split_state(state, CHUNK)
        hidden, memory = self.trunk(inputs, memory)
        decay = self.algo_config.ensemble_decay
        if not plan or decay is not None:
            chosen = self._choose(hidden, inputs, deterministic)[:, -1]
            if decay is None:
                return chosen, memory
            actions, plan = self._averaged(chosen, plan, decay)
            return actions, {**memory, **nest(CHUNK, plan)}
        actions, left = plan["plan"], plan["left"]
        is_new = left == 0
        if torch.compiler.is_compiling():  # which rows need one is not known yet: all make a plan
            chosen = self._choose(hidden, inputs, deterministic)[:, -1]
            actions = torch.where(is_new[:, None, None], chosen.to(actions.dtype), actions)
            left = left.masked_fill(is_new, self.execute_steps)
        elif is_new.any():  # a plan may be dear: only the rows that need one make it
            chosen = self._choose(hidden[is_new], inputs.map(lambda x: x[is_new]), deterministic)[:, -1]
            actions = actions.index_put((is_new,), chosen.to(actions.dtype))
            left = left.masked_fill(is_new, self.execute_steps)
        return actions[:, 0], {**memory, **nest(CHUNK, {"plan": actions.roll(-1, dims=1), "left": left - 1})}

    @torch.no_grad()
    def policy_over(self, inputs: SeqInputs, num_samples: int) -> Float[Tensor, "K B L A"]:
        """Return draws at every input: of one pass of the memory without chunks, else by acting step by step."""
        if self.chunk_steps > 1:
            return super().policy_over(inputs, num_samples)
        hidden, _ = self.trunk(inputs)
        return torch.stack([self._choose(hidden, inputs, deterministic=False) for _ in range(num_samples)])

    @staticmethod
    def _averaged(chosen: Float[Tensor, "B K A"], plan: State, decay: float) -> tuple[Float[Tensor, "B A"], State]:
        """Return the weighted mean of what all chunks give for now, the oldest weighing 1, and the plan ahead.

        ``plan`` holds weighted sums of what has been given for each of the next K steps, and ``weight`` their weights.
        The i-th chunk that speaks of a step weighs ``exp(-decay i)``, so a new one weighs by how many spoke before it;
        their number is told by the sum of a geometric series.
        """
        weight, sums = plan["weight"], plan["plan"]
        new = 1.0 + weight * math.expm1(-decay)  # ratio^i of the i-th chunk
        weight, sums = weight + new, sums + new.unsqueeze(-1) * chosen
        actions = sums[:, 0] / weight[:, :1]
        sums, weight = sums.roll(-1, dims=1), weight.roll(-1, dims=1)
        sums[:, -1], weight[:, -1] = 0.0, 0.0
        return actions, {"plan": sums, "weight": weight}
