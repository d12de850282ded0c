"""Behaviour cloning, of single actions or of chunks of them."""

from __future__ import annotations

from typing import Any, TypeVar

from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.chunk_policy import ChunkPolicy, Targets
from seqrl.algo.heads import build_actor
from seqrl.algo.losses import Losses
from seqrl.algo.objectives import masked_mean
from seqrl.configs.bc_config import BCSection
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.actors import Actor
from seqrl.models.distributions import ActionDistribution, Hybrid

BCSectionT = TypeVar("BCSectionT", bound=BCSection)


@register_algo_factory_func("bc")
def bc_factory(algo_config: BCSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of behaviour cloning."""
    return BC, {}


class BC(ChunkPolicy[BCSectionT]):
    """Imitate the data's actions given the history (Pomerleau, 1989)."""

    actor: Actor

    def _create_policy(self, num_policies: int | None) -> None:
        self.actor = build_actor(self.trunk.d_output, self.algo_config, self.obs, self.codec, num_policies)
        self.nets["actor"] = self.actor

    def _policy_losses(
        self, hidden: Float[Tensor, "B T D"], inputs: SeqInputs, targets: Targets, batch: SeqBatch
    ) -> Losses:
        """Return the mean negative log-probability of the data's actions, over real transitions."""
        distribution: ActionDistribution = self.actor(hidden, inputs)
        nll = -distribution.log_prob(targets.actions)
        mask = self._counted(batch, nll, targets.mask)
        total = masked_mean(self.weights_over_chunks(batch).reshape(nll.shape) * nll, mask)
        metrics = {"loss/nll": masked_mean(nll.detach(), targets.mask)}
        if self.wants_metrics and isinstance(distribution, Hybrid):
            for name, log_prob in distribution.log_prob_of_parts(targets.actions).items():
                metrics[f"loss/nll_{name}"] = masked_mean(-log_prob.detach(), targets.mask)
        return Losses(total, metrics)

    def _choose(self, hidden: Tensor, inputs: SeqInputs, deterministic: bool) -> Float[Tensor, "B L *K A"]:
        distribution: ActionDistribution = self.actor(hidden, inputs)
        if deterministic:
            return distribution.mode()
        return self.actor.head.for_evaluation(distribution).sample()
