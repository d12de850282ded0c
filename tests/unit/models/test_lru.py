"""LRU equals its equations with complex numbers written as a loop, and begins with time scales up to the window."""

import math

import torch
from torch.nn.functional import gelu, layer_norm

from tests.recurrences import check_against, check_steps, moved, small_encoder


def naive(encoder, x):
    """Orvieto et al. (2023), equations 3 and 6 to 8, one number after the other in time."""
    x = encoder.input(x)
    for layer in encoder.layers:
        w, n = layer.mixer, layer.mixer.d_state
        rate, phase = torch.exp(w.log_rate), torch.exp(w.log_phase)
        eigenvalue = torch.exp(torch.complex(-rate, phase))
        into = torch.complex(w.input.weight[:n], w.input.weight[n:])
        out = torch.complex(w.read.weight[:, :n], -w.read.weight[:, n:])
        state, outputs = torch.zeros(len(x), n, dtype=torch.complex128), []
        for x_t in x.unbind(1):
            seen = layer_norm(x_t, x_t.shape[-1:], layer.norm.weight, layer.norm.bias)
            state = eigenvalue * state + torch.exp(w.log_gain) * (seen.to(state.dtype) @ into.T)
            y = gelu((state @ out.T).real + w.skip * seen)
            a, b = (y @ w.output.weight.T + w.output.bias).chunk(2, dim=-1)
            outputs.append(x_t + a * torch.sigmoid(b))
        x = torch.stack(outputs, dim=1)
    return encoder.norm(x)


def build():
    return small_encoder("lru", d_model=4, d_state=5, num_layers=2)


def test_it_equals_its_equations():
    check_against(build(), naive)


def test_steps_equal_the_pass():
    check_steps(build())


def test_time_scales_spread_over_the_window_and_states_have_the_size_of_inputs():
    from seqrl.models.sequence_encoders import LRU

    mixer = LRU(3, 100, d_model=16, d_state=512, num_layers=1).layers[0].mixer
    steps = torch.exp(-mixer.log_rate)
    assert 1.0 <= steps.min() < 2.0
    assert 90.0 < steps.max() <= 99.01
    size = torch.exp(-torch.exp(mixer.log_rate))
    torch.testing.assert_close(mixer.log_gain.exp(), (1 - size**2).sqrt())
    assert mixer.log_phase.exp().max() <= math.pi / 10


def test_an_input_a_window_ago_moves_the_output_at_first():
    assert moved("lru", 100, d_model=64, d_state=64, num_layers=2) > 1e-3
