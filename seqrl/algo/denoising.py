"""What policies share that make a chunk of actions out of noise."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.algo.chunk_policy import ChunkPolicy, Targets
from seqrl.algo.losses import Losses
from seqrl.algo.objectives import draw_positions, masked_mean, spread_positions, take_positions
from seqrl.configs.sections.denoising import DenoisingSection
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.models.denoisers import Denoiser, build_denoiser

DenoisingSectionT = TypeVar("DenoisingSectionT", bound=DenoisingSection)


class Denoising(ChunkPolicy[DenoisingSectionT]):
    """A memory, and a network that turns noise into a chunk of actions, given what the memory holds.

    In training a few positions of each window draw a chunk's noise each. Greedy chunks begin with one noise that is
    always the same: from noise 0 they would end between the ways that the data shows. A subclass says what the network
    learns (:meth:`_errors`) and how noise becomes actions (:meth:`_actions_from`).
    """

    action_kinds = frozenset({"continuous"})
    fitted = ("loss/denoising",)

    def _create_policy(self, num_policies: int | None) -> None:
        section = self.algo_config
        sizes = (self.chunk_steps, self.codec.dim, self.trunk.d_output)
        self.denoiser = build_denoiser(*section.denoiser.choice(), *sizes)
        self.nets["denoiser"] = self.denoiser
        start = torch.randn(sizes[:2], generator=torch.Generator().manual_seed(0))
        self._start = start.to(self.device)

    def _steps_by_default(self) -> int:
        return math.ceil(self.chunk_steps / 2)

    # --------------------------------------------------------------------------------------------- hooks
    @abstractmethod
    def _errors(
        self, denoiser: Denoiser, actions: Float[Tensor, "N K A"], hidden: Float[Tensor, "N D"]
    ) -> Float[Tensor, "N K"]:
        """Return the squared error at noise that is drawn here, a mean over the width of an action."""

    @abstractmethod
    def _actions_from(
        self, denoiser: Denoiser, noise: Float[Tensor, "N K A"], hidden: Float[Tensor, "N D"], *, is_greedy: bool
    ) -> Float[Tensor, "N K A"]:
        """Return the chunks that noise becomes; if greedy, the same for the same noise."""

    # ------------------------------------------------------------------------------------------- training
    def _policy_losses(
        self, hidden: Float[Tensor, "B T D"], inputs: SeqInputs, targets: Targets, batch: SeqBatch
    ) -> Losses:
        """Return the mean error over a few positions of each window."""
        is_single = targets.mask.dim() == 2
        actions, mask = (x.unsqueeze(2) if is_single else x for x in (targets.actions, targets.mask))
        index = draw_positions(mask.any(-1), self.algo_config.samples_per_window)
        shown, drawn = take_positions(actions, index), take_positions(mask, index)
        clean = (shown * drawn.unsqueeze(-1)).flatten(0, 1)
        errors = self._errors(self.denoiser, clean, take_positions(hidden, index).float().flatten(0, 1))
        loss = spread_positions(errors.reshape(drawn.shape), index, mask)
        asked = spread_positions(drawn, index, mask)
        total = masked_mean(self.weights_over_chunks(batch) * loss, self._counted(batch, loss, asked))
        return Losses(total, {"loss/denoising": masked_mean(loss.detach(), asked)})

    # --------------------------------------------------------------------------------------------- acting
    def _choose(self, hidden: Tensor, inputs: SeqInputs, deterministic: bool) -> Float[Tensor, "B L *K A"]:
        lead = hidden.shape[:2]
        given = hidden.float().flatten(0, 1)
        noise = self._start.to(given.dtype).expand(given.shape[0], -1, -1)
        if not deterministic:
            noise = torch.randn_like(noise)
        chunks: Tensor = self._actions_from(self.denoiser, noise, given, is_greedy=deterministic)
        chunks = chunks.clamp(-1.0, 1.0).unflatten(0, lead)
        return chunks if self.chunk_steps > 1 else chunks.squeeze(2)
