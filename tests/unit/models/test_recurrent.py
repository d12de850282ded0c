"""GRU and LSTM: their gates written out, their starts, and the time scales that they begin with."""

import pytest
import torch

import seqrl.models.sequence_encoders  # noqa: F401  (registers them)
from seqrl.core.registry import SEQUENCE_ENCODERS


def build(name, window=50, **options):
    torch.manual_seed(0)
    settings = {"d_hidden": 8, "num_layers": 1, "d_output": None, "norm": "none", **options}
    return SEQUENCE_ENCODERS.get(name)(3, window, **settings).eval()


def gates(encoder, x, h):
    w = encoder.rnn
    return (
        (x @ w.weight_ih_l0.T + w.bias_ih_l0).chunk(3 if "GRU" in type(encoder).__name__ else 4, dim=-1),
        (h @ w.weight_hh_l0.T + w.bias_hh_l0).chunk(3 if "GRU" in type(encoder).__name__ else 4, dim=-1),
    )


def by_hand(encoder, x):
    """Equations of Cho et al. (2014) and Hochreiter & Schmidhuber (1997) with a forget gate, step by step."""
    h, c, outputs = torch.zeros(len(x), 8), torch.zeros(len(x), 8), []
    for t in range(x.shape[1]):
        a, b = gates(encoder, x[:, t], h)
        if len(a) == 3:
            reset, keep = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
            h = keep * h + (1 - keep) * torch.tanh(a[2] + reset * b[2])
        else:
            let_in, keep, new, let_out = (p + q for p, q in zip(a, b, strict=True))
            c = torch.sigmoid(keep) * c + torch.sigmoid(let_in) * torch.tanh(new)
            h = torch.sigmoid(let_out) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_equals_its_equations(name):
    encoder, x = build(name), torch.randn(2, 12, 3)
    got, _ = encoder(x, torch.arange(12).expand(2, -1))
    torch.testing.assert_close(got, by_hand(encoder, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_share_kept_per_step_spreads_over_the_window(name):
    encoder = build(name, window=100, d_hidden=512)
    width = 512
    keep = torch.sigmoid(encoder.rnn.bias_ih_l0 + encoder.rnn.bias_hh_l0)[width : 2 * width]
    steps = 1 / (1 - keep)
    assert 2.0 <= steps.min() < 4.0
    assert 90.0 < steps.max() <= 100.01
    # half evenly over the steps, half over their logarithm: 0.5 * 8 / 98 + 0.5 * ln 9 / ln 99 are faster than 10
    assert (steps < 10).float().mean() == pytest.approx(0.28, abs=0.04)
    assert (steps > 50).float().mean() == pytest.approx(0.33, abs=0.04)


def test_the_lstm_lets_in_what_it_does_not_keep():
    encoder = build("lstm", d_hidden=16)
    bias = encoder.rnn.bias_ih_l0
    torch.testing.assert_close(bias[:16], -bias[16:32])


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_learned_start_is_where_every_episode_begins(name):
    encoder = build(name, start="learned", num_layers=2)
    with torch.no_grad():
        for parameter in encoder.start.values():
            parameter.normal_()
    x, step = torch.randn(2, 5, 3), torch.arange(5).expand(2, -1)
    y, _ = encoder(x, step)
    state = encoder.init_state(2, device="cpu")
    for part, tensor in state.items():
        assert torch.equal(tensor[1], encoder.start[part])
        assert not tensor.requires_grad
    stepped, state = encoder(x, step, state)
    torch.testing.assert_close(stepped, y)
    state = encoder.reset_rows(state, torch.tensor([True, False]))
    for part, tensor in state.items():
        assert torch.equal(tensor[0], encoder.start[part])
        assert not torch.equal(tensor[1], encoder.start[part])
    gradients = torch.autograd.grad(y[:, -1].sum(), list(encoder.start.values()))
    assert all(g.abs().min() > 0 for g in gradients)


def test_without_a_projection_the_output_is_the_state():
    assert build("gru").d_output == 8
    encoder = build("gru", d_output=5)
    y, _ = encoder(torch.randn(1, 4, 3), torch.arange(4)[None])
    assert y.shape == (1, 4, encoder.d_output) == (1, 4, 5)


@pytest.mark.parametrize("name", ["gru", "lstm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_run_in_full_precision_under_autocast_on_a_cpu(name, dtype):
    """Not every CPU knows LSTMs in bfloat16; there it was an error of torch."""
    encoder, step = build(name), torch.arange(7).expand(2, 7)
    x = torch.randn(2, 7, 3).to(dtype)
    exact, last = encoder(x.float(), step, encoder.init_state(2, device="cpu"))
    with torch.autocast("cpu", torch.bfloat16):
        got, state = encoder(x, step, encoder.init_state(2, device="cpu"))
        alone, _ = encoder(x, step)
    assert torch.equal(got.float(), exact)
    assert torch.equal(alone.float(), exact)
    assert all(torch.equal(state[part], last[part]) for part in last)
