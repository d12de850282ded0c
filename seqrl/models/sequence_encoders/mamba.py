"""Mamba: a selective state space model (Gu & Dao, 2023, arXiv 2312.00752)."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu, softplus

from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.mlp import make_norm
from seqrl.models.sequence_encoders.base import SequenceEncoder, State
from seqrl.models.sequence_encoders.kernels import imported_kernel, is_deterministic
from seqrl.models.sequence_encoders.selective_scan import scan_step, selective_scan

MIN_STEP_SIZE, MAX_STEP_SIZE = 1e-3, 1e-1
NORM_EPS = 1e-6


def scan_kernel() -> Any:
    """Return the CUDA kernel of the package mamba-ssm, or None where it cannot be imported."""
    return imported_kernel("mamba_ssm.ops.selective_scan_interface", "selective_scan_fn")


def kernel_problem(device: torch.device) -> str | None:
    """Return why the kernel cannot be used on a device, or None."""
    if device.type != "cuda":
        return f"it needs an NVIDIA GPU, and the device is {device.type!r}"
    if scan_kernel() is None:
        return "the package mamba-ssm cannot be imported (pip install --no-build-isolation 'seqrl[mamba]')"
    return None


def _scan(
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, start: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the outputs of the scan ``(L, B, E)``, by the kernel where it can be used, and otherwise its last state.

    The kernel begins with an empty state, computes in float32 at most, and its gradients differ in their last bits from
    call to call.
    """
    if start is not None or kernel_problem(u.device) or u.dtype == torch.float64 or is_deterministic():
        start = delta.new_zeros(u.shape[1], a.shape[1], u.shape[2]) if start is None else start.to(delta.dtype)
        return selective_scan(u, delta, a.t().contiguous(), b, c, start)
    kernel = scan_kernel()
    u, delta, b, c = (v.permute(1, 2, 0).contiguous() for v in (u, delta, b, c))
    return kernel(u, delta, a, b, c).permute(2, 0, 1), None


class _Mixer(nn.Module):
    """Gated convolution and selective scan; figure 3 of the paper, for memory over a window of so many steps.

    Two things differ from the paper, without which an input a hundred steps ago moves the output by a hundred
    thousandth at first, and is never found: what is selected is normalised, so that the memory is as loud as the
    present (Lieber et al., 2024, Jamba, arXiv 2403.19887, section 6.4), and the decay rates are spread from one over
    the window to the paper's largest.

    The convolution is a sum of shifted products, the scan runs time-major: both as they are fastest on a CPU.
    """

    def __init__(self, d_model: int, d_state: int, d_conv: int, expand: int, window_steps: int) -> None:
        super().__init__()
        d_inner = expand * d_model
        self.d_state = d_state
        self.rank = math.ceil(d_model / 16)
        self.input = nn.Linear(d_model, 2 * d_inner, bias=False)
        self.conv_weight = nn.Parameter(torch.empty(d_conv, d_inner).uniform_(-1, 1) / math.sqrt(d_conv))
        self.conv_bias = nn.Parameter(torch.empty(d_inner).uniform_(-1, 1) / math.sqrt(d_conv))
        self.select = nn.Linear(d_inner, self.rank + 2 * d_state, bias=False)
        self.step_size = nn.Linear(self.rank, d_inner)
        rates = torch.linspace(-math.log(max(window_steps, 2)), math.log(d_state), d_state)
        self.log_a = nn.Parameter(rates.repeat(d_inner, 1))
        self.skip = nn.Parameter(torch.ones(d_inner))
        self.output = nn.Linear(d_inner, d_model, bias=False)
        # A compiler would unroll the loop over steps. Not at the import, which would take a second longer by it.
        self._scan = torch.compiler.disable(_scan)
        self.conv_weight.no_weight_decay = self.log_a.no_weight_decay = True  # type: ignore[attr-defined]
        self._init_step_sizes()

    @torch.no_grad()
    def _init_step_sizes(self) -> None:
        """Spread the initial step sizes evenly in log space: time scales of ten to a thousand steps and more."""
        nn.init.uniform_(self.step_size.weight, -(self.rank**-0.5), self.rank**-0.5)
        low, high = math.log(MIN_STEP_SIZE), math.log(MAX_STEP_SIZE)
        sizes = torch.empty_like(self.step_size.bias).uniform_(low, high).exp()
        self.step_size.bias.copy_(sizes + torch.log(-torch.expm1(-sizes)))  # the inverse of softplus

    def forward(
        self, x: Float[Tensor, "B L D"], past: Tensor | None = None, state: Tensor | None = None
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B C E"], Float[Tensor, "B N E"] | None]:
        """Return the outputs of sequences, from an empty memory if no state is given, and where it ends."""
        u, gate = self.input(x).transpose(0, 1).chunk(2, dim=-1)
        num_before = len(self.conv_weight) - 1
        before = u.new_zeros(num_before, *u.shape[1:]) if past is None else past.transpose(0, 1).to(u.dtype)
        seen = torch.cat([before, u])
        u = self._convolve(seen)
        delta, b, c = self._selected(u)
        a = -self.log_a.float().exp()
        y, state = self._scan(u.float(), delta, a, b, c, state)
        return self._gated(y, u, gate).transpose(0, 1), seen[len(seen) - num_before :].transpose(0, 1), state

    def step(
        self, x: Float[Tensor, "B D"], past: Float[Tensor, "B C E"], state: Float[Tensor, "B N E"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B C E"], Float[Tensor, "B N E"]]:
        """Return the output of one more input, the convolution's past and the state after it."""
        u, gate = self.input(x).chunk(2, dim=-1)
        seen = torch.cat([past.to(u.dtype), u.unsqueeze(1)], dim=1)
        u = self._convolve(seen.transpose(0, 1)).squeeze(0)
        delta, b, c = self._selected(u)
        y, state = scan_step(u.float(), delta, -self.log_a.float().exp().t(), b, c, state)
        return self._gated(y, u, gate), seen[:, 1:], state

    def _convolve(self, x: Tensor) -> Tensor:
        """Return the causal depthwise convolution ``(L, B, E)`` of inputs with their past, ``d_conv - 1`` more."""
        length = len(x) - len(self.conv_weight) + 1
        y: Tensor = self.conv_bias
        for i, weight in enumerate(self.conv_weight):
            y = torch.addcmul(y, x[i : i + length], weight)
        return silu(y)

    def _selected(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return step sizes, input and output coefficients in float32: the scan needs the precision."""
        parts = self.select(u).split([self.rank, self.d_state, self.d_state], dim=-1)
        low, b, c = (rms_norm(part, part.shape[-1:], eps=NORM_EPS) for part in parts)
        return softplus(self.step_size(low).float()), b.float(), c.float()

    def _gated(self, y: Tensor, u: Tensor, gate: Tensor) -> Tensor:
        y = torch.addcmul(y, u, self.skip).to(gate.dtype)
        out: Tensor = self.output(y * silu(gate))
        return out


class _Block(nn.Module):
    """``x + drop(mixer(norm(x)))``."""

    def __init__(self, mixer: _Mixer, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.mixer, self.norm, self.dropout = mixer, norm, nn.Dropout(dropout)

    def forward(self, x: Tensor, past: Tensor | None = None, state: Tensor | None = None) -> tuple[Tensor, Any, Any]:
        run: Any = self.mixer.step if x.dim() == 2 else self.mixer
        y, past, state = run(self.norm(x), past, state)
        return x + self.dropout(y), past, state


@SEQUENCE_ENCODERS.register("mamba")
class Mamba(SequenceEncoder):
    """Residual pre-norm Mamba blocks. The state has a fixed size, so a step costs the same at any time.

    Training uses the kernel of the package mamba-ssm where that is installed and the inputs are on a GPU, and the same
    scan in plain PyTorch everywhere else, and with burn-in: the kernel begins with an empty memory.
    """

    is_recurrent = True

    def __init__(
        self,
        d_input: int,
        window_steps: int,
        *,
        d_model: int = 256,
        d_state: int = 16,
        d_conv: int = 4,
        expand: int = 2,
        num_layers: int = 3,
        dropout: float = 0.0,
        norm: str = "layer",
    ) -> None:
        super().__init__(d_input, window_steps)
        self.d_output = d_model
        self.d_inner, self.d_state, self.d_conv = expand * d_model, d_state, d_conv
        self.input = nn.Linear(d_input, d_model)
        self.blocks = nn.ModuleList(
            _Block(_Mixer(d_model, d_state, d_conv, expand, window_steps), make_norm(norm, d_model), dropout)
            for _ in range(num_layers)
        )
        self.norm = make_norm(norm, d_model)

    def forward(
        self, x: Float[Tensor, "B L D"], step: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L E"], State | None]:
        """Return the encodings, and the next state if one was given."""
        is_step = state is not None and x.shape[1] == 1
        x = self.input(x.squeeze(1) if is_step else x)
        after: State = {}
        for i, block in enumerate(self.blocks):
            past, memory = f"past_{i}", f"memory_{i}"
            given = (None, None) if state is None else (state[past], state[memory])
            x, after[past], after[memory] = block(x, *given)
        x = self.norm(x)
        return x.unsqueeze(1) if is_step else x, None if state is None else after

    def init_state(self, num_rows: int, *, device: torch.device | str, dtype: torch.dtype = torch.float32) -> State:
        """Return zeros: per layer the convolution's past, and the memory, which is always float32."""
        state = {}
        for i in range(len(self.blocks)):
            state[f"past_{i}"] = torch.zeros(num_rows, self.d_conv - 1, self.d_inner, device=device, dtype=dtype)
            state[f"memory_{i}"] = torch.zeros(num_rows, self.d_state, self.d_inner, device=device)
        return state
