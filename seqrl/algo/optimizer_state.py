"""The tensors of an optimiser, as a checkpoint names them, checked against the optimiser that is to have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from seqrl.core.errors import CheckpointError


def optimizer_slots(tensors: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """Return the state of each parameter, by its number and the names that the optimiser gives.

    Args:
        tensors: ``"<number>.<name>"`` -> tensor.
        optimizer: What they are for.

    Raises:
        CheckpointError: If a name, a shape or a dtype is not the optimiser's.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    sample = _first_state(optimizer) if tensors else {}
    slots: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, key = name.partition(".")
        if key not in sample or not number.isdecimal() or int(number) >= len(parameters):
            raise CheckpointError(f"the optimiser has no {name!r}, only {', '.join(sample)} of {len(parameters)}")
        shape = parameters[int(number)].shape if sample[key].dim() else ()
        require_tensor(f"the optimiser's {name!r}", tensor, shape)
        slots.setdefault(int(number), {})[key] = tensor
    for index, slot in slots.items():
        if missing := sorted(sample.keys() - slot):
            raise CheckpointError(f"the optimiser lacks '{index}.{missing[0]}'")
    return slots


def require_tensor(name: str, tensor: Tensor | None, shape: Sequence[int]) -> None:
    """Refuse a tensor that is missing, not of this shape, or not of floats.

    Raises:
        CheckpointError: If so.
    """
    if tensor is None or tensor.shape != torch.Size(shape) or not tensor.is_floating_point():
        got = "missing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
        raise CheckpointError(f"{name} should be floats of shape {tuple(shape)}, but is {got}")


def _first_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return what an optimiser of this kind keeps of a vector."""
    group = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
    probe = nn.Parameter(torch.zeros(2, device=optimizer.param_groups[0]["params"][0].device))
    probe.grad = torch.zeros_like(probe)
    copy = type(optimizer)([{**group, "params": [probe]}], lr=group["lr"])  # type: ignore[call-arg]
    copy.step()
    return {k: v for k, v in copy.state[probe].items() if isinstance(v, Tensor)}
