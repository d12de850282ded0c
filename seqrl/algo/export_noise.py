"""Random draws of a policy as inputs of its graph: who runs it gives the noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seqrl.core.errors import ConfigError

NORMAL, UNIFORM = "normal", "uniform"
_LIKE = {torch.randn_like: NORMAL, torch.rand_like: UNIFORM}
_SIZED = {torch.randn: NORMAL, torch.rand: UNIFORM}
_IN_PLACE = {
    torch.Tensor.exponential_: UNIFORM,
    torch.Tensor.normal_: NORMAL,
    torch.Tensor.uniform_: UNIFORM,
}
_REFUSED = (
    torch.multinomial, torch.bernoulli, torch._standard_gamma, torch._sample_dirichlet, torch.normal, torch.poisson,
    torch.binomial, torch.randint, torch.randint_like, torch.randperm, torch.Tensor.bernoulli_, torch.Tensor.random_,
    torch.Tensor.geometric_, torch.Tensor.cauchy_, torch.Tensor.log_normal_, torch.Tensor.multinomial,
    torch.Tensor.bernoulli,
)  # fmt: skip
_SMALLEST = 2.0**-24


@dataclass(frozen=True)
class Draw:
    """One draw of a step.

    Attributes:
        kind: ``normal`` (mean 0, deviation 1) or ``uniform`` (0 to 1).
        sizes: Its shape; the size of :attr:`rows_dim` is ignored.
        rows_dim: The dimension of rows.
    """

    kind: str
    sizes: tuple[int, ...]
    rows_dim: int

    @property
    def width(self) -> int:
        """Numbers that one row takes."""
        return math.prod(self.sizes[: self.rows_dim] + self.sizes[self.rows_dim + 1 :])


@dataclass
class _Recorded(TorchFunctionMode):
    """Notes the kinds and shapes of what is drawn."""

    draws: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        if (kind := _kind(func, kwargs)) is not None:
            self.draws.append((kind, tuple(found.shape)))
        return found


class GivenNoise(TorchFunctionMode):
    """Takes what is drawn from given noise instead.

    Args:
        draws: What will be drawn, in this order.
        noise: Kind -> ``(B, N)``, N the sum of the widths of that kind's draws.
    """

    def __init__(self, draws: list[Draw], noise: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._draws = iter(draws)
        self._noise, self._taken = noise, dict.fromkeys(noise, 0)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace draws, and leave all other functions alone."""
        kwargs = kwargs or {}
        if _kind(func, kwargs) is None:
            return func(*args, **kwargs)
        draw = next(self._draws)
        begin = self._taken[draw.kind]
        self._taken[draw.kind] = begin + draw.width
        others = draw.sizes[: draw.rows_dim] + draw.sizes[draw.rows_dim + 1 :]
        given = self._noise[draw.kind][:, begin : begin + draw.width].unflatten(1, others or (1,))
        given = given if others else given.squeeze(1)
        given = given.movedim(0, draw.rows_dim)
        return given if func not in _IN_PLACE else args[0].copy_(_distributed(func, given, *args[1:], **kwargs))


def _distributed(func: Any, given: Tensor, *args: float, generator: None = None, **kwargs: float) -> Tensor:
    """Return standard noise as a function that draws in place would, from its arguments."""
    if func is torch.Tensor.exponential_:
        (rate,) = args or (kwargs.get("lambd", 1.0),)
        return -given.clamp(_SMALLEST, 1.0 - _SMALLEST).log() / rate
    first, second = ("mean", "std") if func is torch.Tensor.normal_ else ("from", "to")
    start = args[0] if args else kwargs.get(first, 0.0)
    other = args[1] if len(args) > 1 else kwargs.get(second, 1.0)
    return start + given * (other if func is torch.Tensor.normal_ else other - start)


def draws_of(step: Callable[[int], Any]) -> list[Draw]:
    """Return what a step draws, found by taking it with two and with three rows.

    Args:
        step: Takes a step of so many rows.

    Raises:
        ConfigError: If something is drawn that cannot be an input: rows are no dimension of it, or its distribution is
            no function of normal or uniform noise.
    """
    shapes = []
    for num_rows in (2, 3):
        with _Recorded() as recorded:
            step(num_rows)
        shapes.append(recorded.draws)
    draws = []
    for (kind, two), (_, three) in zip(*shapes, strict=True):
        differ = [i for i, (a, b) in enumerate(zip(two, three, strict=True)) if a != b]
        if len(differ) != 1 or two[differ[0]] != 2:
            raise ConfigError(f"it draws a tensor of shape {two} for two rows, which has no dimension for rows")
        draws.append(Draw(kind, two, differ[0]))
    return draws


def _kind(func: Any, kwargs: Mapping[str, Any]) -> str | None:
    """Return what a function draws; None if it draws nothing, or from a generator of its own."""
    if func in _REFUSED:
        raise ConfigError("its distribution cannot be sampled from normal or uniform noise; export it greedy")
    if kwargs.get("generator") is not None:
        return None
    return _LIKE.get(func) or _SIZED.get(func) or _IN_PLACE.get(func)
