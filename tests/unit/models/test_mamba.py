"""The selective scan equals a sequential float64 reference, with its gradients; Mamba equals one written with loops."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from seqrl.models.sequence_encoders import Mamba, mamba
from seqrl.models.sequence_encoders.selective_scan import scan_step, selective_scan


def inputs(length, rows=2, width=3, d_state=4, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    values = (
        draw(length, rows, width),
        draw(length, rows, width).abs() * 0.3,
        -draw(d_state, width).abs() * 3 - 0.1,
        draw(length, rows, d_state),
        draw(length, rows, d_state),
        draw(rows, d_state, width),
    )
    return [v.to(dtype).requires_grad_() for v in values]


def sequential(u, delta, a, b, c, state):
    outputs = []
    for t in range(len(u)):
        state = torch.exp(delta[t][:, None] * a) * state + (delta[t] * u[t])[:, None] * b[t][:, :, None]
        outputs.append((c[t][:, :, None] * state).sum(1))
    return torch.stack(outputs), state


@pytest.mark.parametrize("chunk", [1, 2, 5, 8, 23, 64, None])
@pytest.mark.parametrize("length", [1, 7, 23])
def test_scan_and_its_gradients_equal_the_sequential_reference(length, chunk):
    values = inputs(length)
    results = [selective_scan(*values, chunk_steps=chunk), sequential(*values)]
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    losses = [y.sin().sum() + last.cos().sum() for y, last in results]
    grads = [torch.autograd.grad(loss, values) for loss in losses]
    for got, expected in zip(*grads, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-11)


def test_gradients_equal_finite_differences():
    assert torch.autograd.gradcheck(lambda *v: selective_scan(*v, chunk_steps=2), inputs(5, rows=1, width=2, d_state=2))


def test_float32_stays_close_over_a_long_sequence():
    values = inputs(2000, dtype=torch.float32)
    y, _ = selective_scan(*values)
    expected, _ = sequential(*(v.double() for v in values))
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)


def test_steps_equal_the_scan():
    u, delta, a, b, c, state = (v.detach() for v in inputs(9))
    y, last = selective_scan(u, delta, a, b, c, state)
    for t in range(9):
        y_t, state = scan_step(u[t], delta[t], a, b[t], c[t], state)
        torch.testing.assert_close(y_t, y[t])
    torch.testing.assert_close(state, last)


def by_hand(encoder, x):
    """One layer on one sequence ``(L, D)`` in NumPy float64: algorithm 2 of the paper, with what is selected normed."""
    weights = {k: v.detach().double().numpy() for k, v in encoder.state_dict().items()}
    block = {k.removeprefix("blocks.0.mixer."): v for k, v in weights.items()}

    def silu(v):
        return v / (1 + np.exp(-v))

    def layer_norm(v, name):
        v = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5)
        return v * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    residual = x @ weights["input.weight"].T + weights["input.bias"]
    both = layer_norm(residual, "blocks.0.norm") @ block["input.weight"].T
    d_inner = both.shape[1] // 2
    raw, gate = both[:, :d_inner], both[:, d_inner:]
    d_conv, d_state = len(block["conv_weight"]), block["log_a"].shape[1]
    u = np.zeros_like(raw)
    for t in range(len(raw)):
        u[t] = block["conv_bias"]
        for i in range(d_conv):
            back = d_conv - 1 - i
            if t >= back:
                u[t] += block["conv_weight"][i] * raw[t - back]
    u = silu(u)
    selected = u @ block["select.weight"].T
    rank = selected.shape[1] - 2 * d_state
    for part in (selected[:, :rank], selected[:, rank : rank + d_state], selected[:, rank + d_state :]):
        part /= np.sqrt((part**2).mean(-1, keepdims=True) + 1e-6)
    delta = np.log1p(np.exp(selected[:, :rank] @ block["step_size.weight"].T + block["step_size.bias"]))
    state, y = np.zeros((d_inner, d_state)), np.zeros_like(u)
    for t in range(len(u)):
        for e in range(d_inner):
            for n in range(d_state):
                decay = math.exp(-delta[t, e] * math.exp(block["log_a"][e, n]))
                state[e, n] = decay * state[e, n] + delta[t, e] * u[t, e] * selected[t, rank + n]
            y[t, e] = state[e] @ selected[t, rank + d_state :] + block["skip"][e] * u[t, e]
    out = residual + (y * silu(gate)) @ block["output.weight"].T
    return layer_norm(out, "norm")


def test_encoder_equals_the_paper_by_hand():
    torch.manual_seed(0)
    encoder = Mamba(5, 8, d_model=6, d_state=3, d_conv=4, num_layers=1).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    x = torch.randn(1, 11, 5)
    got, _ = encoder(x, torch.arange(11)[None])
    np.testing.assert_allclose(got[0].detach().numpy(), by_hand(encoder, x[0].double().numpy()), rtol=1e-4, atol=1e-5)


def test_initial_step_sizes_and_rates_span_the_window():
    mixer = Mamba(4, 50, d_model=64, num_layers=1).blocks[0].mixer
    sizes = torch.nn.functional.softplus(mixer.step_size.bias)
    assert 0.99e-3 <= sizes.min() < 2e-3
    assert 0.05 < sizes.max() <= 0.101
    rates = mixer.log_a[0].exp()
    torch.testing.assert_close(rates[[0, -1]], torch.tensor([1 / 50, 16.0]))
    torch.testing.assert_close(rates[1:] / rates[:-1], torch.full((15,), 800 ** (1 / 15)))


def test_an_input_a_window_ago_moves_the_output_at_first():
    """By a thousandth at least, where the paper's own start gives a hundred thousandth."""
    moved = []
    for seed in range(5):
        torch.manual_seed(seed)
        encoder, x = Mamba(32, 100, d_model=64, num_layers=2), torch.randn(1, 1, 32).repeat(2, 100, 1)
        x[:, 0] = torch.randn(2, 32)
        y, _ = encoder(x, torch.arange(100).expand(2, -1))
        moved.append(((y[0, -1] - y[1, -1]).norm() / y[0, -1].norm()).item())
    assert sum(moved) / len(moved) > 1e-3


def test_decay_rates_have_no_weight_decay():
    from seqrl.algo.updater import build_optimizer
    from seqrl.configs.sections.policy import OptimizerSection

    encoder = Mamba(4, 8, d_model=16, num_layers=1)
    optimizer = build_optimizer(torch.nn.ModuleDict({"memory": encoder}), OptimizerSection(weight_decay=0.1))
    plain = {id(p) for g in optimizer.param_groups if g["weight_decay"] == 0 for p in g["params"]}
    named = dict(encoder.named_parameters())
    assert id(named["blocks.0.mixer.log_a"]) in plain
    assert id(named["blocks.0.mixer.conv_weight"]) in plain
    assert id(named["blocks.0.mixer.select.weight"]) not in plain


class FakeKernel:
    """mamba-ssm's function as its documentation describes it: channels before time, rates ``(D, N)``."""

    def __init__(self):
        self.calls = 0

    def __call__(self, u, delta, a, b, c):
        self.calls += 1
        assert u.shape == delta.shape
        assert a.shape == (u.shape[1], b.shape[1])
        assert all(v.is_contiguous() for v in (u, delta, b, c))
        start = u.new_zeros(u.shape[0], b.shape[1], u.shape[1])
        y, _ = sequential(*(v.permute(2, 0, 1) for v in (u, delta)), a.T, *(v.permute(2, 0, 1) for v in (b, c)), start)
        return y.permute(1, 2, 0)


def test_the_kernel_is_called_as_it_wants(monkeypatch):
    """On a stand-in; the kernel itself needs a GPU."""
    encoder, kernel = Mamba(5, 8, d_model=8, d_state=3, num_layers=2), FakeKernel()
    x, step = torch.randn(2, 9, 5), torch.arange(9).expand(2, -1)
    expected, _ = encoder(x, step)
    monkeypatch.setattr(mamba, "scan_kernel", lambda: kernel)
    monkeypatch.setattr(mamba, "kernel_problem", lambda device: None)
    torch.testing.assert_close(encoder(x, step)[0], expected, rtol=1e-4, atol=1e-5)
    assert kernel.calls == 2


@pytest.mark.skipif(mamba.kernel_problem(torch.device("cuda")) is not None or not torch.cuda.is_available(),
                    reason="needs the package mamba-ssm and an NVIDIA GPU")  # fmt: skip
def test_the_kernel_agrees_on_a_gpu(monkeypatch):
    encoder = Mamba(5, 8, d_model=64, num_layers=2).cuda()
    x, step = torch.randn(2, 100, 5, device="cuda"), torch.arange(100, device="cuda").expand(2, -1)
    results = []
    for kernel in (mamba.scan_kernel(), None):
        monkeypatch.setattr(mamba, "scan_kernel", lambda kernel=kernel: kernel)
        y, _ = encoder(x, step)
        results.append([y, *torch.autograd.grad(y.square().sum(), list(encoder.parameters()))])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


PEAK = """
import sys, torch
from pathlib import Path
from seqrl.models.sequence_encoders import Mamba
torch.set_num_threads(1)
rows, length, layers = map(int, sys.argv[1:])
encoder = Mamba(256, 8, num_layers=layers)
encoder(torch.randn(rows, length, 256), torch.arange(length).expand(rows, -1))[0].sum().backward()
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of memory")
@pytest.mark.parametrize(("rows", "length", "layers", "megabytes"), [
    # one state per step would take 1.6 GB: 134 MB for each of a dozen tensors
    pytest.param(1, 4096, 1, 600, marks=pytest.mark.slow),
    pytest.param(4, 8192, 3, 8000, marks=pytest.mark.slow),
])  # fmt: skip
def test_memory_grows_by_little_per_step(rows, length, layers, megabytes):
    """Peak of a process that takes a training step, torch included."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(rows), str(length), str(layers)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) / 1024 < megabytes
