"""What becomes of one observation entry before all are fused: vectors, scans, tokens, goals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from seqrl.core.errors import ConfigError
from seqrl.core.obs_entry import Values
from seqrl.core.registry import MODALITIES
from seqrl.core.spaces import ObsSpec
from seqrl.models.mlp import make_activation, make_mlp
from seqrl.models.normalizers import InputNormalizer
from seqrl.models.timestep_encoders.base import SECTION_KEY, described, flat_entry, flat_width
from seqrl.models.two_hot import symlog


class Modality(nn.Module, ABC):
    """Base of what reads one observation entry. Register a subclass with ``MODALITIES.register(name)``.

    The forward pass writes no buffer; statistics are collected by :meth:`stats` and move in :meth:`update`.

    Args:
        name: Of the entry.
        spec: Of the entry.

    Attributes:
        d_output: Width of the output.
        key: Where a run file sets the options, for messages.
        film: Entry on whose embedding this one depends; None depends on its own alone. It is given as a second
            argument, and its width to ``condition_on``.
        allowed_values: Which numbers the entry may hold: ``finite``, ``unit`` (an image, in [0, 1]), or ``any``, if NaN
            and inf have a meaning. A policy refuses others when it acts.
    """

    d_output: int
    film: str | None = None
    allowed_values: Values = "finite"

    def __init__(self, name: str, spec: ObsSpec) -> None:
        super().__init__()
        self.name = name
        self.spec = spec
        self.key = f"{SECTION_KEY}.modalities.{name}"

    @abstractmethod
    def forward(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"]:
        """Return one vector of width ``d_output`` per input, each made from that input alone."""

    def stats(self, x: Shaped[Tensor, "B L *shape"], mask: Bool[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return sums over the real inputs that :meth:`update` needs; none by default."""
        return {}

    def update(self, stats: Mapping[str, Tensor]) -> None:
        """Move statistics after a gradient step."""

    def rarity(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"] | None:
        """Return how unusual each number is, 1 on average; None, the default, where that is not known."""
        return None

    def problem(self, option: str, text: str) -> ConfigError:
        """Return the error that ``option`` does not fit the entry, whose dtype and shape it names."""
        return ConfigError(f"{self.key}.{option}: {described({self.name: self.spec})} {text}")


@MODALITIES.register("vector")
class VectorModality(Modality):
    """Flattened (categories as one-hot), standardised by moving statistics, then an MLP.

    Args:
        name: Of the entry.
        spec: Of the entry; any.
        normalize_inputs: Standardise.
        normalizer_rate: Asymptotic step size of the statistics.
        normalizer_min_std: What inputs are divided by that vary less.
        num_layers: Hidden layers.
        d_hidden: Their width.
        d_output: Width of the output.
        activation: After each hidden layer.
    """

    def __init__(
        self,
        name: str,
        spec: ObsSpec,
        *,
        normalize_inputs: bool = True,
        normalizer_rate: float = 1e-4,
        normalizer_min_std: float = 0.0,
        num_layers: int = 0,
        d_hidden: int = 256,
        d_output: int = 64,
        activation: str = "leaky_relu",
    ) -> None:
        super().__init__(name, spec)
        width = flat_width(spec)
        self.d_output = d_output
        self.normalizer = InputNormalizer(width, normalizer_rate, normalizer_min_std) if normalize_inputs else None
        self.mlp = make_mlp(width, d_hidden, num_layers, d_output, activation)

    def forward(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        flat = flat_entry(x, self.spec)
        y: Tensor = self.mlp(flat if self.normalizer is None else self.normalizer(flat))
        return y

    def rarity(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"] | None:
        """Return how unusual each number is; None if they are not standardised."""
        return None if self.normalizer is None else self.normalizer.rarity(flat_entry(x, self.spec))

    def stats(self, x: Shaped[Tensor, "B L *shape"], mask: Bool[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return the sums for input normalisation."""
        return {} if self.normalizer is None else {"inputs": self.normalizer.stats(flat_entry(x, self.spec), mask)}

    def update(self, stats: Mapping[str, Tensor]) -> None:
        """Move the input normalisation."""
        if self.normalizer is not None:
            self.normalizer.update(stats["inputs"])


@MODALITIES.register("scan")
class ScanModality(Modality):
    """Ranges along an arc, such as a lidar's: 1-D convolutions, then a linear layer.

    Args:
        name: Of the entry.
        spec: ``(N,)`` or ``(C, N)`` numbers.
        channels: Width of each convolution.
        kernels: Their lengths.
        strides: Their strides.
        max_range: Range, in the entry's units, at which numbers are clipped before [0, max_range] is scaled to
            [-1, 1]; what is not finite counts as ``max_range``. None reads any numbers through symlog.
        pooling: ``none`` keeps what was seen in which direction; ``mean`` and ``max`` do not.
        d_output: Width of the output.
        activation: After each convolution.

    Raises:
        ConfigError: If the entry is no scan, or too short.
    """

    def __init__(
        self,
        name: str,
        spec: ObsSpec,
        *,
        channels: Sequence[int] = (32, 64, 64),
        kernels: Sequence[int] = (5, 3, 3),
        strides: Sequence[int] = (2, 2, 1),
        max_range: float | None = None,
        pooling: Literal["none", "mean", "max"] = "none",
        d_output: int = 128,
        activation: str = "leaky_relu",
    ) -> None:
        super().__init__(name, spec)
        if spec.nvec is not None or len(spec.shape) not in (1, 2):
            raise self.problem("type", "is not a scan, which has the shape (N,) or (C, N); use 'vector' or 'image'")
        self.max_range, self.pooling, self.d_output = max_range, pooling, d_output
        self.allowed_values = "finite" if max_range is None else "any"
        width, length = (1, *spec.shape)[-2:]
        if length < (shortest := _shortest(kernels, strides)):
            raise self.problem(
                "kernels",
                f"has {length} ranges, but kernels {list(kernels)} with strides {list(strides)} need at least "
                f"{shortest}; take fewer or smaller ones, or use type 'vector'",
            )
        layers: list[nn.Module] = []
        for d_out, kernel, stride in zip(channels, kernels, strides, strict=True):
            layers += [nn.Conv1d(width, d_out, kernel, stride), make_activation(activation)]
            width, length = d_out, (length - kernel) // stride + 1
        self.conv = nn.Sequential(*layers)
        self.linear = nn.Linear(width * (length if pooling == "none" else 1), d_output)

    def forward(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        ranges = self._numbers(x).flatten(0, 1)
        seen: Tensor = self.conv(ranges if ranges.dim() == 3 else ranges.unsqueeze(1))
        pooled = (
            seen.flatten(1) if self.pooling == "none" else seen.mean(-1) if self.pooling == "mean" else seen.amax(-1)
        )
        y: Tensor = self.linear(pooled).unflatten(0, x.shape[:2])
        return y

    def _numbers(self, x: Tensor) -> Tensor:
        if self.max_range is None:
            return symlog(x.float())
        return to_unit(x, self.max_range) * 2.0 - 1.0


def _shortest(kernels: Sequence[int], strides: Sequence[int]) -> int:
    """Return the length of which the convolutions leave one number."""
    length = 1
    for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
        length = (length - 1) * stride + kernel
    return length


def to_unit(x: Tensor, largest: float) -> Tensor:
    """Return distances as float32 in [0, 1]: clipped to [0, largest], and 1 where they are not finite."""
    return x.float().nan_to_num(largest, largest, largest).clamp(0.0, largest) / largest


@MODALITIES.register("tokens")
class TokensModality(Modality):
    """Integers in a row, such as words: embedded, read by a GRU, whose last state becomes the output.

    Args:
        name: Of the entry.
        spec: MultiDiscrete or Discrete, or integers of any shape, read in their order.
        vocabulary: Tokens are 0 to vocabulary - 1, and all others are read as one "unknown". None takes the largest
            number of categories of a MultiDiscrete entry; others have to say.
        pad_token: Left out wherever it stands; None leaves nothing out.
        d_embedding: Width of the embeddings.
        d_hidden: Width of the GRU.
        d_output: Width of the output.

    Raises:
        ConfigError: If the entry holds no integers, or the vocabulary is unknown or too small.
    """

    def __init__(
        self,
        name: str,
        spec: ObsSpec,
        *,
        vocabulary: int | None = None,
        pad_token: int | None = None,
        d_embedding: int = 32,
        d_hidden: int = 64,
        d_output: int = 64,
    ) -> None:
        super().__init__(name, spec)
        if spec.nvec is None and "int" not in spec.dtype:
            raise self.problem("type", "holds no integers, so it has no tokens; use 'vector'")
        largest = max(spec.nvec) if spec.nvec is not None else None
        vocabulary = largest if vocabulary is None else vocabulary
        if vocabulary is None:
            raise self.problem("vocabulary", "does not say how many tokens there are; set it to the largest one + 1")
        if largest is not None and vocabulary < largest:
            raise self.problem("vocabulary", f"has {largest} categories, but vocabulary is {vocabulary}")
        self.vocabulary, self.pad_token, self.d_output = vocabulary, pad_token, d_output
        self.embedding = nn.Embedding(vocabulary + 1, d_embedding)
        self.gru = nn.GRU(d_embedding, d_hidden, batch_first=True)
        self.linear = nn.Linear(d_hidden, d_output)

    def forward(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        tokens = x.reshape(x.shape[0] * x.shape[1], -1).long()
        is_real = torch.ones_like(tokens, dtype=torch.bool) if self.pad_token is None else tokens != self.pad_token
        known = torch.where((tokens < 0) | (tokens >= self.vocabulary), self.vocabulary, tokens)
        count = is_real.sum(dim=1)
        behind = count.unsqueeze(1) + (~is_real).cumsum(dim=1)
        place = torch.where(is_real, is_real.cumsum(dim=1), behind) - 1  # padding comes last, in any order of tokens
        states, _ = self.gru(self.embedding(torch.zeros_like(known).scatter(1, place, known)))
        last = (count - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
        final = states.gather(1, last).squeeze(1) * (count > 0).unsqueeze(1)
        y: Tensor = self.linear(final).unflatten(0, x.shape[:2])
        return y


@MODALITIES.register("goal")
class GoalModality(Modality):
    """Goals to be reached in order: each standardised and embedded by the same MLP, then joined by a linear layer.

    Args:
        name: Of the entry.
        spec: ``(k, d)`` numbers, or k d of them in a row.
        num_goals: k; None takes the first axis of a ``(k, d)`` entry, and one goal from a flat one.
        num_layers: Hidden layers of the MLP.
        d_hidden: Their width.
        d_goal: Width of one embedded goal.
        d_output: Width of the output.
        normalize_inputs: Standardise by moving statistics that all goals share.
        activation: After each hidden layer.

    Raises:
        ConfigError: If the entry is not made of ``num_goals`` goals of numbers.
    """

    def __init__(
        self,
        name: str,
        spec: ObsSpec,
        *,
        num_goals: int | None = None,
        num_layers: int = 1,
        d_hidden: int = 128,
        d_goal: int = 32,
        d_output: int = 64,
        normalize_inputs: bool = True,
        activation: str = "leaky_relu",
    ) -> None:
        super().__init__(name, spec)
        if spec.nvec is not None:
            raise self.problem("type", "holds categories, not goals of numbers; use 'vector' or 'tokens'")
        count = num_goals or (spec.shape[0] if len(spec.shape) > 1 else 1)
        width = math.prod(spec.shape)
        if width == 0 or width % count:
            raise self.problem("num_goals", f"holds {width} numbers, which are not {count} goals of one width")
        self.num_goals, self.d_each, self.d_output = count, width // count, d_output
        self.normalizer = InputNormalizer(self.d_each) if normalize_inputs else None
        self.mlp = make_mlp(self.d_each, d_hidden, num_layers, d_goal, activation)
        self.linear = nn.Linear(count * d_goal, d_output)
        self.activation = make_activation(activation)

    def forward(self, x: Shaped[Tensor, "B L *shape"]) -> Float[Tensor, "B L D"]:
        """Return the embeddings."""
        goals = x.reshape(*x.shape[:2], self.num_goals, self.d_each).float()
        embedded = self.mlp(goals if self.normalizer is None else self.normalizer(goals))
        y: Tensor = self.linear(self.activation(embedded).flatten(2))
        return y

    def stats(self, x: Shaped[Tensor, "B L *shape"], mask: Bool[Tensor, "B L"]) -> dict[str, Tensor]:
        """Return the sums for input normalisation, over all goals."""
        if self.normalizer is None:
            return {}
        goals = x.reshape(len(x), -1, self.d_each).float()
        return {"inputs": self.normalizer.stats(goals, mask.repeat_interleave(self.num_goals, dim=1))}

    def update(self, stats: Mapping[str, Tensor]) -> None:
        """Move the input normalisation."""
        if self.normalizer is not None:
            self.normalizer.update(stats["inputs"])
