"""Action chunking with transformers (Zhao et al., 2023, arXiv 2304.13705), on any memory."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.algo import Algo, register_algo_factory_func
from seqrl.algo.chunk_policy import ChunkPolicy, Targets
from seqrl.algo.losses import Losses
from seqrl.algo.objectives import draw_positions, masked_mean, spread_positions, take_positions
from seqrl.configs.act_config import ACTSection
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.chunk_transformers import ChunkReader, ChunkWriter
from seqrl.models.latents import GaussianLatent


@register_algo_factory_func("act")
def act_factory(algo_config: ACTSection) -> tuple[type[Algo[Any]], dict[str, Any]]:
    """Return the class of action chunking with transformers."""
    return ACT, {}


class ACT(ChunkPolicy[ACTSection]):
    """Imitate chunks of actions by a conditional auto-encoder of transformers.

    In training a posterior reads the chunk and gives a latent vector, from which and from what the memory holds the
    chunk is written; its error is the absolute one. Greedy chunks are those of latent 0; sampled ones draw it.
    """

    action_kinds = frozenset({"continuous"})
    fitted = ("loss/l1",)

    def _create_policy(self, num_policies: int | None) -> None:
        section = self.algo_config
        self.latent = GaussianLatent(section.d_latent, is_learned=False)
        sizes = (self.chunk_steps, self.codec.dim, self.trunk.d_output)
        shared: dict[str, Any] = section.model_dump(include={"d_model", "num_heads", "dropout"})
        num_encoder, num_decoder = section.num_encoder_layers, section.num_decoder_layers
        self.posterior = ChunkReader(*sizes, self.latent.num_posterior, num_layers=num_encoder, **shared)
        self.decoder = ChunkWriter(*sizes, section.d_latent, num_layers=num_decoder, **shared)
        self.nets.update({"latent": self.latent, "posterior": self.posterior, "decoder": self.decoder})

    def _policy_losses(
        self, hidden: Float[Tensor, "B T D"], inputs: SeqInputs, targets: Targets, batch: SeqBatch
    ) -> Losses:
        """Return the error of the chunks of a few positions of each window, and the latent's divergence."""
        is_single = targets.mask.dim() == 2
        actions, mask = (x.unsqueeze(2) if is_single else x for x in (targets.actions, targets.mask))
        index = draw_positions(mask.any(-1), self.algo_config.samples_per_window)
        drawn = take_positions(mask, index)
        shown = take_positions(actions, index) * drawn.unsqueeze(-1)
        told = take_positions(hidden, index).flatten(0, 1)
        flat = (shown.flatten(0, 1), drawn.flatten(0, 1))
        z, divergence = self.latent.draw(self.posterior(told, *flat).float(), told[:, :0])
        error = (self.decoder(told, z.to(told.dtype)) - flat[0]).abs().mean(-1)
        loss = spread_positions(error.reshape(drawn.shape), index, mask)
        asked = spread_positions(drawn, index, mask)
        divergences = spread_positions(divergence.reshape(index.shape), index, mask[..., 0])
        l1 = masked_mean(self.weights_over_chunks(batch) * loss, self._counted(batch, loss, asked))
        kl = masked_mean(self.weights(batch) * divergences, self._counted(batch, divergences, asked.any(-1)))
        metrics = {"loss/l1": masked_mean(loss.detach(), asked), "loss/divergence": kl.detach()}
        return Losses(l1 + self.algo_config.kl_weight * kl, metrics)

    def _choose(self, hidden: Tensor, inputs: SeqInputs, deterministic: bool) -> Float[Tensor, "B L *K A"]:
        told = hidden.flatten(0, 1)
        z = told.new_zeros(told.shape[0], self.latent.width)
        if not deterministic:
            z = torch.randn_like(z)
        chunks: Tensor = self.decoder(told, z).float().clamp(-1.0, 1.0).unflatten(0, hidden.shape[:2])
        return chunks if self.chunk_steps > 1 else chunks.squeeze(2)
