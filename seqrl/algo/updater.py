"""The one place where weights move."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from seqrl.algo.clipping import GradientClipper, largest_updates, not_finite
from seqrl.algo.finite_guard import FiniteGuard
from seqrl.algo.losses import Losses, checked_losses
from seqrl.algo.optimizer_state import optimizer_slots
from seqrl.algo.processes import Accelerator, make_accelerator
from seqrl.configs import BaseConfig
from seqrl.configs.sections.policy import OptimizerSection
from seqrl.configs.sections.run import TrainSection
from seqrl.core.errors import ConfigError, did_you_mean
from seqrl.core.schedules import cosine_decay, linear_decay, multistep_decay, warmup
from seqrl.core.tensors import SeqBatch, flushed_denormals


@runtime_checkable
class TrainedAlgo(Protocol):
    """What of an :class:`~seqrl.algo.Algo` it takes to move its weights."""

    config: BaseConfig
    nets: nn.ModuleDict
    device: torch.device
    wants_metrics: bool

    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the losses of a processed batch."""

    def on_gradient_step(self, stats: Mapping[str, Tensor]) -> None:
        """Move what follows the weights."""


CLIPPER, SCALER = "clipper", "scaler"
"""Where the optimiser's tensors have those of the clipper, and of what scales the loss in float16."""
SCALER_STATE = {"scale": float, "_growth_tracker": int}
LossFunction = Callable[[SeqBatch], "Losses"]
"""From a processed batch to its losses; it writes no parameter and no buffer."""


class LossModule(nn.Module):
    """Gives the losses through ``__call__``, so that a distributed wrapper sees the forward pass.

    Args:
        nets: Networks whose gradients the losses make.
        compute_losses: From a processed batch to its losses.
        is_compiled: Call it through ``torch.compile``.
    """

    def __init__(self, nets: nn.Module, compute_losses: LossFunction, *, is_compiled: bool = False) -> None:
        super().__init__()
        self.nets = nets
        self._compute_losses = torch.compile(compute_losses, dynamic=False) if is_compiled else compute_losses

    def forward(self, batch: SeqBatch) -> Losses:
        """Return the losses of a batch."""
        losses: Losses = self._compute_losses(batch)
        return losses


class Updater:
    """Accumulates gradients, clips them, steps the optimiser, then lets the algorithm move what follows the weights.

    A step whose gradient is not finite changes nothing, neither weights nor what follows them (targets, averages,
    statistics): the optimiser is told on the device, and the host learns of it one step later without waiting.

    Args:
        algo: Whose weights move.
        accelerator: Device placement, precision, processes; a plain one by default.
        accumulate_batches: Micro-batches whose gradients make one step.
        on_nonfinite: ``stop`` raises a TrainingError after a non-finite step, ``skip`` goes on.
        is_compiled: Compute the losses through ``torch.compile``.
        optimizer: Of the networks' parameters; None is the one of ``algo.optimizer``.
        compute_losses: From a processed batch to its losses; None is the algorithm's own.

    Attributes:
        weight: Of the next batch's loss among the ranks, whose gradients are averaged: 1 unless they share one batch
            and hold more or fewer transitions of it than the others.
        num_steps: Gradient steps so far.
    """

    def __init__(
        self,
        algo: TrainedAlgo,
        accelerator: Accelerator | None = None,
        *,
        accumulate_batches: int = 1,
        on_nonfinite: str = "stop",
        is_compiled: bool = False,
        optimizer: torch.optim.Optimizer | None = None,
        compute_losses: LossFunction | None = None,
    ) -> None:
        section = algo.config.algo.optimizer
        self._algo = algo
        self._section = section
        self._decay_steps = section.decay_steps or steps_after_warmup(algo.config.train, section)
        self._accelerator = accelerator or make_accelerator(algo.device, some_rest=algo.config.algo.some_rest)
        self._raw_optimizer = optimizer or build_optimizer(algo.nets, section)
        self._rates = [group["lr"] for group in self._raw_optimizer.param_groups]
        self._trained = {
            name: parameters
            for name, net in algo.nets.items()
            if (parameters := [p for p in net.parameters() if p.requires_grad])
        }
        self._clipper = GradientClipper(
            self._trained,
            spike=section.spike_clip,
            norm=section.grad_clip,
            is_together=section.clip == "global",
            decay=self._raw_optimizer.param_groups[0].get("betas", (0.9, 0.999))[1],
        )
        self._is_fused = all(group.get("fused") for group in self._raw_optimizer.param_groups)
        self._compute_losses: LossFunction = compute_losses or algo.compute_losses
        self._module, self._optimizer = self._accelerator.prepare(
            LossModule(algo.nets, self._compute_losses, is_compiled=is_compiled), self._raw_optimizer
        )
        self._accumulate = accumulate_batches
        self._batches: list[SeqBatch] = []
        self._bad: Tensor | None = None
        self._stats: dict[str, Tensor] = {}
        self.guard = FiniteGuard(stop=on_nonfinite == "stop")
        self.num_steps = 0
        self.weight = 1.0

    @property
    def learning_rate(self) -> float:
        """That of the last step, before the factors of ``algo.optimizer.rates``."""
        first = self._raw_optimizer.param_groups[0]
        return float(first["lr"] / first.get("factor", 1.0))

    def compute_losses(self, batch: SeqBatch) -> Losses:
        """Return the losses of a processed batch, and learn nothing; neither compiled nor synchronised.

        Raises:
            PluginError: If ``compute_losses`` of the algorithm does not return :class:`Losses` of a scalar.
        """
        return checked_losses(self._compute_losses(batch))

    def step(self, batch: SeqBatch) -> Losses:
        """Run one micro-batch; update the weights when the accumulation is full.

        Raises:
            PluginError: If ``compute_losses`` does not return :class:`Losses` of a scalar that depends on the weights.

        Micro-batches are counted here: accelerate would count them for the whole process, so two updaters would
        disturb each other.
        """
        if not self._batches:
            self.guard.check()
        self._batches.append(batch)
        is_last = len(self._batches) == self._accumulate
        with contextlib.nullcontext() if is_last else self._accelerator.no_sync(self._module):
            losses = checked_losses(self._module(batch))
            self._backward(losses.total)
        bad = not_finite(losses.total.detach())
        self._bad = bad if self._bad is None else self._bad | bad
        self._add(losses.stats)
        if is_last:
            self._set_learning_rate()
            self._accelerator.unscale_gradients()
            losses.metrics["optim/grad_norm"] = norm = self._clipper.clip(  # its norm is the same on all ranks
                self._bad if self._accelerator.num_processes == 1 else None
            )
            self._update(losses.metrics)
            if self._algo.wants_metrics:
                losses.metrics["optim/learning_rate"] = norm.new_full((), self.learning_rate)
                losses.metrics.update(self._metrics())
        return losses

    def _backward(self, loss: Tensor) -> None:
        if self._accumulate > 1:
            loss = loss / self._accumulate
        if self.weight != 1.0:
            loss = loss * self.weight
        scaler = self._accelerator.scaler
        (loss if scaler is None else scaler.scale(loss)).backward()

    def _set_learning_rate(self) -> None:
        factor = learning_rate_factor(self.num_steps, self._section, self._decay_steps)
        for group, rate in zip(self._raw_optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor

    def _metrics(self) -> dict[str, Tensor]:
        """Return what tells a healthy step from a spike, for each network."""
        found = {
            "grad_norm": self._clipper.norms,
            "grad_ratio": self._clipper.ratios,
            "update": largest_updates(self._trained, self._raw_optimizer),
        }
        return {f"optim/{kind}_{name}": value for kind, each in found.items() for name, value in each.items()}

    def _update(self, metrics: Mapping[str, Tensor]) -> None:
        """Step unless something is not finite, and let the algorithm follow."""
        bad = self._clipper.is_bad
        if self._accelerator.scaler is None:  # float16's scaler looks for overflow itself
            if self._is_fused and not bad.is_cpu:  # only these can be told on the device
                self._raw_optimizer.found_inf = bad.float().reshape(())  # type: ignore[attr-defined]
            elif _is_set(bad):
                self._drop_gradients()
            self.guard.push(bad, self._batches, self.num_steps, metrics)
        elif self._bad is not None:  # a loss is not scaled, so no smaller scale mends it
            bad_anywhere = self._accelerator.reduce(self._bad.float(), "sum") > 0
            self.guard.push(bad_anywhere, self._batches, self.num_steps, metrics)
        with flushed_denormals():  # moments of idle weights decay to such numbers
            (self._raw_optimizer if self._accelerator.scaler is None else self._optimizer).step()
        self._drop_gradients()
        self._batches, self._bad = [], None
        self.num_steps += 1
        self._follow(bad)

    def _drop_gradients(self) -> None:
        for group in self._raw_optimizer.param_groups:  # quicker than zero_grad
            for parameter in group["params"]:
                parameter.grad = None

    def _follow(self, bad: Tensor) -> None:
        """Let the algorithm move what follows the weights, unless the step was suppressed."""
        stats = self._reduced()
        if bad.is_cpu:
            if not _is_set(bad):
                self._algo.on_gradient_step(stats)
            return
        # the host does not wait for the flag, so what follows moves, and goes back where it is set
        move_unless(bad, self._followers(), lambda: self._algo.on_gradient_step(stats))

    def _followers(self) -> list[Tensor]:
        """Return the tensors of the networks that the optimiser does not move."""
        nets = self._algo.nets
        return [*nets.buffers(), *(p for p in nets.parameters() if not p.requires_grad)]

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which a forward pass has the run's precision."""
        context: contextlib.AbstractContextManager[Any] = self._accelerator.autocast()
        return context

    def _add(self, stats: dict[str, Tensor]) -> None:
        for name, value in stats.items():
            self._stats[name] = self._stats[name] + value if name in self._stats else value

    def _reduced(self) -> dict[str, Tensor]:
        """Return the sums over micro-batches and ranks, and start anew."""
        stats, self._stats = self._stats, {}
        if self._accelerator.num_processes == 1:
            return stats
        return {name: self._accelerator.reduce(value, "sum") for name, value in stats.items()}

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's tensors by name, on the CPU."""
        state = self._raw_optimizer.state_dict()["state"]
        return (
            {
                f"{i}.{k}": v.detach().cpu().clone()
                for i, slot in state.items()
                for k, v in slot.items()
                if isinstance(v, Tensor)
            }
            | {f"{CLIPPER}.{k}": v for k, v in self._clipper.state_tensors().items()}
            | self._scaler_tensors()
        )

    def _scaler_tensors(self) -> dict[str, Tensor]:
        scaler = self._accelerator.scaler
        state = {} if scaler is None else scaler.state_dict()
        return {f"{SCALER}.{k}": torch.tensor(state[k], dtype=torch.float64) for k in SCALER_STATE if k in state}

    def load_state(self, tensors: dict[str, Tensor], num_steps: int) -> None:
        """Restore what :meth:`state_tensors` gave, and the number of steps.

        Raises:
            CheckpointError: If a tensor has a wrong name, shape or dtype.
        """
        prefix = f"{CLIPPER}."
        clipper = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        own = {k: v for k, v in tensors.items() if not k.startswith((prefix, f"{SCALER}."))}
        groups = self._raw_optimizer.state_dict()["param_groups"]
        slots = optimizer_slots(own, self._raw_optimizer)
        self._raw_optimizer.load_state_dict({"state": slots, "param_groups": groups})
        if not clipper:  # saved before there was one
            self._clipper.infer_state(self._raw_optimizer)
        else:
            self._clipper.load_state(clipper)
        if (scaler := self._accelerator.scaler) is not None and f"{SCALER}.scale" in tensors:
            kept = {k: kind(tensors[f"{SCALER}.{k}"]) for k, kind in SCALER_STATE.items()}
            scaler.load_state_dict({**scaler.state_dict(), **kept})
        self.num_steps = num_steps


@torch.no_grad()
def move_unless(bad: Tensor, tensors: Sequence[Tensor], move: Callable[[], None]) -> None:
    """Call ``move``, and put the tensors back where the flag is set, without waiting for it: few kernels for many."""
    groups: dict[torch.dtype, list[Tensor]] = {}
    for x in tensors:
        groups.setdefault(x.dtype, []).append(x)
    before = {dtype: torch.cat([x.reshape(-1) for x in group]) for dtype, group in groups.items()}
    move()
    for dtype, group in groups.items():
        kept = torch.where(bad, before[dtype], torch.cat([x.reshape(-1) for x in group]))
        pieces = kept.split([x.numel() for x in group])
        torch._foreach_copy_(group, [piece.view_as(x) for piece, x in zip(pieces, group, strict=True)])


def _is_set(flag: Tensor) -> bool:
    """Return the flag; on a CPU, where it is the same memory, nothing waits and no operator is called."""
    return bool(flag.numpy() if flag.is_cpu else flag)


def steps_after_warmup(train: TrainSection, section: OptimizerSection) -> int:
    """Return how many of a run's gradient steps come after its warm-up, at least 1."""
    num_steps = max(train.num_epochs - train.start_epoch, 0) * train.steps_per_epoch
    return max(num_steps - section.warmup_steps, 1)


def learning_rate_factor(step: int, section: OptimizerSection, decay_steps: int) -> float:
    """Return what gradient step ``step`` (the first is 0) multiplies the learning rate by.

    It depends on nothing but the step, so a resumed run goes on as if it had not stopped.
    """
    factor = warmup(step, section.warmup_steps)
    since_warmup = step - section.warmup_steps
    if section.schedule == "linear":
        return factor * linear_decay(since_warmup, decay_steps, section.final_factor)
    if section.schedule == "cosine":
        return factor * cosine_decay(since_warmup, decay_steps, section.final_factor)
    return factor * multistep_decay(step, section.milestones, section.milestone_factor)


_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}


def build_optimizer(nets: nn.ModuleDict, section: OptimizerSection) -> torch.optim.Optimizer:
    """Return a fused optimiser that decays weight matrices only: no biases, norms or scales.

    Nor a parameter whose attribute ``no_weight_decay`` is true. ``algo.optimizer.rates`` do not change the order of the
    parameters, by which the optimiser's state is saved.

    Raises:
        ConfigError: If ``algo.optimizer.rates`` names a network that is not there, or has nothing to learn.
    """
    trained = [name for name, net in nets.items() if any(p.requires_grad for p in net.parameters())]
    if unknown := sorted(section.rates.keys() - set(trained)):
        hint = did_you_mean(unknown[0], trained) or ";"
        raise ConfigError(
            f"algo.optimizer.rates: no network {unknown[0]!r} learns{hint} there are: {', '.join(trained)}"
        )
    groups: list[dict[str, Any]] = []
    named = [(n, p) for n, p in nets.named_parameters() if p.requires_grad]
    for is_plain, decay in ((False, section.weight_decay), (True, 0.0)):
        for name, parameter in named:
            if _is_plain(name, parameter) is not is_plain:
                continue
            factor = section.rates.get(name.split(".")[0], 1.0)
            if not groups or (groups[-1]["weight_decay"], groups[-1]["factor"]) != (decay, factor):
                rate = section.learning_rate * factor
                groups.append({"params": [], "weight_decay": decay, "lr": rate, "factor": factor})
            groups[-1]["params"].append(parameter)
    return _OPTIMIZERS[section.method](groups, lr=section.learning_rate, fused=True)


def _is_plain(name: str, parameter: nn.Parameter) -> bool:
    return parameter.dim() < 2 or name.endswith(("scale", "bias")) or getattr(parameter, "no_weight_decay", False)
