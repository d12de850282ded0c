"""Gradient steps: one epoch of them, and the loss on held-out windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from seqrl.algo.algo import Algo
from seqrl.configs.sections.run import TrainSection
from seqrl.core.seeding import integer_seed
from seqrl.core.tensors import SeqBatch
from seqrl.data.prefetch import prefetched
from seqrl.data.sequence_dataset import SequenceDataset
from seqrl.training.evaluator import evaluation_mode

OnLog = Callable[[Mapping[str, float], int], None]
OnProgress = Callable[[int], None]


class Learner:
    """Runs epochs of gradient steps on a dataset.

    Args:
        algo: What learns.
        train: Batch size, steps, seed.
        dataset: Training windows.
        valid: Held-out windows, if any.
        rank: Of this process; every rank draws other windows.
    """

    def __init__(
        self,
        algo: Algo,
        train: TrainSection,
        dataset: SequenceDataset,
        valid: SequenceDataset | None = None,
        *,
        rank: int = 0,
    ) -> None:
        self.algo = algo
        self.dataset = dataset
        self.valid = valid
        self._train = train
        self._rank = rank
        self._valid_batches: list[SeqBatch] = []

    def learn_epoch(self, epoch: int, *, log_every: int, on_log: OnLog, on_step: OnProgress) -> dict[str, float]:
        """Take the gradient steps of one epoch; return its speed.

        Args:
            epoch: Number of the epoch; with the seed it decides every batch.
            log_every: Gradient steps between two calls of ``on_log``.
            on_log: Takes metrics and the gradient step.
            on_step: Called after each gradient step with its number.
        """
        algo, updater = self.algo, self.algo.updater
        num_batches = self._train.steps_per_epoch * self._train.accumulate_batches
        waited, begin = 0.0, time.perf_counter()
        algo.set_train()
        batches = prefetched(
            lambda k: self._batch(epoch, k),
            range(num_batches),
            self._train.prefetch_batches,
            pin=algo.device.type == "cuda",
        )
        try:
            for k in range(num_batches):
                asked = time.perf_counter()
                batch = next(batches)
                waited += time.perf_counter() - asked
                is_last = (k + 1) % self._train.accumulate_batches == 0
                algo.wants_metrics = is_last and (updater.num_steps + 1) % log_every == 0
                info = algo.train_on_batch(algo.process_batch_for_training(batch), epoch)
                if is_last:
                    if algo.wants_metrics:
                        on_log(self._numbers(info), updater.num_steps)
                    on_step(updater.num_steps)
        finally:
            batches.close()  # type: ignore[attr-defined]
            algo.wants_metrics = True
        updater.guard.check(wait=True)
        algo.on_epoch_end(epoch)
        elapsed = time.perf_counter() - begin
        return {
            "time/gradient_steps_per_s": self._train.steps_per_epoch / elapsed,
            "time/data_wait_share": waited / elapsed,
            "optim/skipped_steps": float(updater.guard.num_skipped),
        }

    def _batch(self, epoch: int, k: int) -> SeqBatch:
        return self.dataset.batch(self._train.batch_size, seed=self._train.seed, path=("train", self._rank, epoch, k))

    def _numbers(self, info: Mapping[str, Tensor]) -> dict[str, float]:
        numbers = self.algo.log_info(info)
        numbers.pop("Loss", None)
        return {(k if "/" in k else f"train/{k}"): v for k, v in numbers.items()}

    def validate(self) -> dict[str, float]:
        """Return the mean losses over fixed held-out windows, as ``valid/...``; empty without held-out data."""
        if self.valid is None:
            return {}
        if not self._valid_batches:
            self._valid_batches = [
                self.valid.batch(self._train.batch_size, seed=self._train.seed, path=("valid", k))
                for k in range(self._train.valid_batches)
            ]
        algo = self.algo
        with evaluation_mode(algo, integer_seed(self._train.seed, "valid")), algo.updater.autocast():
            infos = [
                algo.train_on_batch(algo.process_batch_for_training(b), validate=True) for b in self._valid_batches
            ]
        numbers = algo.log_info({k: torch.stack([i[k].float() for i in infos]).mean() for k in infos[0]})
        numbers = {k: v for k, v in numbers.items() if not k.startswith(("Loss", "popart/", "data/"))}
        return {f"valid/{k.removeprefix('loss/').replace('/', '_')}": v for k, v in numbers.items()}


def predicted_memory(algo: Algo, batch: SeqBatch, num_ahead: int) -> dict[str, float]:
    """Return megabytes of weights (with gradients and optimiser), of batches, and of activations kept for backward.

    The activations are those of one real forward pass on ``batch``; nothing is changed by it.
    """
    weights = sum(p.numel() * p.element_size() for p in algo.nets.parameters())
    seen: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would make a cycle that nothing frees

    devices = [algo.device] if algo.device.type == "cuda" else []
    with (
        torch.random.fork_rng(devices),
        algo.updater.autocast(),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t),
    ):
        algo.compute_losses(algo.process_batch_for_training(batch))
    owned = {p.untyped_storage().data_ptr() for p in algo.nets.parameters()}
    sizes: list[int] = []
    batch.map(lambda x: sizes.append(x.numel() * x.element_size()) or x)  # type: ignore[func-returns-value]
    return {
        "weights_mb": 4 * weights / 1e6,
        "batches_mb": sum(sizes) * (num_ahead + 2) / 1e6,
        "activations_mb": sum(n for pointer, n in seen.items() if pointer not in owned) / 1e6,
    }
