"""The pass for long sequences equals PyTorch's GRU in float64, with all gradients, and is taken where it should be."""

import pytest
import torch

from seqrl.models.sequence_encoders import GRU, recurrent
from seqrl.models.sequence_encoders.gru_pass import gru_pass
from tests.recurrences import clock


def build(**options):
    torch.manual_seed(0)
    return GRU(3, 50, **{"d_hidden": 8, "num_layers": 2, "d_output": 5, **options}).double()


@pytest.mark.parametrize("start", ["zero", "learned"])
def test_it_equals_pytorch_with_all_gradients(start, monkeypatch):
    encoder = build(start=start)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    x = torch.randn(2, 70, 3, dtype=torch.float64, requires_grad=True)
    targets, results = [x, *encoder.parameters()], []
    for few in (recurrent.FEW_ROWS, 0):
        monkeypatch.setattr(recurrent, "FEW_ROWS", few)
        y, _ = encoder(x, clock(x))
        stepped, state = encoder(x, clock(x), encoder.init_state(2, device="cpu", dtype=torch.float64))
        torch.testing.assert_close(stepped, y, rtol=1e-12, atol=1e-12)
        results.append([y, state["hidden"], *torch.autograd.grad(y.sin().sum(), targets)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    ("rows", "length", "expected"), [(1, 64, True), (16, 64, True), (17, 64, False), (1, 63, False)]
)
def test_it_is_taken_for_few_long_rows(monkeypatch, rows, length, expected):
    encoder, calls, x = build(num_layers=1), [], torch.randn(rows, length, 3, dtype=torch.float64)
    monkeypatch.setattr(recurrent, "gru_pass", lambda *values: calls.append(1) or gru_pass(*values))
    encoder(x, clock(x))
    assert bool(calls) == expected
    with torch.no_grad():
        calls.clear()
        encoder(x, clock(x))
    assert not calls


def test_dropout_is_between_layers_and_in_training_alone():
    encoder, x = build(dropout=0.5), torch.randn(1, 70, 3, dtype=torch.float64)
    one, two = encoder(x, clock(x))[0], encoder(x, clock(x))[0]
    assert not torch.equal(one, two)
    encoder.eval()
    assert torch.equal(encoder(x, clock(x))[0], encoder(x, clock(x))[0])
