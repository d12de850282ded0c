"""Averages of the weights, which act in place of the weights: noise of single gradient steps does not reach them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seqrl.algo.targets import frozen_copy
from seqrl.core.errors import ConfigError
from seqrl.models.sigma_linear import SigmaLinear

AVERAGES = "averages"
"""Where the networks of an algorithm have their averages."""

POWER = 0.75
"""By which the decay of averages grows with the steps."""


class AveragedNets(nn.Module):
    """Moving averages of networks, with a decay that grows with the steps.

    After ``n`` steps the decay is ``1 - (1 + n)^-0.75``, at most ``max_decay``, so early weights are soon forgotten.
    Buffers, such as the statistics of inputs, are copied, but each average of a :class:`SigmaLinear` has its own
    singular vectors. The averages take no gradient and are saved with the weights.

    Args:
        nets: Name -> network.
        max_decay: Largest decay.

    Source: Polyak and Juditsky (1992), Acceleration of stochastic approximation by averaging; Nikishin et al. (2018),
    Improving stability in deep reinforcement learning with weight averaging; the growing decay is that of Chi et al.
    (2023), Diffusion Policy, arXiv 2303.04137, section 6.
    """

    num_steps: Tensor

    def __init__(self, nets: nn.ModuleDict, *, max_decay: float) -> None:
        super().__init__()
        self.averages = nn.ModuleDict({name: frozen_copy(net) for name, net in nets.items()})
        self.max_decay = max_decay
        self.register_buffer("num_steps", torch.zeros((), dtype=torch.int64))
        self._found: tuple[list[Tensor], ...] = ()
        self._spectral = [module for module in self.averages.modules() if isinstance(module, SigmaLinear)]

    @torch.no_grad()
    def move(self, nets: nn.ModuleDict) -> None:
        """Move each average towards its network, after a gradient step."""
        self.num_steps += 1
        step = (1.0 + self.num_steps) ** -POWER  # stays on the device: nothing waits for it
        step = step.clamp(min=1.0 - self.max_decay)
        self._found = self._found or self._pairs(nets)
        means, weights, copies, others = self._found
        if step.is_cpu:
            torch._foreach_lerp_(means, weights, float(step.numpy()))  # one pass over memory
        else:
            way = torch._foreach_sub(weights, means)
            torch._foreach_mul_(way, step)
            torch._foreach_add_(means, way)
        for copied, other in zip(copies, others, strict=True):
            copied.copy_(other)
        for module in self._spectral:
            module.power_iteration()

    def _pairs(self, nets: nn.ModuleDict) -> tuple[list[Tensor], ...]:
        """Return averages and weights that learn, and copies and what they are of."""
        own = {id(x) for module in self._spectral for x in module.buffers()}
        found: tuple[list[Tensor], ...] = ([], [], [], [])
        for name, average in self.averages.items():
            for mean, weight in zip(average.parameters(), nets[name].parameters(), strict=True):
                learns = 0 if weight.requires_grad else 2
                found[learns].append(mean)
                found[learns + 1].append(weight)
            for copied, buffer in zip(average.buffers(), nets[name].buffers(), strict=True):
                if id(copied) not in own:
                    found[2].append(copied)
                    found[3].append(buffer)
        return found

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AveragedNets:
        self._found = ()  # buffers are replaced, as by Module.to
        applied: AveragedNets = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return applied

    @torch.no_grad()
    def copy_to(self, nets: nn.ModuleDict) -> list[tuple[Tensor, Tensor]]:
        """Put the averages in the place of the weights, and return tensors with what they held before."""
        pairs = []
        for name, average in self.averages.items():
            held = dict(average.named_modules())
            for path, part in nets[name].named_modules():
                learned = [(key, p) for key, p in part._parameters.items() if p is not None and p.requires_grad]
                vectors = list(part._buffers.items()) if isinstance(part, SigmaLinear) else []
                pairs += [(tensor, getattr(held[path], key)) for key, tensor in [*learned, *vectors]]
        replaced = [(tensor, tensor.detach().clone()) for tensor, _ in pairs]
        for tensor, mean in pairs:  # by now nothing can fail
            tensor.copy_(mean)
        return replaced


def add_averages(nets: nn.ModuleDict, max_decay: float | None) -> None:
    """Keep averages of the networks that learn, in ``nets[AVERAGES]``; a ``max_decay`` of None keeps none.

    Raises:
        ConfigError: If a network has this name, or cannot be copied.
    """
    if AVERAGES in nets:
        raise ConfigError(
            f"nets[{AVERAGES!r}] is where an algorithm has the averages of its weights: take another name"
        )
    if max_decay is None:
        return
    trained = {name: net for name, net in nets.items() if any(p.requires_grad for p in net.parameters())}
    try:
        nets[AVERAGES] = AveragedNets(nn.ModuleDict(trained), max_decay=max_decay)
    except RuntimeError as error:  # torch.nn.utils.weight_norm
        raise ConfigError(
            f"no averages of the weights can be kept, as networks cannot be copied ({str(error)[:120]}): set "
            "algo.average_decay to null, or use torch.nn.utils.parametrizations"
        ) from error


def move_averages(nets: nn.ModuleDict) -> None:
    """Let the averages follow, if there are any."""
    if AVERAGES in nets:
        _of(nets).move(nets)


@contextmanager
def averaged(nets: nn.ModuleDict) -> Iterator[None]:
    """Let the averages stand in for the weights, if there are any and they have moved."""
    replaced = _of(nets).copy_to(nets) if has_averages(nets) else []
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, weight in reversed(replaced):  # one may be there twice
                tensor.copy_(weight)


def take_averages(nets: nn.ModuleDict) -> None:
    """Replace the weights by their averages for good, if there are any and they have moved."""
    if has_averages(nets):
        _of(nets).copy_to(nets)


def has_averages(nets: nn.ModuleDict) -> bool:
    """Tell whether there are averages that have moved."""
    return AVERAGES in nets and bool(_of(nets).num_steps > 0)


def num_parameters(nets: nn.ModuleDict) -> int:
    """Count parameters, without their averages."""
    return sum(p.numel() for name, net in nets.items() if name != AVERAGES for p in net.parameters())


def without_averages(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by name without their averages."""
    return {name: tensor for name, tensor in weights.items() if not name.startswith(f"{AVERAGES}.")}


def averaged_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by name, averages in the place of those that have some."""
    own = without_averages(weights)
    if not weights.get(f"{AVERAGES}.num_steps", torch.zeros(())) > 0:
        return own
    return {name: weights.get(f"{AVERAGES}.{AVERAGES}.{name}", tensor) for name, tensor in own.items()}


def with_averages(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with averages if ``own`` has them, and else without; those of weights without begin with these."""
    prefix = f"{AVERAGES}."
    if not any(name.startswith(prefix) for name in own):
        return without_averages(weights)
    if any(name.startswith(prefix) for name in weights):
        return dict(weights)
    start = {f"{prefix}{AVERAGES}.{name}": tensor for name, tensor in weights.items()}
    start[f"{prefix}num_steps"] = torch.zeros((), dtype=torch.int64)
    return {**weights, **{name: start[name] for name in own if name.startswith(prefix) and name in start}}


def _of(nets: nn.ModuleDict) -> AveragedNets:
    found = nets[AVERAGES]
    assert isinstance(found, AveragedNets)
    return found
