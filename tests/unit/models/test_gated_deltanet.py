"""Gated DeltaNet equals its recurrence written as a loop, replaces what it holds, and begins with long time scales."""

import torch
from torch.nn.functional import layer_norm, silu

from seqrl.models.sequence_encoders import GatedDeltaNet, gated_deltanet
from seqrl.models.sequence_encoders.matrix_memory import delta_attention
from tests.recurrences import check_against, check_steps, convolved, moved, rms, small_encoder


def naive(encoder, x):
    """Yang et al. (2024), equation 10, head by head and step by step, in the block of figure 1."""
    x = encoder.input(x)
    for layer in encoder.layers:
        w = layer.mixer
        heads, n, p = w.num_heads, w.d_state, w.norm.weight.numel()
        seen = layer_norm(x, x.shape[-1:], layer.norm.weight, layer.norm.bias)
        both = seen @ w.input.weight.T
        mixed, gate = convolved(w.convolution, both[..., : heads * (2 * n + p)]), both[..., heads * (2 * n + p) :]
        gates = seen @ w.gates.weight.T + w.gates.bias
        beta = 1 / (1 + torch.exp(-gates[..., :heads]))
        alpha = torch.exp(-torch.exp(w.log_a) * torch.log1p(torch.exp(gates[..., heads:])))
        read = []
        for h in range(heads):
            q, k = mixed[..., h * n : h * n + n], mixed[..., (heads + h) * n : (heads + h) * n + n]
            q, k = (part / part.norm(dim=-1, keepdim=True) for part in (q, k))
            v = mixed[..., 2 * heads * n + h * p : 2 * heads * n + h * p + p]
            state, outputs = torch.zeros(len(x), n, p, dtype=x.dtype), []
            for t in range(x.shape[1]):
                key, share = k[:, t, :, None], beta[:, t, h, None, None]
                erase = torch.eye(n, dtype=x.dtype) - share * key @ key.transpose(1, 2)
                state = alpha[:, t, h, None, None] * erase @ state + share * key * v[:, t, None, :]
                outputs.append((q[:, t, :, None] * state).sum(1))
            read.append(rms(torch.stack(outputs, dim=1), w.norm.weight))
        x = x + torch.cat(read, dim=-1) * silu(gate) @ w.output.weight.T
    return encoder.norm(x)


def build(**options):
    sizes = {"d_model": 4, "num_heads": 2, "d_state": 3, "num_layers": 2, "d_conv": 3, **options}
    return small_encoder("gated_deltanet", **sizes)


def test_it_equals_its_recurrence():
    check_against(build(), naive)


def test_steps_equal_the_pass():
    check_steps(build())


def test_what_is_held_under_a_key_is_replaced():
    """Full shares and no forgetting: of two values under one key the second is read, and another key's is untouched."""
    k = torch.eye(3)[[0, 1, 0]][None, None]
    v = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])[None, None]
    ones = torch.ones(1, 1, 3)
    _, state = delta_attention(k, k, v, 0 * ones, ones, torch.zeros(1, 1, 3, 2))
    torch.testing.assert_close(state[0, 0], torch.tensor([[5.0, 6.0], [3.0, 4.0], [0.0, 0.0]]))


def test_heads_forget_in_one_step_to_the_window():
    mixer = GatedDeltaNet(4, 100, d_model=64, num_layers=1).layers[0].mixer
    rates = mixer.log_a.exp() * torch.nn.functional.softplus(mixer.gates.bias[4:])
    torch.testing.assert_close(1 / rates, torch.tensor([100.0, 50.0, 10.0, 1.0]))


def test_an_input_a_window_ago_moves_the_output_at_first():
    assert moved("gated_deltanet", 100, d_model=64, num_layers=2) > 1e-3


def test_the_kernel_is_called_as_it_wants(monkeypatch):
    """On a stand-in for flash-linear-attention's function as its documentation describes it; itself it needs a GPU."""
    calls = []

    def kernel(q, k, v, g, beta, scale):
        calls.append(scale)
        assert q.shape == k.shape == (*v.shape[:3], q.shape[-1])
        assert g.shape == beta.shape == v.shape[:3]
        assert q.dtype == k.dtype == v.dtype
        start = v.new_zeros(len(v), v.shape[2], k.shape[-1], v.shape[-1])
        y, _ = delta_attention(*(part.transpose(1, 2) for part in (q, k, v, g, beta)), start)
        return scale * y.transpose(1, 2), None

    encoder, x = build(), torch.randn(2, 9, 3, dtype=torch.float64)
    step = torch.arange(9).expand(2, -1)
    expected, _ = encoder(x, step)
    monkeypatch.setattr(gated_deltanet, "delta_kernel", lambda x: kernel)
    torch.testing.assert_close(encoder(x, step)[0], expected)
    assert calls == [1.0, 1.0]
    encoder(x, step, encoder.init_state(2, device="cpu", dtype=torch.float64))
    assert len(calls) == 2  # the kernel is for whole sequences


def test_mixed_precision_asks_for_the_kernel_in_half_precision(monkeypatch):
    asked = []
    monkeypatch.setattr(gated_deltanet, "delta_kernel", lambda x: asked.append(x.dtype))
    encoder, x = build().float(), torch.randn(2, 9, 3)
    with torch.autocast("cpu", torch.bfloat16):
        encoder(x, torch.arange(9).expand(2, -1))
    assert asked == [torch.bfloat16, torch.bfloat16]
