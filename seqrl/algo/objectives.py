"""Pure pieces of losses: tensors in, tensors out."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from seqrl.core.errors import PluginError
from seqrl.core.registry import FILTERS
from seqrl.core.tensors import SeqBatch

MAX_EXPONENT = 80.0
"""Largest exponent whose exponential leaves room in float32."""


def masked_mean(values: Float[Tensor, "*lead"], mask: Bool[Tensor, "*lead"]) -> Float[Tensor, ""]:
    """Mean of ``values`` where ``mask`` is True; padding has no influence, whatever it holds; 0 if all is padding.

    Raises:
        PluginError: If there is not one value for each flag.
    """
    if values.shape != mask.shape:
        raise PluginError(f"values of shape {tuple(values.shape)} do not fit a mask of shape {tuple(mask.shape)}")
    total = values.masked_fill(~mask, 0.0).sum()
    return total / mask.sum().clamp(min=1)


def in_mean_size(values: Float[Tensor, "B T G"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T G"]:
    """Return the values of each discount in units of their mean size where ``mask`` is True; the units stay fixed."""
    size_G = torch.stack([masked_mean(v.abs(), mask) for v in values.detach().unbind(-1)])
    return values / size_G.clamp(min=1e-8)


def expectile_loss(error: Float[Tensor, "*lead"], tau: float) -> Float[Tensor, "*lead"]:
    r"""Return the asymmetric square whose minimum over shifts is the ``tau``-expectile.

    .. math:: |\tau - 1(u < 0)| \, u^2

    Args:
        error: What is estimated minus its estimate.
        tau: In ``(0, 1)``; 0.5 gives half the square, and a larger one weighs underestimates more.

    Source: IQL (Kostrikov et al., 2021, arXiv 2110.06169), equation 5.
    """
    return (tau - (error < 0).to(error.dtype)).abs() * error.square()


def action_chunks(
    actions: Float[Tensor, "B T A"], mask: Bool[Tensor, "B T"], num_steps: int
) -> tuple[Float[Tensor, "B T K A"], Bool[Tensor, "B T K"]]:
    """Return the next K actions at every step, and which of them are real and within the window.

    Args:
        actions: One per step.
        mask: False on padding, which trails.
        num_steps: K, at least 1.
    """
    ahead = nn.functional.pad(actions, (0, 0, 0, num_steps - 1)).unfold(1, num_steps, 1).movedim(-1, -2)
    return ahead, nn.functional.pad(mask, (0, num_steps - 1)).unfold(1, num_steps, 1)


def held_actions(batch: SeqBatch, num_steps: int) -> tuple[Float[Tensor, "B S A"], Bool[Tensor, "B S"]]:
    """Return actions and mask, K - 1 steps longer, where the last action of an ended episode is repeated.

    Args:
        batch: Whose windows; what follows those whose last transition ends no episode is not known.
        num_steps: K, steps of a chunk.
    """
    last, has_ended = _episode_ends(batch)
    actions, mask = (
        nn.functional.pad(x, (*[0] * (2 * x.dim() - 4), 0, num_steps - 1)) for x in (batch.actions, batch.mask)
    )
    ended = has_ended & (torch.arange(mask.shape[1], device=mask.device) > last)
    final = actions.gather(1, last.unsqueeze(-1).expand(-1, 1, actions.shape[-1]))
    return torch.where(ended.unsqueeze(-1), final, actions), mask | ended


def _episode_ends(batch: SeqBatch) -> tuple[Int[Tensor, "B 1"], Bool[Tensor, "B 1"]]:
    """Return the last transition of each window, and whether its episode ends there.

    A window may be short for other reasons: one that begins before its episode does is too.
    """
    last = (batch.mask.sum(1, keepdim=True) - 1).clamp(min=0)
    return last, (batch.terminated | batch.truncated).gather(1, last)


def draw_positions(mask: Bool[Tensor, "B T"], num: int) -> Int[Tensor, "B S"]:
    """Return distinct positions of each row, drawn among those where ``mask`` is True; others only if they are few.

    Args:
        mask: What may be drawn.
        num: How many; at most T are returned.
    """
    keys = torch.rand(mask.shape, device=mask.device).masked_fill(~mask, -1.0)
    return keys.topk(min(num, mask.shape[1]), dim=1).indices


def take_positions(values: Tensor, index: Int[Tensor, "B S"]) -> Tensor:
    """Return ``(B, S, ...)``: the entries of ``values`` ``(B, T, ...)`` at some positions of each row."""
    wide = index.reshape(*index.shape, *[1] * (values.dim() - 2)).expand(-1, -1, *values.shape[2:])
    return values.gather(1, wide)


def inputs_ahead(batch: SeqBatch, steps: int | Int[Tensor, "B T"]) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Return which of the L inputs lies some steps after each of the first T, and whether that is known.

    Where the episode ends before, it is the input after its last action. Where only the window does, it is not known.

    Args:
        batch: Whose windows.
        steps: How far ahead, at least 1.
    """
    num, (_, has_ended) = batch.mask.sum(1, keepdim=True), _episode_ends(batch)
    ahead = torch.arange(batch.num_transitions, device=num.device) + steps
    is_known = batch.mask & (has_ended | (ahead <= num))
    return torch.minimum(ahead, num), is_known


def spread_positions(values: Tensor, index: Int[Tensor, "B S"], like: Tensor) -> Tensor:
    """Return ``(B, T, ...)`` as ``like``, with ``values`` ``(B, S, ...)`` at those positions and 0 elsewhere."""
    wide = index.reshape(*index.shape, *[1] * (values.dim() - 2)).expand_as(values)
    return torch.zeros_like(like, dtype=values.dtype).scatter(1, wide, values)


def n_step_targets(
    rewards: Float[Tensor, "B T"],
    terminated: Bool[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    values: Float[Tensor, "B T G"],
    discounts: Float[Tensor, " G"],
    n_step: int,
) -> Float[Tensor, "B T G"]:
    r"""Return bootstrapped targets over at most ``n_step`` real transitions.

    Sums discounted rewards until ``n_step`` transitions, a termination, padding, or the window's end, whichever comes
    first, then adds the discounted value of the input reached, unless the MDP has ended there:

    .. math:: y^{(k)}_t = r_t + \gamma (1 - d_t) \cdot
        \begin{cases} y^{(k-1)}_{t+1} & k > 1 \text{ and } m_{t+1} \\ V_{t+1} & \text{else} \end{cases}

    Args:
        rewards: In the units of ``values``.
        terminated: Where nothing follows.
        mask: False on padding; targets there are finite and meaningless.
        values: V of the inputs that follow the transitions, per discount.
        discounts: Per environment step.
        n_step: At least 1; capped at T.

    Raises:
        ValueError: If ``n_step`` is below 1, or there is not one value for each transition.

    Source: Sutton & Barto (2018), Reinforcement Learning, section 7.1.
    """
    if n_step < 1:
        raise ValueError(f"n_step must be at least 1, got {n_step}")
    if values.shape[:2] != rewards.shape:
        raise ValueError(
            f"values have shape {tuple(values.shape)} for {tuple(rewards.shape)} transitions: give those of the inputs "
            "that follow them"
        )
    going_BTG = (~terminated).unsqueeze(-1) * discounts
    target_BTG = rewards.unsqueeze(-1) + going_BTG * values
    next_is_real_B = mask[:, 1:].unsqueeze(-1)
    for _ in range(min(n_step, rewards.shape[1]) - 1):
        follow_BTG = values.clone()
        follow_BTG[:, :-1] = torch.where(next_is_real_B, target_BTG[:, 1:], values[:, :-1])
        target_BTG = rewards.unsqueeze(-1) + going_BTG * follow_BTG
    return target_BTG


def random_subset_reduction(
    values: Float[Tensor, "*lead C"], num_chosen: int, *, minimum: bool, generator: torch.Generator | None = None
) -> Float[Tensor, "*lead"]:
    """Reduce an ensemble over ``num_chosen`` *distinct* members, drawn independently for every position.

    Args:
        values: One value per member.
        num_chosen: In ``1 .. C``.
        minimum: Take their minimum, or else their mean.
        generator: Source of randomness.

    Raises:
        ValueError: If ``num_chosen`` is not in its range.

    Source: REDQ (Chen et al., 2021, arXiv 2101.05982), algorithm 1.
    """
    num = values.shape[-1]
    if not 1 <= num_chosen <= num:
        raise ValueError(f"num_chosen must be in 1 .. {num}, got {num_chosen}")
    if num_chosen < num:
        order = torch.rand(values.shape, device=values.device, generator=generator).argsort(dim=-1)
        values = values.gather(-1, order[..., :num_chosen])
    return values.amin(-1) if minimum else values.mean(-1)


@FILTERS.register("binary")
def binary_filter(advantage: Float[Tensor, "*lead"], *, threshold: float = 0.0) -> Float[Tensor, "*lead"]:
    """Return 1 where the advantage exceeds ``threshold`` (strictly), 0 elsewhere (CRR, arXiv 2006.15134, eq. 3)."""
    return (advantage > threshold).float()


@FILTERS.register("exponential")
def exponential_filter(
    advantage: Float[Tensor, "*lead"],
    *,
    beta: float = 1.0,
    clip_low: float | None = -10.0,
    clip_high: float | None = 10.0,
    max_weight: float | None = None,
) -> Float[Tensor, "*lead"]:
    """Return ``clip(exp(beta * clip(A)), 1e-7, max_weight)`` (AWAC, arXiv 2006.09359; CRR, eq. 4).

    Args:
        advantage: In units of raw critic outputs (original reward units at the defaults), which matters here.
        beta: Inverse temperature.
        clip_low: Smallest advantage before the exponential; None has no limit.
        clip_high: Largest; None has no limit but that of float32.
        max_weight: Largest weight, as IQL clips it (arXiv 2110.06169); None leaves it at that.
    """
    clipped = advantage if clip_low is clip_high is None else advantage.clamp(clip_low, clip_high)
    return (beta * clipped).clamp(max=MAX_EXPONENT).exp().clamp(1e-7, max_weight)


@FILTERS.register("ramp")
def ramp_filter(
    advantage: Float[Tensor, "*lead"],
    *,
    beta: float = 2.0,
    tau: float = 0.01,
    slope: float = 0.05,
    floor: float = 0.01,
    add_binary: bool = True,
) -> Float[Tensor, "*lead"]:
    """Return ``clip(floor + slope tau / beta + leaky_relu((A - tau) / beta, slope), 1e-7, 10)`` plus the binary filter.

    Args:
        advantage: In units of raw critic outputs.
        beta: Width of the ramp.
        tau: Where it begins.
        slope: Of the leaky part below it.
        floor: Weight of a transition without advantage.
        add_binary: Add 1 where the advantage is positive, after the clip.
    """
    ramp = floor + slope * tau / beta + leaky_relu((advantage - tau) / beta, slope)
    weight = ramp.clamp(1e-7, 10.0)
    return weight + binary_filter(advantage) if add_binary else weight


@FILTERS.register("none")
def no_filter(advantage: Float[Tensor, "*lead"]) -> Float[Tensor, "*lead"]:
    """Return 1 everywhere: plain behaviour cloning."""
    return torch.ones_like(advantage)
