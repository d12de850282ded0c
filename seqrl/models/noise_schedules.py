"""From noise to samples: how diffusion and flow matching get there, given a network. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.core.errors import ConfigError

Predictor = Callable[[Tensor, int], Tensor]
"""From a noisy ``(N, ...)`` and the index of its noise level to the noise in it."""

Velocity = Callable[[Tensor, float], Tensor]
"""From a point ``(N, ...)`` and a time in [0, 1] to where it goes."""


def signal_shares(num_steps: int) -> list[float]:
    r"""Return :math:`\bar\alpha_k`, the share of the signal's variance at each of the noise levels; it falls.

    Levels are betas of a squared cosine, each at most 0.999.

    Source: Nichol & Dhariwal (2021, arXiv 2102.09672), equation 17.
    """

    def share(time: float) -> float:
        return math.cos((time + 0.008) / 1.008 * math.pi / 2) ** 2

    product, shares = 1.0, []
    for k in range(num_steps):
        product *= max(share((k + 1) / num_steps) / share(k / num_steps), 1.0 - 0.999)
        shares.append(product)
    return shares


def levels_asked(num_steps: int, num_asked: int) -> list[int]:
    """Return which noise levels are asked, falling, at equal distances and ending at 0 ("leading" spacing).

    Raises:
        ConfigError: If there are fewer levels than are asked.
    """
    if not 1 <= num_asked <= num_steps:
        raise ConfigError(f"inference_steps must be in 1 .. noise_steps ({num_steps}), got {num_asked}")
    return [i * num_steps // num_asked for i in reversed(range(num_asked))]


def add_noise(
    x: Float[Tensor, N * rest], noise: Float[Tensor, N * rest], share: Float[Tensor, " N"]
) -> Float[Tensor, N * rest]:
    r"""Return :math:`\sqrt{\bar\alpha} x + \sqrt{1 - \bar\alpha} \epsilon`."""
    share = share.reshape(-1, *[1] * (x.dim() - 1))
    return share.sqrt() * x + (1.0 - share).sqrt() * noise


def denoise(
    predict: Predictor,
    x: Float[Tensor, N * rest],
    shares: Sequence[float],
    levels: Sequence[int],
    *,
    eta: float = 0.0,
    limit: float | None = 1.0,
) -> Float[Tensor, N * rest]:
    r"""Return samples, from noise.

    At each level the clean sample is estimated, then noised again to the next one; after the last it is returned.

    Args:
        predict: The network.
        x: Standard normal noise.
        shares: From :func:`signal_shares`.
        levels: From :func:`levels_asked`.
        eta: Share of the noise that is drawn anew: 0 is DDIM, the same for the same ``x``; 1 over all levels is DDPM.
        limit: Clean samples are clipped to plus and minus this; None leaves them.

    Source: Song et al. (2021), DDIM, arXiv 2010.02502, equations 12 and 16.
    """
    for level, following in zip(levels, [*levels[1:], None], strict=True):
        share, share_after = shares[level], 1.0 if following is None else shares[following]
        clean = (x - math.sqrt(1.0 - share) * predict(x, level)) / math.sqrt(share)
        if limit is not None:
            clean = clean.clamp(-limit, limit)
        noise = (x - math.sqrt(share) * clean) / math.sqrt(1.0 - share)
        fresh = eta * math.sqrt((1.0 - share_after) / (1.0 - share) * (1.0 - share / share_after))
        x = math.sqrt(share_after) * clean + math.sqrt(max(1.0 - share_after - fresh**2, 0.0)) * noise
        if fresh > 0.0:
            x = x + fresh * torch.randn_like(x)
    return x


def follow_flow(
    velocity: Velocity, x: Float[Tensor, N * rest], num_steps: int, *, is_second_order: bool = False
) -> Float[Tensor, N * rest]:
    """Return where points are carried from time 0 to 1, by Euler's method, or Heun's with two calls a step.

    Source: Lipman et al. (2023), flow matching, arXiv 2210.02747.
    """
    length = 1.0 / num_steps
    for i in range(num_steps):
        slope = velocity(x, i * length)
        if is_second_order:
            slope = (slope + velocity(x + length * slope, (i + 1) * length)) / 2
        x = x + length * slope
    return x
