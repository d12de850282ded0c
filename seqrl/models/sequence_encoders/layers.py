"""What memories of residual layers have in common: the stack with its state, and a short convolution."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import silu

from seqrl.models.mlp import make_norm
from seqrl.models.sequence_encoders.base import SequenceEncoder, State


def wide(x: Tensor) -> Tensor:
    """Return a tensor in float32, or in float64 if it is: what a recurrence multiplies many times needs it."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that :func:`wide` would give."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def no_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Return a context in which products of wide tensors stay wide, also under mixed precision."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


class Mixer(nn.Module, ABC):
    """The memory in a residual layer, ``(B, L, d_model)`` to the same."""

    @abstractmethod
    def forward(self, x: Float[Tensor, "B L D"], state: State | None) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return outputs, and the next state if one was given; without one the memory is empty at first."""

    @abstractmethod
    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> State:
        """Return the state of an empty memory."""


class Layer(nn.Module, ABC):
    """One layer of a :class:`Stack`, its residual connection included."""

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None
    ) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return outputs, and the next state if one was given."""

    @abstractmethod
    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> State:
        """Return the state of an empty memory."""


class Residual(Layer):
    """``x + drop(mixer(norm(x)))``."""

    def __init__(self, mixer: Mixer, d_model: int, *, norm: str, dropout: float) -> None:
        super().__init__()
        self.mixer, self.norm, self.dropout = mixer, make_norm(norm, d_model), nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None
    ) -> tuple[Float[Tensor, "B L D"], State | None]:
        """Return outputs, and the next state if one was given."""
        y, state = self.mixer(self.norm(x), state)
        return x + self.dropout(y), state

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> State:
        """Return the mixer's."""
        assert isinstance(self.mixer, Mixer)
        return self.mixer.init_state(num_rows, device=device, dtype=dtype)


class Stack(SequenceEncoder):
    """A linear layer, layers one after the other, a norm. A layer's part of the state ends in its number."""

    def __init__(self, d_input: int, window_steps: int, d_model: int, layers: Iterable[Layer], norm: str) -> None:
        super().__init__(d_input, window_steps)
        self.d_output = d_model
        self.input = nn.Linear(d_input, d_model)
        self.layers = nn.ModuleList(layers)
        self.norm = make_norm(norm, d_model)

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return the encodings, and the next state if one was given."""
        x = self.input(x)
        after: State = {}
        for i, layer in enumerate(self.layers):
            x, own = layer(x, step, None if state is None else _own(state, i))
            after |= {f"{name}_{i}": tensor for name, tensor in (own or {}).items()}
        return self.norm(x), None if state is None else after

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return the empty state of every layer."""
        state: State = {}
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            own = layer.init_state(num_rows, device=device, dtype=dtype)
            state |= {f"{name}_{i}": tensor for name, tensor in own.items()}
        return state


def _own(state: State, number: int) -> State:
    """Return the part of the layer with that number."""
    end = f"_{number}"
    return {name.removesuffix(end): tensor for name, tensor in state.items() if name.endswith(end)}


class ShortConvolution(nn.Module):
    """A causal convolution of each feature over a few steps, then SiLU: a sum of shifted products, fast on a CPU."""

    def __init__(self, width: int, d_conv: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_conv, width).uniform_(-1, 1) / math.sqrt(d_conv))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-1, 1) / math.sqrt(d_conv))
        self.weight.no_weight_decay = True  # type: ignore[attr-defined]

    def forward(
        self, x: Float[Tensor, "B L D"], past: Float[Tensor, "B C D"] | None
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B C D"]]:
        """Return outputs, and the inputs that the next ones need; without a past it is zero."""
        length, num_before = x.shape[1], len(self.weight) - 1
        past = x.new_zeros(len(x), num_before, x.shape[2]) if past is None else past.to(x.dtype)
        seen = torch.cat([past, x], dim=1)
        y: Tensor = self.bias
        for i, weight in enumerate(self.weight):
            y = torch.addcmul(y, seen[:, i : i + length], weight)
        return silu(y), seen[:, length:]

    def init_past(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype) -> Tensor:
        """Return zeros."""
        num_before, width = len(self.weight) - 1, self.weight.shape[1]
        return torch.zeros(num_rows, num_before, width, device=device, dtype=dtype)
