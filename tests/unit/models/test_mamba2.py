"""Mamba-2 equals its recurrence written as a loop, and begins with time scales up to the window."""

import torch
from torch.nn.functional import layer_norm, silu

from seqrl.models.sequence_encoders import Mamba2, mamba2
from tests.recurrences import check_against, check_steps, convolved, moved, rms, small_encoder


def naive(encoder, x):
    """Dao & Gu (2024), equation 1 with scalar rates, head by head and step by step, in the block of figure 6."""
    x = encoder.input(x)
    for layer in encoder.layers:
        w = layer.mixer
        inner, n, heads = w.norm.weight.numel(), w.d_state, w.num_heads
        both = layer_norm(x, x.shape[-1:], layer.norm.weight, layer.norm.bias) @ w.input.weight.T
        gate, mixed, step = both[..., :inner], both[..., inner : 2 * inner + 2 * n], both[..., 2 * inner + 2 * n :]
        mixed = convolved(w.convolution, mixed)
        b, c = (rms(part, eps=1e-6) for part in (mixed[..., inner : inner + n], mixed[..., inner + n :]))
        u, delta = mixed[..., :inner].unflatten(-1, (heads, -1)), torch.log1p(torch.exp(step + w.step_bias))
        read = []
        for h in range(heads):
            state, outputs = torch.zeros(len(x), n, inner // heads, dtype=x.dtype), []
            for t in range(x.shape[1]):
                decay = torch.exp(-delta[:, t, h] * torch.exp(w.log_a[h]))[:, None, None]
                entering = delta[:, t, h, None, None] * b[:, t, :, None] * u[:, t, h, None, :]
                state = decay * state + entering
                outputs.append((c[:, t, :, None] * state).sum(1) + w.skip[h] * u[:, t, h])
            read.append(torch.stack(outputs, dim=1))
        y = rms(torch.cat(read, dim=-1) * silu(gate), w.norm.weight)
        x = x + y @ w.output.weight.T
    return encoder.norm(x)


def build(**options):
    return small_encoder("mamba2", d_model=4, num_heads=2, d_state=3, **{"num_layers": 2, "d_conv": 3, **options})


def test_it_equals_its_recurrence():
    check_against(build(), naive)


def test_steps_equal_the_pass():
    check_steps(build())


def test_without_a_convolution_it_steps_as_well():
    check_steps(build(d_conv=1, num_layers=1), length=10)


def test_heads_forget_in_one_step_to_the_window():
    mixer = Mamba2(4, 100, d_model=64, num_layers=1).layers[0].mixer
    step = torch.nn.functional.softplus(mixer.step_bias)
    steps = 1 / (step * mixer.log_a.exp())
    expected = torch.tensor([100.0, 75.0, 50.0, 25.0, 10**1.5, 10.0, 10**0.5, 1.0])
    torch.testing.assert_close(steps, expected)


def test_an_input_a_window_ago_moves_the_output_at_first():
    assert moved("mamba2", 100, d_model=64, num_layers=2) > 1e-3


def test_the_kernel_is_called_as_it_wants(monkeypatch):
    """On a stand-in for mamba-ssm's function as its documentation describes it; the kernel itself needs a GPU."""
    calls = []

    def kernel(x, dt, a, b, c, chunk_size):
        calls.append(chunk_size)
        (rows, length, heads, _), (_, _, groups, n) = x.shape, b.shape
        assert (dt.shape, a.shape, groups, c.shape) == ((rows, length, heads), (heads,), 1, b.shape)
        state, outputs = x.new_zeros(rows, heads, n, x.shape[-1]), []
        for t in range(length):
            entering = dt[:, t, :, None, None] * b[:, t, 0, None, :, None] * x[:, t, :, None, :]
            state = torch.exp(dt[:, t] * a)[..., None, None] * state + entering
            outputs.append((c[:, t, 0, None, :, None] * state).sum(-2))
        return torch.stack(outputs, dim=1)

    encoder, x = build(), torch.randn(2, 9, 3, dtype=torch.float64)
    step = torch.arange(9).expand(2, -1)
    expected, _ = encoder(x, step)
    monkeypatch.setattr(mamba2, "mamba2_kernel", lambda x: kernel)
    torch.testing.assert_close(encoder(x, step)[0], expected)
    assert len(calls) == 2
    encoder(x, step, encoder.init_state(2, device="cpu", dtype=torch.float64))
    assert len(calls) == 2  # the kernel is for whole sequences
