"""Behaviour cloning."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, Losses, PolicyAlgo, register_algo_factory_func
from seqrl.algo.objectives import masked_mean
from seqrl.algo.trunk import build_actor, build_trunk
from seqrl.configs.bc_config import BCSection
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.distributions import ActionDistribution
from seqrl.models.sequence_encoders import State


@register_algo_factory_func("bc")
def bc_factory(algo_config: BCSection) -> tuple[type[Algo], dict[str, Any]]:
    """Return the class of behaviour cloning."""
    return BC, {}


class BC(PolicyAlgo):
    """Imitate the data's actions given the history (Pomerleau, 1989)."""

    actor: Actor

    def _create_networks(self) -> None:
        section: Any = self.algo_config
        self.trunk = build_trunk(self.config, section.sequence_encoder, self.obs, self.codec)
        self.actor = build_actor(self.trunk.d_output, section.actor, section.distribution, self.obs, self.codec)
        self.nets.update({"trunk": self.trunk, "actor": self.actor})

    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the mean negative log-probability of the data's actions, over real transitions."""
        inputs = batch.inputs.first(batch.num_transitions)
        nll_BT = -self._policy(inputs).log_prob(batch.actions)
        loss = masked_mean(self.weights(batch) * nll_BT, batch.mask)
        metrics = {"loss/nll": masked_mean(nll_BT.detach(), batch.mask)}
        return Losses(loss, metrics, self.trunk.stats(inputs, batch.mask))

    def weights(self, batch: SeqBatch) -> Float[Tensor, "B T"]:
        """Return how much each transition counts; a filtered variant overrides this."""
        return torch.ones_like(batch.rewards)

    def _policy(self, inputs: SeqInputs) -> ActionDistribution:
        hidden, _ = self.trunk(inputs)
        distribution: ActionDistribution = self.actor(hidden, inputs)
        return distribution

    def act(self, inputs: SeqInputs, state: State, deterministic: bool) -> tuple[Float[Tensor, "B A"], State]:
        """Return the greedy or a sampled action."""
        hidden, state = self.trunk(inputs, state)
        distribution = self.actor(hidden, inputs)
        action = distribution.mode() if deterministic else distribution.sample()
        return action[:, -1], state
