"""No memory: each step alone, or a few of the last ones side by side."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
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
    """Residual blocks on each input alone: the control that shows what memory is worth.

    With ``num_frames`` above 1 each input is read beside those before it; where there are none, the first is repeated.
    """

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_model: int = 256,
        d_ff: int = 1024,
        num_layers: int = 1,
        num_frames: int = 1,
        dropout: float = 0.0,
        activation: str = "leaky_relu",
        norm: str = "layer",
    ) -> None:
        super().__init__(d_input, window_steps)
        self.d_output = d_model
        self.num_frames = num_frames
        self.layers = nn.Sequential(
            nn.Linear(num_frames * d_input, d_model),
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
        """Return each input's encoding, and the frames to read the next one with."""
        if self.num_frames == 1:
            return self.layers(x), state
        past = self.num_frames - 1
        before = x[:, :1].expand(-1, past, -1)
        if state is not None:
            before = torch.where(state["is_new"][:, None, None], before, state["frames"].to(x.dtype))
            state = {"frames": torch.cat([before, x], dim=1)[:, -past:], "is_new": torch.zeros_like(state["is_new"])}
        rows = torch.cat([before, x], dim=1)
        stacked = torch.cat([rows[:, i : i + x.shape[1]] for i in range(self.num_frames)], dim=-1)
        return self.layers(stacked), state

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return a state without frames."""
        if self.num_frames == 1:
            return {}
        frames = torch.zeros(num_rows, self.num_frames - 1, self.d_input, device=device, dtype=dtype)
        return {"frames": frames, "is_new": torch.ones(num_rows, dtype=torch.bool, device=device)}

    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Forget the frames of the rows that are True."""
        if "is_new" in state:
            state["is_new"] |= rows
            state["frames"].masked_fill_(rows[:, None, None], 0)
        return state


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
