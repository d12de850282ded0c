"""Target networks: copies that follow."""

from __future__ import annotations

import copy
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

Net = TypeVar("Net", bound=nn.Module)
_FOUND: WeakKeyDictionary[nn.Module, list[Tensor]] = WeakKeyDictionary()


def frozen_copy(net: Net) -> Net:
    """Return a copy of a network whose parameters take no gradient."""
    target = copy.deepcopy(net)
    target.requires_grad_(False)
    return target


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Move every parameter of ``target`` by the share ``tau`` of its way to that of ``source`` (Polyak averaging).

    Args:
        target: From :func:`frozen_copy`.
        source: What it follows.
        tau: In ``(0, 1]``.
    """
    torch._foreach_lerp_(_parameters(target), _parameters(source), tau)


def _parameters(net: nn.Module) -> list[Tensor]:
    """Return a network's parameters, looked up once: in small networks that takes as long as to move them."""
    if net not in _FOUND:
        _FOUND[net] = list(net.parameters())
    return _FOUND[net]
