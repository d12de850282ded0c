"""IRIS (Mandlekar et al., 2020, arXiv 1911.05321): subgoals that are chosen by their value, on any memory."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.hbc import HBC
from seqrl.algo.iql import IQL
from seqrl.algo.losses import Losses
from seqrl.algo.objectives import inputs_ahead, masked_mean, n_step_targets, take_positions
from seqrl.configs.iql_config import IQLSection
from seqrl.configs.iris_config import IRISSection
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.mlp import make_mlp
from seqrl.models.sequence_encoders import State


@register_algo_factory_func("iris")
def iris_factory(algo_config: IRISSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of IRIS."""
    return IRIS, {}


class IRIS(HBC[IRISSection]):
    """A hierarchy whose planner proposes many subgoals, of which the most valuable is followed.

    Values are those of implicit Q-learning. A network learns what it was worth to go to a subgoal that was reached: the
    rewards on the way, and the value there. Only pairs that the data shows are judged, so a memory never reads an
    imagined observation.
    """

    fitted = ("loss/subgoal", "loss/nll", "loss/critic")

    def _create_networks(self) -> None:
        super()._create_networks()
        section = self.algo_config
        shared = {
            name: getattr(section, name) for name in ("sequence_encoder", "memory_dropout", "memory_bypass", "actor")
        }
        chosen = {name: getattr(section.value, name) for name in type(section.value).model_fields}
        self.value = self._part(IQL, IQLSection(**chosen, **shared), self.obs)
        self.parts["value"] = self.value
        self.nets["value"] = self.value.nets
        critic = section.value.critic
        d_input = self.value.trunk.d_output + self.planner.d_subgoal
        self.worth = make_mlp(d_input, critic.d_hidden, critic.num_layers, 1, critic.activation)
        self.nets["worth"] = self.worth
        self.needs = self.needs | self.value.needs
        self.discount = self.value.discount

    def _may_be_unbounded(self) -> bool:
        return False  # its critics read actions

    def losses_of_parts(self, batch: SeqBatch) -> dict[str, Losses]:
        """Return the losses of each part by its name; what subgoals are worth is a part of the values'."""
        parts = super().losses_of_parts(batch)
        p = self.value.look(batch)
        parts["value"] = self.value.losses(p)
        index, is_known = inputs_ahead(batch, self.planner.steps_ahead)
        goals = take_positions(self.planner.subgoals_in(batch.inputs), index) * is_known.unsqueeze(-1)
        worth = self._worth(p.state[:, : batch.num_transitions].detach(), goals)
        rewards, v = batch.rewards * self.value.multiplier, p.extras["v"][:, 1:, -1:].detach()
        reached = (rewards, self.value.ended(batch), batch.mask, v, self.value.discounts[-1:], self.planner.steps_ahead)
        error = masked_mean((worth - n_step_targets(*reached).squeeze(-1)).square(), is_known)
        metrics = {"loss/subgoal_value": error.detach()}
        return {**parts, "worth": Losses(error, metrics, {})}

    def _worth(self, hidden: Float[Tensor, "*lead D"], goals: Float[Tensor, "*lead S"]) -> Float[Tensor, "*lead"]:
        worth: Tensor = self.worth(torch.cat([hidden, goals.to(hidden.dtype)], dim=-1)).float().squeeze(-1)
        return worth

    def _remember(self, inputs: SeqInputs, memories: dict[str, State]) -> tuple[list[Tensor], dict[str, State]]:
        hidden, memories = super()._remember(inputs, memories)
        judged, memories["value"] = self.value.trunk(inputs, memories["value"])
        return [*hidden, judged], memories

    def _proposed(self, hidden: list[Tensor], deterministic: bool) -> Float[Tensor, "B S"]:
        """Return the most valuable of many subgoals, drawn; if greedy, from latents that are always the same."""
        shared = torch.Generator(self.device).manual_seed(0) if deterministic else None
        num = self.algo_config.num_subgoals
        goals = self.planner.plan(hidden[0], num, is_greedy=False, shared=shared)[:, :, -1]
        worth = self._worth(hidden[1][:, -1].expand(num, -1, -1), goals)
        best = worth.argmax(0)[None, :, None]
        return goals.gather(0, best.expand(1, -1, goals.shape[-1]))[0]
