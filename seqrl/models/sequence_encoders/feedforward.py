"""No memory: each step alone."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.mlp import make_activation, make_norm
from seqrl.models.sequence_encoders.base import SequenceEncoder, State


class _Block(nn.Module):
    """``x + drop(act(W2 drop(act(W1 x))))``."""

    def __init__(self, d_model: int, d_ff: int, activation: str, dropout: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Linear(d_model, d_ff),
            make_activation(activation),
            nn.Dropout(dropout),
            nn.Linear(d_ff, d_model),
            make_activation(activation),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.inner(x)
        return out


@SEQUENCE_ENCODERS.register("feedforward")
class FeedForward(SequenceEncoder):
    """Residual blocks on each input alone: the control that shows what memory is worth."""

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_model: int = 256,
        d_ff: int = 1024,
        num_layers: int = 1,
        dropout: float = 0.0,
        activation: str = "leaky_relu",
        norm: str = "layer",
    ) -> None:
        super().__init__(d_input, window_steps)
        self.d_output = d_model
        self.layers = nn.Sequential(
            nn.Linear(d_input, d_model),
            make_activation(activation),
            nn.Dropout(dropout),
            *[_Block(d_model, d_ff, activation, dropout) for _ in range(num_layers)],
            nn.Linear(d_model, d_model),
            make_norm(norm, d_model),
            nn.Dropout(dropout),
        )

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return each input's encoding."""
        return self.layers(x), state

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return an empty state."""
        return {}


@SEQUENCE_ENCODERS.register("identity")
class Identity(SequenceEncoder):
    """Hands each input on as it is: the timestep encoder alone."""

    def __init__(self, d_input: int, window_steps: int) -> None:
        super().__init__(d_input, window_steps)
        self.d_output = d_input

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return the inputs."""
        return x, state

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return an empty state."""
        return {}
