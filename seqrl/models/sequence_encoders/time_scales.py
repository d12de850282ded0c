"""How long a memory lasts before it has learned anything: what is forgotten at first is hardly ever learned to last."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def log_time_scales(width: int, window_steps: int) -> Float[Tensor, " width"]:
    """Draw the logarithms of steps to remember, one per unit, from one to the window.

    Half of the units are drawn evenly over the steps, most of which are long; half over their logarithm, so that
    there are fast ones in a long window as well.
    """
    longest = max(window_steps - 1.0, 1.0)
    over_steps = torch.empty(width // 2).uniform_(1.0, longest).log()
    over_logarithm = torch.empty(width - width // 2).uniform_(0.0, math.log(longest))
    return torch.cat((over_steps, over_logarithm))


def head_time_scales(num_heads: int, window_steps: int) -> Float[Tensor, " heads"]:
    """Return steps to remember, one per head, from the window down to one, likewise spread but not drawn."""
    longest = float(max(window_steps, 2))
    num_even = num_heads - num_heads // 2
    over_steps = longest * torch.arange(num_even, 0, -1) / num_even
    over_logarithm = torch.linspace(math.log(longest), 0.0, num_heads // 2 + 1)[1:].exp()
    return torch.cat((over_steps, over_logarithm))


def inverse_softplus(x: Tensor) -> Tensor:
    """Return what :func:`torch.nn.functional.softplus` maps to ``x``, which is positive."""
    return x + torch.log(-torch.expm1(-x))
