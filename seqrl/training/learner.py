"""Gradient steps: one epoch of them, and the loss on held-out windows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from seqrl.algo.algo import Algo, ValueAlgo
from seqrl.configs.sections.run import TrainSection
from seqrl.core.files import new_file
from seqrl.core.seeding import integer_seed
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.data.dataset import TrainingDataset
from seqrl.data.prefetch import prefetched
from seqrl.rollout.evaluator import evaluation_mode
from seqrl.training.offline_metrics import offline_metrics
from seqrl.training.sources import burn_in_steps

OnLog = Callable[[Mapping[str, float], int], None]
OnProgress = Callable[[int], None]
TrainStep = Callable[[SeqBatch, int], Mapping[str, Tensor]]
"""From a batch, as the dataset gives it, and the gradient steps so far to what ``Algo.train_on_batch`` returns."""


@dataclass(frozen=True)
class LearnStats:
    """What one epoch of learning came to.

    Attributes:
        num_steps: Gradient steps.
        learn_s: Seconds, all together.
        wait_s: Seconds of these in which no batch was there.
        num_skipped: Updates suppressed so far because they were not finite.
    """

    num_steps: int
    learn_s: float
    wait_s: float
    num_skipped: int


class Learner:
    """Runs epochs of gradient steps on a dataset.

    Args:
        algo: What learns.
        train: Batch size, steps, seed.
        dataset: Training windows.
        valid: Held-out windows, if any.
        rank: Of this process; every rank draws other windows, or takes its own of one batch.
        num_ranks: Processes that learn.
        train_step: Learns from a batch.
    """

    def __init__(
        self,
        algo: Algo,
        train: TrainSection,
        dataset: TrainingDataset,
        valid: TrainingDataset | None = None,
        *,
        rank: int = 0,
        num_ranks: int = 1,
        train_step: TrainStep,
    ) -> None:
        self.algo = algo
        self.dataset = dataset
        self.valid = valid
        self._train = train
        self._rank = rank
        self._num_ranks = num_ranks if train.batch_size_is == "total" else 1
        self._train_step = train_step
        self._valid_batches: list[SeqBatch] = []

    def learn_epoch(
        self, epoch: int, *, log_every: int, on_log: OnLog, on_step: OnProgress, num_done: int = 0
    ) -> LearnStats:
        """Take the gradient steps of one epoch; return its speed.

        Args:
            epoch: Number of the epoch; with the seed it decides every batch.
            log_every: Gradient steps between two calls of ``on_log``.
            on_log: Takes metrics and the gradient step.
            on_step: Called after each gradient step with its number.
            num_done: Gradient steps of the epoch that were taken before it was interrupted.
        """
        algo, updater = self.algo, self.algo.updater
        indices = range(
            num_done * self._train.accumulate_batches, self._train.steps_per_epoch * self._train.accumulate_batches
        )
        waited, begin = 0.0, time.perf_counter()
        algo.set_train()
        batches = prefetched(
            lambda k: self._batch(epoch, k),
            indices,
            self._train.prefetch_batches,
            pin=algo.device.type == "cuda",
        )
        try:
            for k in indices:
                asked = time.perf_counter()
                batch = next(batches)
                waited += time.perf_counter() - asked
                is_last = (k + 1) % self._train.accumulate_batches == 0
                algo.wants_metrics = is_last and (updater.num_steps + 1) % log_every == 0
                info = self._train_step(self._own(batch), updater.num_steps)
                if is_last:
                    if algo.wants_metrics:
                        on_log(self._numbers(info), updater.num_steps)
                    on_step(updater.num_steps)
        finally:
            batches.close()  # type: ignore[attr-defined]
            algo.wants_metrics = True
        updater.guard.check(wait=True)
        algo.on_epoch_end(epoch)
        num_steps = self._train.steps_per_epoch - num_done
        return LearnStats(num_steps, time.perf_counter() - begin, waited, updater.guard.num_skipped)

    def _batch(self, epoch: int, k: int) -> SeqBatch:
        rank = 0 if self._num_ranks > 1 else self._rank
        return self.dataset.batch(self._train.batch_size, seed=self._train.seed, path=("train", rank, epoch, k))

    def _own(self, batch: SeqBatch) -> SeqBatch:
        """Return this rank's windows of a batch that all share, and tell the updater how much they count."""
        if self._num_ranks == 1:
            return batch
        own = batch.map(lambda x: x[self._rank :: self._num_ranks])
        num_valid = int(batch.mask.sum())
        self.algo.updater.weight = self._num_ranks * int(own.mask.sum()) / max(num_valid, 1)
        return own

    def _numbers(self, info: Mapping[str, Tensor]) -> dict[str, float]:
        numbers = self.algo.log_info(info)
        numbers.pop("Loss", None)
        return {(k if "/" in k else f"train/{k}"): v for k, v in numbers.items()}

    def validate(self) -> dict[str, float]:
        """Return the mean losses over fixed held-out windows, as ``valid/...``, and ``train.metrics`` of them.

        Without held-out data it is empty.
        """
        if self.valid is None:
            return {}
        if not self._valid_batches:
            self._valid_batches = [
                self.valid.batch(self._train.batch_size, seed=self._train.seed, path=("valid", k))
                for k in range(self._train.valid_batches)
            ]
        algo = self.algo
        with evaluation_mode(algo, integer_seed(self._train.seed, "valid")), algo.updater.autocast(), torch.no_grad():
            losses = [algo.updater.compute_losses(algo.process_batch_for_training(b)) for b in self._valid_batches]
        infos = [{"loss/total": x.total.detach(), **x.metrics} for x in losses]
        numbers = algo.log_info({k: torch.stack([i[k].float() for i in infos]).mean() for k in infos[0]})
        numbers = {k: v for k, v in numbers.items() if not k.startswith(("Loss", "popart/", "data/"))}
        valid = {f"valid/{k.removeprefix('loss/').replace('/', '_')}": v for k, v in numbers.items()}
        return valid | self._value_of_starts() | offline_metrics(algo, self._train, self._valid_batches)

    def _value_of_starts(self) -> dict[str, float]:
        """Return ``valid/value``: what the critics expect where held-out windows begin an episode."""
        algo = self.algo
        if not isinstance(algo, ValueAlgo) or not getattr(algo, "learns_values", True):
            return {}
        found = []
        with evaluation_mode(algo, integer_seed(self._train.seed, "valid")), algo.updater.autocast(), torch.no_grad():
            for batch in self._valid_batches:
                begins = batch.inputs.step[:, 0] == 0
                if begins.any():
                    values = algo.get_state_value(algo.process_batch_for_training(batch))[:, 0]
                    found.append(values[begins.to(values.device)])
        return {"valid/value": float(torch.cat(found).mean())} if found else {}


def save_batches(batches: Sequence[SeqBatch], folder: Path) -> Path:
    """Write batches to ``nonfinite_batches.safetensors``, to look at them; return the file."""
    file = folder / "nonfinite_batches.safetensors"
    tensors: dict[str, Tensor] = {}
    for i, batch in enumerate(batches):
        before = {} if batch.before is None else {"before": batch.before.obs}
        for name, value in {**batch.to_mapping(), **before}.items():
            entries = {f"{name}/{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
            tensors |= {f"{i}/{k}": v.cpu().contiguous().clone() for k, v in entries.items()}
    with new_file(file) as temporary:
        save_file(tensors, temporary)
    return file


def blank_batch(algo: Algo, train: TrainSection) -> SeqBatch:
    """Return a batch of zeros of the size that training will use."""
    num, burn_in, steps = train.batch_size, burn_in_steps(algo.config), train.window_steps
    shape = (num, burn_in + steps + 1)
    seen = SeqInputs(
        obs={
            k: torch.zeros(*shape, *s.shape, dtype=getattr(torch, _torch_dtype(s.dtype))) for k, s in algo.obs.items()
        },
        prev_action=torch.zeros(*shape, algo.codec.dim),
        prev_reward=torch.zeros(shape),
        step=torch.arange(shape[1]).expand(num, -1).clone(),
    )
    inputs = seen.map(lambda x: x[:, burn_in:])
    extras: dict[str, Tensor] = {name: torch.zeros(num, steps + 1) for name in algo.needs - {"next_obs", "next_action"}}
    if "next_action" in algo.needs:
        extras |= {"next_action": torch.zeros_like(inputs.prev_action), "has_next_action": torch.ones(num, steps + 1)}
    return SeqBatch(
        inputs=inputs,
        actions=torch.from_numpy(algo.codec.random(np.random.default_rng(0), num * steps)).reshape(num, steps, -1),
        rewards=torch.zeros(num, steps),
        terminated=torch.zeros(num, steps, dtype=torch.bool),
        truncated=torch.zeros(num, steps, dtype=torch.bool),
        mask=torch.ones(num, steps, dtype=torch.bool),
        extras=extras,
        before=seen.first(burn_in) if burn_in else None,
    )


def _torch_dtype(name: str) -> str:
    return {"float64": "float32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}.get(name, name)


@dataclass(frozen=True)
class Prediction:
    """What training will take.

    Attributes:
        weights_mb: Weights, gradients, optimiser.
        batches_mb: Batches that are ready or in use.
        activations_mb: What one step keeps for its backward pass.
        step_s: Seconds of one gradient step: three times the fastest of three forward passes.
    """

    weights_mb: float
    batches_mb: float
    activations_mb: float
    step_s: float


def _timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def predict_cost(algo: Algo, train: TrainSection) -> Prediction:
    """Return what training will take, by forward passes on a blank batch; nothing is changed by them."""
    batch = blank_batch(algo, train)
    weights = sum((4 if p.requires_grad else 1) * p.numel() * p.element_size() for p in algo.nets.parameters())
    seen: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would make a cycle that nothing frees

    devices = [algo.device] if algo.device.type == "cuda" else []
    processed, compute_losses = algo.process_batch_for_training(batch), algo.updater.compute_losses
    with torch.random.fork_rng(devices), algo.updater.autocast():
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            compute_losses(processed)
        forward_s = min(_timed(lambda: float(compute_losses(processed).total.detach())) for _ in range(3))
    owned = {p.untyped_storage().data_ptr() for p in algo.nets.parameters()}
    sizes: list[int] = []
    batch.map(lambda x: sizes.append(x.numel() * x.element_size()) or x)  # type: ignore[func-returns-value]
    return Prediction(
        weights_mb=weights / 1e6,
        batches_mb=sum(sizes) * (train.prefetch_batches + 2) / 1e6,
        activations_mb=sum(n for pointer, n in seen.items() if pointer not in owned) / 1e6,
        step_s=3 * forward_s * train.accumulate_batches,
    )
