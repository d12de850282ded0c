"""Hierarchical behaviour cloning (Mandlekar et al., 2020, arXiv 2003.06085), each level on a memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.bc import BC
from seqrl.algo.chunk_policy import Targets
from seqrl.algo.ema import move_averages
from seqrl.algo.gl import GL
from seqrl.algo.losses import Losses
from seqrl.algo.objectives import inputs_ahead, take_positions
from seqrl.algo.states import nest, split_state
from seqrl.configs.bc_config import BCSection
from seqrl.configs.hbc_config import HBCSection
from seqrl.core.errors import ConfigError
from seqrl.core.spaces import ObsSpec
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.sequence_encoders import State

HBCSectionT = TypeVar("HBCSectionT", bound=HBCSection)
SUBGOAL, IS_KNOWN = "subgoal", "is_known"


@register_algo_factory_func("hbc")
def hbc_factory(algo_config: HBCSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of hierarchical behaviour cloning."""
    return HBC, {}


class Follower(BC[BCSection]):
    """Imitates where the subgoal is known."""

    @property
    def trunk_obs(self) -> Mapping[str, ObsSpec]:
        """The subgoal."""
        return {SUBGOAL: self.obs[SUBGOAL]}

    def _targets(self, batch: SeqBatch) -> Targets:
        targets = super()._targets(batch)
        is_known = batch.extras[IS_KNOWN][:, : batch.num_transitions] > 0
        return Targets(
            targets.actions, targets.mask & is_known.reshape(*is_known.shape, *[1] * (targets.mask.dim() - 2))
        )


class HBC(Algo[HBCSectionT]):
    """A planner says where to be some steps ahead, and a policy imitates the way there.

    Subgoals change every ``planner.subgoal_steps`` steps of an episode. In training the policy reads the observation
    that the demonstrator had at the next change; in acting, the one that the planner proposed at the last change.
    """

    fitted: tuple[str, ...] = ("loss/subgoal", "loss/nll")
    reads_vectors = True

    def _create_networks(self) -> None:
        self.planner = self._part(GL, self.algo_config, self.obs)
        if SUBGOAL in self.obs:
            raise ConfigError(
                f"observation {SUBGOAL!r} has the name that the planner uses for subgoals; leave it out, or rename it"
            )
        with_subgoal = {**self.obs, SUBGOAL: ObsSpec((self.planner.d_subgoal,))}
        self.follower = self._part(Follower, self.algo_config, with_subgoal)
        self.parts: dict[str, Algo[Any]] = {"planner": self.planner, "actor": self.follower}
        self.needs = self.planner.needs
        self.nets.update({name: part.nets for name, part in self.parts.items()})

    @property
    def chunk_steps(self) -> int:
        """Actions that are planned at once."""
        return self.follower.chunk_steps

    def _may_be_unbounded(self) -> bool:
        _, options = self.algo_config.distribution.choice()
        return not options.get("is_bounded", True)

    @property
    def scales_rewards(self) -> bool:
        """Whether a part has values."""
        return any(part.scales_rewards for part in self.parts.values())

    @property
    def needs_returns(self) -> bool:
        """Whether a part does."""
        return any(part.needs_returns for part in self.parts.values())

    def use_returns(self, returns: Float[Tensor, " N"]) -> None:
        """Tell all parts."""
        for part in self.parts.values():
            part.use_returns(returns)

    # ------------------------------------------------------------------------------------------- training
    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the losses of all parts, added."""
        return self._added(self.losses_of_parts(batch))

    def losses_of_parts(self, batch: SeqBatch) -> dict[str, Losses]:
        """Return the losses of each part by its name."""
        for part in self.parts.values():
            part.wants_metrics, part.mask_edits = self.wants_metrics, self.mask_edits
        followed = self.with_realised_subgoals(batch)
        return {"planner": self.planner.compute_losses(batch), "actor": self.follower.compute_losses(followed)}

    def with_realised_subgoals(self, batch: SeqBatch) -> SeqBatch:
        """Return a batch whose inputs hold what was observed when the subgoal changed next."""
        steps = self.planner.steps_ahead
        until_change = steps - batch.inputs.step[:, : batch.num_transitions] % steps
        index, is_known = inputs_ahead(batch, until_change)
        reached = self.planner.subgoals_in(batch.inputs)
        index = torch.cat([index, index[:, -1:]], dim=1)  # nobody acts on the last input
        is_known = torch.cat([is_known, torch.zeros_like(is_known[:, :1])], dim=1)
        goals = take_positions(reached, index) * is_known.unsqueeze(-1)
        inputs = replace(batch.inputs, obs={**batch.inputs.obs, SUBGOAL: goals})
        told = batch.with_inputs(inputs)
        return replace(told, extras={**batch.extras, IS_KNOWN: is_known.to(goals.dtype)})

    @staticmethod
    def _added(parts: Mapping[str, Losses]) -> Losses:
        total = torch.stack([losses.total for losses in parts.values()]).sum()
        metrics = {name: value for losses in parts.values() for name, value in losses.metrics.items()}
        stats = {k: v for name, losses in parts.items() for k, v in nest(name, dict(losses.stats)).items()}
        return Losses(total, metrics, stats)

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move what follows the weights, in each part."""
        for name, part in self.parts.items():
            part.on_gradient_step(split_state(dict(stats), name)[0])
        move_averages(self.nets)

    # --------------------------------------------------------------------------------------------- acting
    def init_state(self, num_rows: int) -> State:
        """Return empty memories, and no subgoal."""
        none = torch.zeros(num_rows, self.planner.d_subgoal, device=self.device)
        held = {"now": none, "is_there": torch.zeros(num_rows, dtype=torch.bool, device=self.device)}
        state = nest(SUBGOAL, held)
        for name, part in self.parts.items():
            state |= nest(name, part.init_state(num_rows))
        return state

    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Empty the memories of some rows, and forget their subgoals."""
        held, *parts, _ = split_state(state, SUBGOAL, *self.parts)
        state = nest(SUBGOAL, {"now": held["now"], "is_there": held["is_there"] & ~rows})
        for (name, part), inner in zip(self.parts.items(), parts, strict=True):
            state |= nest(name, part.reset_rows(inner, rows))
        return state

    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return the action on the way to the subgoal, a new one where it is time for it."""
        held, *parts, _ = split_state(state, SUBGOAL, *self.parts)
        memories = dict(zip(self.parts, parts, strict=True))
        is_due = ~held["is_there"] | (inputs.step[:, -1] % self.planner.steps_ahead == 0)
        hidden, memories = self._remember(inputs, memories)
        goal = held["now"]
        if torch.compiler.is_compiling() or is_due.any():
            goal = torch.where(is_due.unsqueeze(-1), self._proposed(hidden, deterministic), goal)
        seen = replace(inputs, obs={**inputs.obs, SUBGOAL: goal.unsqueeze(1)})
        action, memories["actor"] = self.follower.act(seen, memories["actor"], deterministic)
        state = nest(SUBGOAL, {"now": goal, "is_there": torch.ones_like(is_due)})
        for name, memory in memories.items():
            state |= nest(name, memory)
        return action, state

    def _remember(self, inputs: SeqInputs, memories: dict[str, State]) -> tuple[list[Tensor], dict[str, State]]:
        """Return what is remembered by all that proposes subgoals, and the next memories."""
        hidden, planner = self.planner.trunk(inputs, memories["planner"])
        return [hidden], {**memories, "planner": planner}

    def _proposed(self, hidden: list[Tensor], deterministic: bool) -> Float[Tensor, "B S"]:
        """Return a subgoal for each row."""
        return self.planner.plan(hidden[0], 1, is_greedy=deterministic)[0, :, -1]

    def subgoals(self, state: State) -> dict[str, Tensor]:
        """Return what the rows are on their way to: entry -> ``(B, W)``."""
        now = split_state(state, SUBGOAL)[0]["now"]
        widths = self.planner.subgoal_widths
        found = dict(zip(widths, now.split(list(widths.values()), dim=-1), strict=True))
        return found if self.inputs.normalizer is None else self.inputs.normalizer.own_obs(found)

    def check_hardware(self, *, is_half: bool) -> None:
        """Raise a ConfigError if a memory cannot train on this device."""
        for part in self.parts.values():
            part.check_hardware(is_half=is_half)

    @property
    def max_step(self) -> int | None:
        """What the memories allow."""
        return self.planner.max_step
