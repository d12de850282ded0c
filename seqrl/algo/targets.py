"""Target networks: copies that follow."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

Net = TypeVar("Net", bound=nn.Module)


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
    torch._foreach_lerp_(list(target.parameters()), [p.detach() for p in source.parameters()], tau)
