"""Target networks: copies that follow."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

Net = TypeVar("Net", bound=nn.Module)


def frozen_copy(net: Net) -> Net:
    """Return a copy of a network whose parameters take no gradient."""
    target = copy.deepcopy(net)
    target.requires_grad_(False)
    return target


@torch.no_grad()
def follow(target: nn.Module | list[Tensor], source: nn.Module | list[Tensor], tau: float) -> None:
    """Move every parameter of ``target`` by the share ``tau`` of its way to that of ``source`` (Polyak averaging).

    Args:
        target: From :func:`frozen_copy`; or its parameters, if it is small and looking them up takes as long.
        source: What it follows, likewise.
        tau: In ``(0, 1]``.
    """
    torch._foreach_lerp_(_parameters(target), _parameters(source), tau)


def _parameters(net: nn.Module | list[Tensor]) -> list[Tensor]:
    return [*net.parameters()] if isinstance(net, nn.Module) else net
