"""What every registered memory has to do. A new one is covered by being registered."""

import pytest
import torch

import seqrl.models  # noqa: F401  (registers)
from seqrl.core.registry import SEQUENCE_ENCODERS
from tests.helpers import SMALL_MEMORY

D = 6
VARIANTS = [(name, {}) for name in SEQUENCE_ENCODERS.names()] + [
    ("transformer", {"positions": "rotary"}),
    ("transformer", {"positions": "learned", "max_steps": 64}),
    ("transformer", {"positions": "none", "use_sigma_reparam": False, "norm": "rms"}),
    ("transformer", {"attention": "vanilla"}),
    ("transformer", {"attention": "flex", "num_sinks": 3, "sink_bias": 1.0, "logit_clip": 4.0}),
    ("transformer", {"attention": "sdpa", "num_sinks": 5}),
    ("gru", {"start": "learned", "d_output": None, "norm": "simnorm"}),
    ("lstm", {"start": "learned", "d_output": None, "norm": "hypersphere"}),
    ("mamba", {"d_conv": 1, "expand": 1, "norm": "rms"}),
]
MEMORY_FREE = {"feedforward", "identity"}
IDS = [f"{name}-{'-'.join(map(str, options.values()))}" for name, options in VARIANTS]


def build(name, window=8, **options):
    torch.manual_seed(0)
    encoder = SEQUENCE_ENCODERS.get(name)(D, window, **{**SMALL_MEMORY.get(name, {}), **options}).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():  # away from special initial values, such as scales of one
            parameter += 0.1 * torch.randn_like(parameter)
    return encoder


def steps(num, length):
    return torch.arange(length).expand(num, -1)


def run_stepwise(encoder, x, dtype=torch.float32):
    state = encoder.init_state(len(x), device="cpu", dtype=dtype)
    outputs = []
    with torch.no_grad():
        for t in range(x.shape[1]):
            y, state = encoder(x[:, t : t + 1], steps(len(x), t + 1)[:, t:], state)
            outputs.append(y)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_step_by_step_equals_whole_sequence(name, options):
    """Over four windows' length, so long after a bounded memory has filled."""
    encoder = build(name, **options)
    x = torch.randn(3, 32, D)
    whole, state = encoder(x, steps(3, 32))
    assert state is None
    assert whole.shape == (3, 32, encoder.d_output)
    torch.testing.assert_close(run_stepwise(encoder, x), whole, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_step_by_step_equals_whole_sequence_in_bfloat16(name, options):
    encoder = build(name, **options).bfloat16()
    x = torch.randn(2, 32, D).bfloat16()
    whole, _ = encoder(x, steps(2, 32))
    stepped = run_stepwise(encoder, x, torch.bfloat16)
    assert stepped.dtype == torch.bfloat16
    exact = build(name, **options)(x.float(), steps(2, 32))[0]
    tolerance = 3 * (whole.float() - exact).abs().max().clamp(min=0.02)
    assert (stepped.float() - exact).abs().max() < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_rows_are_reset_at_their_own_time(name, options, dtype, tolerance):
    """Each row begins anew when it likes; its outputs are those of its episodes alone."""
    encoder = build(name, **options).to(dtype)
    length, begins = 40, [[0, 5, 30], [0, 17], [0]]
    x = torch.randn(3, length, D).to(dtype)
    state = encoder.init_state(3, device="cpu", dtype=dtype)
    clock = torch.zeros(3, dtype=torch.int64)
    outputs = []
    with torch.no_grad():
        for t in range(length):
            begin = torch.tensor([t in row for row in begins])
            state = encoder.reset_rows(state, begin)
            clock = torch.where(begin, 0, clock)
            y, state = encoder(x[:, t : t + 1], clock[:, None], state)
            outputs.append(y)
            clock = clock + 1
    stepped = torch.cat(outputs, dim=1)
    for row, starts in enumerate(begins):
        for start, end in zip(starts, [*starts[1:], length], strict=True):
            alone, _ = encoder(x[row : row + 1, start:end], steps(1, end - start))
            torch.testing.assert_close(stepped[row : row + 1, start:end], alone, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_a_reset_forgets_what_was_not_finite(name, options):
    encoder = build(name, window=4, **options)
    x = torch.randn(2, 12, D)
    state = encoder.init_state(2, device="cpu")
    with torch.no_grad():
        for t in range(3):
            _, state = encoder(torch.full((2, 1, D), torch.nan), steps(2, 3)[:, t : t + 1], state)
        state = encoder.reset_rows(state, torch.tensor([True, False]))
        for t in range(12):
            y, state = encoder(x[:, t : t + 1], steps(2, 12)[:, t : t + 1], state)
            alone, _ = encoder(x[:1, : t + 1], steps(1, t + 1))
            torch.testing.assert_close(y[:1], alone[:, -1:], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_is_causal(name, options):
    encoder = build(name, **options)
    x = torch.randn(2, 20, D, requires_grad=True)
    y, _ = encoder(x, steps(2, 20))
    for t in (0, 7, 12):
        (gradient,) = torch.autograd.grad(y[:, t].square().sum(), x, retain_graph=True)
        assert gradient[:, t + 1 :].abs().max() == 0
        assert gradient[:, t].abs().max() > 0


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=IDS)
def test_rows_do_not_mix(name, options):
    encoder = build(name, **options)
    x = torch.randn(2, 12, D)
    other = x.clone()
    other[1] = 7.0
    torch.testing.assert_close(encoder(x, steps(2, 12))[0][0], encoder(other, steps(2, 12))[0][0])


@pytest.mark.parametrize("name", sorted(set(SEQUENCE_ENCODERS.names()) - MEMORY_FREE))
def test_remembers(name):
    """An encoder other than the memory-free controls depends on the past within its window."""
    encoder = build(name)
    x = torch.randn(2, 8, D, requires_grad=True)
    y, _ = encoder(x, steps(2, 8))
    (gradient,) = torch.autograd.grad(y[:, -1].square().sum(), x)
    assert gradient[:, 0].abs().max() > 0


def test_transformer_band_ends_where_it_should():
    """One layer of window 4 sees four inputs; two layers see seven."""
    for layers, reach in ((1, 4), (2, 7)):
        encoder = build("transformer", window=4, num_layers=layers)
        x = torch.randn(1, 16, D, requires_grad=True)
        y, _ = encoder(x, steps(1, 16))
        (gradient,) = torch.autograd.grad(y[:, -1].square().sum(), x)
        seen = (gradient.abs().amax((0, 2)) > 0).nonzero().flatten().tolist()
        assert seen == list(range(16 - reach, 16))
