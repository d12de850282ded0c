"""Values in units of their own: normalised by the moments of their targets (after PopArt, arXiv 1809.04474)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

FORMER_SCALE = 10.0
MIN_SCALE, MIN_SHARE = 1e-2, 1e-12
MIN_STD_SHARE = 0.1
MIN_VARIANCE, MAX_VARIANCE = 1e-4, 1e8


class PopArt(nn.Module):
    """Units for the values of each discount, from the rewards, and moving moments of their targets, for losses.

    A value is the critic's raw output times :attr:`scale`, which is what a discounted sum of independent rewards of the
    present size would vary by, and at least the size of one reward. So an optimiser's step moves values by about the
    same share of their range whatever the rewards are. The scale follows rewards alone: one that followed bootstrapped
    targets would move the value of states that nothing is learned about, such as the last one before a time limit, and
    through it all the others. (PopArt rescales the last layer whenever its statistics move. Critics that share this
    layer among discounts could not do so; nor would Adam's steps, once made for other units, fit.)

    Losses compare values less :attr:`mean`, over :attr:`std`. All moments move by ``beta / (1 - (1 - beta)^n)``, after
    the gradient step: its losses use those from before it, as a step's targets are only all known when its
    micro-batches on all ranks are done. (The paper's statistics hold the present targets too.)

    Args:
        discounts: ``(G,)``.
        beta: Asymptotic step size.
    """

    mean: Tensor
    variance: Tensor
    num_updates: Tensor
    reward_square: Tensor
    reward_share: Tensor
    num_rewards: Tensor
    discounts: Tensor

    def __init__(self, discounts: Float[Tensor, " G"], beta: float = 5e-4) -> None:
        super().__init__()
        self.beta = beta
        self.register_buffer("discounts", discounts.detach().clone(), persistent=False)
        self.register_buffer("mean", torch.zeros(len(discounts)))
        self.register_buffer("variance", torch.ones(len(discounts)))
        self.register_buffer("num_updates", torch.zeros(()))
        self.register_buffer("reward_square", torch.zeros(()))
        self.register_buffer("reward_share", torch.zeros(()))
        self.register_buffer("num_rewards", torch.zeros(()))

    def former_state(self) -> dict[str, Tensor]:
        """Return the buffers that weights from before there were units lack; by them, values stay as they were."""
        return {
            "reward_square": torch.zeros(()),
            "reward_share": torch.zeros(()),
            "num_rewards": torch.full((), -1.0),
        }

    @property
    def scale(self) -> Float[Tensor, " G"]:
        """What raw outputs are multiplied by; 1 until the first reward that is not 0."""
        independent = 1.0 / (1.0 - self.discounts.square())
        single = 1.0 / self.reward_share.clamp(min=MIN_SHARE)
        size = (self.reward_square * torch.maximum(independent, single)).sqrt().clamp(min=MIN_SCALE)
        size = torch.where(self.reward_share > 0, size, torch.ones_like(size))
        return torch.where(self.num_rewards < 0, torch.full_like(size, FORMER_SCALE), size)

    @property
    def std(self) -> Float[Tensor, " G"]:
        """Standard deviation of the targets, and at least a tenth of the scale."""
        least = torch.where(self.num_rewards < 0, torch.zeros_like(self.mean), MIN_STD_SHARE * self.scale)
        return torch.maximum(self.variance.sqrt(), least)

    def normalize(self, values: Float[Tensor, "*lead G C"]) -> Float[Tensor, "*lead G C"]:
        """Return values (not raw outputs) in units of the targets' standard deviation."""
        return (values - self.mean[:, None]) / self.std[:, None]

    @torch.no_grad()
    def stats(
        self, targets: Float[Tensor, "B T G"], rewards: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "5 G"]:
        """Return sums over the real transitions, for :meth:`update`.

        They are the targets' deviations from the mean, the squares of these, the count, the rewards' squares, and how
        many rewards are not 0.

        Args:
            targets: Of the critics.
            rewards: In the units of the targets.
            mask: True where a transition is real.
        """
        deviation = (targets - self.mean).masked_fill(~mask.unsqueeze(-1), 0.0)
        real = rewards.masked_fill(~mask, 0.0)
        sums = torch.stack([mask.sum().float(), real.square().sum(), (real != 0).sum().float()])
        rest = sums.unsqueeze(-1).expand(-1, len(self.mean))
        return torch.cat([torch.stack([deviation.sum((0, 1)), deviation.square().sum((0, 1))]), rest])

    @torch.no_grad()
    def update(self, stats: Float[Tensor, "5 G"]) -> None:
        """Move the moments by sums from :meth:`stats`; non-finite sums are ignored, without a host sync."""
        count = stats[2].clamp(min=1.0)
        good = torch.isfinite(stats).all() & (stats[2, 0] > 0)
        num_updates = self.num_updates + 1
        step = self._step(num_updates)
        delta = step * stats[0] / count
        variance = (1 - step) * self.variance + step * stats[1] / count - delta.square()
        self._move("mean", self.mean + delta, good)
        self._move("variance", variance.clamp(MIN_VARIANCE, MAX_VARIANCE), good)
        self._move("num_updates", num_updates, good)
        is_new = good & (self.num_rewards >= 0)
        num_rewards = self.num_rewards + 1
        step = self._step(num_rewards.clamp(min=1.0))
        square, share = stats[3, 0] / count[0], stats[4, 0] / count[0]
        self._move("reward_square", self.reward_square + step * (square - self.reward_square), is_new)
        self._move("reward_share", self.reward_share + step * (share - self.reward_share), is_new)
        self._move("num_rewards", num_rewards, is_new)

    def _step(self, num: Tensor) -> Tensor:
        return self.beta / (1 - (1 - self.beta) ** num)

    def _move(self, name: str, value: Tensor, good: Tensor) -> None:
        buffer = getattr(self, name)
        buffer.copy_(torch.where(good, value, buffer))
