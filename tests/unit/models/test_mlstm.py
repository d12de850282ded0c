"""mLSTM equals its equations without stabilisation written as a loop, and begins with time scales up to the window."""

import math

import torch
from torch.nn.functional import layer_norm, silu

from seqrl.models.sequence_encoders import MLSTM
from tests.recurrences import check_against, check_steps, convolved, moved, rms, small_encoder


def naive(encoder, x):
    """Beck et al. (2024), equations 19 to 27, head by head and step by step, in the block of figure 11."""
    x = encoder.input(x)
    for layer in encoder.layers:
        w = layer.mixer
        heads, n, inner = w.num_heads, w.d_state, w.d_inner
        both = layer_norm(x, x.shape[-1:], layer.norm.weight, layer.norm.bias) @ w.input.weight.T
        u, gate = both[..., :inner], both[..., inner:]
        seen = convolved(w.convolution, u)
        both, values, gates = seen @ w.query_key.weight.T, u @ w.value.weight.T, seen @ w.gates.weight.T + w.gates.bias
        read = []
        for h in range(heads):
            q, k = both[..., h * n : h * n + n], both[..., (heads + h) * n : (heads + h) * n + n] / math.sqrt(n)
            v = values.unflatten(-1, (heads, -1))[:, :, h]
            cell, norm, outputs = 0.0, 0.0, []
            for t in range(x.shape[1]):
                let_in, keep = torch.exp(gates[:, t, h]), 1 / (1 + torch.exp(-gates[:, t, heads + h]))
                cell = keep[:, None, None] * cell + let_in[:, None, None] * k[:, t, :, None] * v[:, t, None, :]
                norm = keep[:, None] * norm + let_in[:, None] * k[:, t]
                size = (q[:, t] * norm).sum(-1, keepdim=True).abs().clamp(min=1.0)
                outputs.append((q[:, t, :, None] * cell).sum(1) / size)
            read.append(rms(torch.stack(outputs, dim=1), w.norm.weight))
        y = (torch.cat(read, dim=-1) + w.skip * seen) * silu(gate)
        x = x + y @ w.output.weight.T
    return encoder.norm(x)


def build(**options):
    sizes = {"d_model": 4, "num_heads": 2, "d_state": 3, "num_layers": 2, "d_conv": 3, **options}
    return small_encoder("mlstm", **sizes)


def test_it_equals_its_equations():
    check_against(build(), naive)


def test_it_equals_them_where_gates_are_large():
    """Sums far above 1, so that they and not the 1 divide."""
    encoder = build()
    with torch.no_grad():
        for layer in encoder.layers:
            layer.mixer.gates.bias[:2] += 6.0
    check_against(encoder, naive)


def test_steps_equal_the_pass():
    check_steps(build())


def test_heads_forget_in_four_steps_to_four_windows():
    mixer = MLSTM(4, 100, d_model=64, num_layers=1).layers[0].mixer
    kept = torch.sigmoid(mixer.gates.bias[4:])
    torch.testing.assert_close(1 / (1 - kept), torch.tensor([400.0, 200.0, 40.0, 4.0]), rtol=1e-4, atol=0.0)


def test_an_input_a_window_ago_moves_the_output_at_first():
    assert moved("mlstm", 100, d_model=64, num_layers=2) > 1e-3
