"""minGRU equals its equations written as a loop, and begins with time scales up to the window."""

import torch
from torch.nn.functional import layer_norm

from tests.recurrences import check_against, check_steps, moved, small_encoder


def naive(encoder, x):
    """Feng et al. (2024), section 3.1, step by step, between the projections of residual layers."""
    x = encoder.input(x)
    for layer in encoder.layers:
        w = layer.mixer
        hidden, outputs = torch.zeros(len(x), w.d_inner, dtype=x.dtype), []
        for x_t in x.unbind(1):
            seen = layer_norm(x_t, x_t.shape[-1:], layer.norm.weight, layer.norm.bias)
            z, new = (seen @ w.gates.weight.T + w.gates.bias).split(w.d_inner, dim=-1)
            z = 1 / (1 + torch.exp(-z))
            hidden = (1 - z) * hidden + z * new
            outputs.append(x_t + hidden @ w.output.weight.T + w.output.bias)
        x = torch.stack(outputs, dim=1)
    return encoder.norm(x)


def build():
    return small_encoder("min_gru", d_model=4, expand=2, num_layers=2)


def test_it_equals_its_equations():
    check_against(build(), naive)


def test_steps_equal_the_pass():
    check_steps(build())


def test_a_share_kept_per_step_spreads_over_the_window():
    from seqrl.models.sequence_encoders import MinGRU

    gates = MinGRU(3, 100, d_model=512, num_layers=1).layers[0].mixer.gates
    steps = 1 / torch.sigmoid(gates.bias[:512])
    assert 2.0 <= steps.min() < 4.0
    assert 90.0 < steps.max() <= 100.01
    assert 0.2 < (steps > 50).float().mean() < 0.45


def test_an_input_a_window_ago_moves_the_output_at_first():
    assert moved("min_gru", 100, d_model=64, num_layers=2) > 1e-3
