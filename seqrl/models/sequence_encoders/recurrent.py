"""Recurrent networks: GRU and LSTM."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.mlp import make_norm
from seqrl.models.sequence_encoders.base import SequenceEncoder, State
from seqrl.models.sequence_encoders.gru_pass import gru_pass
from seqrl.models.sequence_encoders.time_scales import log_time_scales

LONG_STEPS, FEW_ROWS = 64, 16
"""From how many steps on, and up to how many rows, a pass of one's own is faster than PyTorch's GRU on a CPU."""


class _Recurrent(SequenceEncoder):
    """Recurrent layers, a linear projection (none if ``d_output`` is None) and a norm; unbounded in time."""

    is_recurrent = True
    network: ClassVar[type[nn.GRU] | type[nn.LSTM]]
    parts: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_hidden: int = 256,
        num_layers: int = 2,
        d_output: int | None = 256,
        dropout: float = 0.0,
        norm: str = "layer",
        start: Literal["zero", "learned"] = "zero",
    ) -> None:
        super().__init__(d_input, window_steps)
        self.d_output = d_hidden if d_output is None else d_output
        self.rnn = self.network(
            d_input, d_hidden, num_layers, batch_first=True, dropout=dropout if num_layers > 1 else 0.0
        )
        self.projection = nn.Identity() if d_output is None else nn.Linear(d_hidden, d_output)
        self.norm = make_norm(norm, self.d_output)
        self.start: nn.ParameterDict | None = None
        if start == "learned":
            self.start = nn.ParameterDict({p: torch.zeros(num_layers, d_hidden) for p in self.parts})
            for parameter in self.start.values():
                parameter.no_weight_decay = True
        self._init_memory()

    def _init_memory(self) -> None:
        """Set the recurrent weights and the time scales that the memory begins with."""
        raise NotImplementedError

    def _time_scales(self) -> Tensor:
        return log_time_scales(self.rnn.hidden_size, self.window_steps)

    def _set_bias(self, layer: int, gate: int, value: Tensor | float) -> None:
        width = self.rnn.hidden_size
        at = slice(gate * width, (gate + 1) * width)
        getattr(self.rnn, f"bias_ih_l{layer}")[at] = value
        getattr(self.rnn, f"bias_hh_l{layer}")[at] = 0.0

    @torch.no_grad()
    def _init_orthogonal(self, layer: int) -> None:
        for block in getattr(self.rnn, f"weight_hh_l{layer}").split(self.rnn.hidden_size):
            nn.init.orthogonal_(block)

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return the encodings, and the last state if one was given."""
        hidden: tuple[Tensor, ...] | None = None
        if state is not None:
            hidden = tuple(state[p].transpose(0, 1).contiguous() for p in self.parts)
        elif self.start is not None:
            hidden = tuple(self.start[p].unsqueeze(1).expand(-1, len(x), -1).contiguous() for p in self.parts)
        y, last = self._run(x, hidden)
        encoded = self.norm(self.projection(y))
        if state is None:
            return encoded, None
        last = (last,) if len(self.parts) == 1 else last
        return encoded, {p: h.transpose(0, 1) for p, h in zip(self.parts, last, strict=True)}

    def _run(self, x: Tensor, hidden: tuple[Tensor, ...] | None) -> tuple[Tensor, Any]:
        """Call the layers; under autocast on a CPU in full precision, as not every CPU knows another for LSTMs."""
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return self._run(x.float(), None if hidden is None else tuple(h.float() for h in hidden))
        return self._layers(x, hidden)

    def _layers(self, x: Tensor, hidden: tuple[Tensor, ...] | None) -> tuple[Tensor, Any]:
        found: tuple[Tensor, Any] = self.rnn(x, hidden[0] if hidden is not None and len(hidden) == 1 else hidden)
        return found

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return the start of every row: ``(rows, layers, d_hidden)``."""
        shape = (num_rows, self.rnn.num_layers, self.rnn.hidden_size)
        state = {p: torch.zeros(shape, device=device, dtype=dtype) for p in self.parts}
        return self.reset_rows(state, torch.ones(num_rows, dtype=torch.bool, device=device))

    @torch.no_grad()
    def reset_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Set the rows that are True to the start, in place."""
        for part, tensor in self.with_empty_rows(state, rows).items():
            state[part].copy_(tensor)
        return state

    def with_empty_rows(self, state: State, rows: Bool[Tensor, " B"]) -> State:
        """Return a state with the start in the rows that are True."""
        if self.start is None:
            return super().with_empty_rows(state, rows)
        return {k: torch.where(rows.view(-1, 1, 1), self.start[k].to(v.dtype), v) for k, v in state.items()}


@SEQUENCE_ENCODERS.register("gru")
class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al., 2014), a linear projection and a norm. The memory is unbounded in time."""

    network = nn.GRU
    parts = ("hidden",)

    @torch.no_grad()
    def _init_memory(self) -> None:
        """Spread the units' time scales from one step to the window (after Tallec & Ollivier, 2018, arXiv 1804.11188).

        A unit keeps a share ``z`` of its value per step, so it forgets in about ``1 / (1 - z)`` steps; the bias of
        ``z`` is set to the logit of that. Recurrent matrices begin orthogonal.
        """
        for layer in range(self.rnn.num_layers):
            self._set_bias(layer, 1, self._time_scales())
            self._init_orthogonal(layer)

    def _layers(self, x: Tensor, hidden: tuple[Tensor, ...] | None) -> tuple[Tensor, Any]:
        """Train on long sequences of few rows by :func:`gru_pass`; on a GPU cuDNN is fused, and rows amortise."""
        is_long = x.shape[1] >= LONG_STEPS and len(x) <= FEW_ROWS
        is_trained = torch.is_grad_enabled() and not torch.compiler.is_compiling()  # which cannot trace the pass
        if x.device.type != "cpu" or not is_long or not is_trained:
            return super()._layers(x, hidden)
        shape = (self.rnn.num_layers, len(x), self.rnn.hidden_size)
        starts = x.new_zeros(shape) if hidden is None else hidden[0]
        y, last = x.transpose(0, 1), []
        for layer, start in enumerate(starts):
            into, weight, bias_into, bias = (
                getattr(self.rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            y = dropout(y, self.rnn.dropout, self.training and layer > 0)
            y = gru_pass(linear(y, into, bias_into), weight, bias, start)
            last.append(y[-1])
        return y.transpose(0, 1), torch.stack(last)


@SEQUENCE_ENCODERS.register("lstm")
class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter & Schmidhuber, 1997), a linear projection and a norm; unbounded in time."""

    network = nn.LSTM
    parts = ("hidden", "cell")

    @torch.no_grad()
    def _init_memory(self) -> None:
        """Spread the cells' time scales like those of the GRU; what is let in is the complement of what is kept."""
        for layer in range(self.rnn.num_layers):
            scales = self._time_scales()
            self._set_bias(layer, 0, -scales)
            self._set_bias(layer, 1, scales)
            self._init_orthogonal(layer)
