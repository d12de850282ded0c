"""What stacks of layers have in common: mixed precision, and states that go on from one layer to its own next."""

import pytest
import torch

from seqrl.conformance.cases import SMALL_MEMORY
from seqrl.conformance.memories import MemoryCase
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders.layers import ShortConvolution, Stack
from tests.recurrences import clock, convolved

STACKS = [name for name in SEQUENCE_ENCODERS.names() if issubclass(SEQUENCE_ENCODERS.get(name), Stack)]


@pytest.mark.parametrize("name", STACKS)
def test_memories_stay_wide_under_autocast(name):
    encoder = MemoryCase(name).build()
    torch.manual_seed(0)
    x = torch.randn(2, 70, 6)
    exact, _ = encoder(x, clock(x))
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = encoder(x, clock(x))
        _, state = encoder(x[:, :2], clock(x)[:, :2], encoder.init_state(2, device="cpu"))
    assert (y.float() - exact).norm() < 0.06 * exact.norm()  # in 40 draws of weights and inputs it was below 0.04
    grads = torch.autograd.grad(y.float().square().sum(), list(encoder.parameters()))
    assert all(g.isfinite().all() and g.dtype == torch.float32 for g in grads)
    assert all(tensor.dtype in (torch.float32, torch.int64) or "past" in name for name, tensor in state.items())


def test_a_state_is_each_layers_own():
    encoder = MemoryCase("min_gru", {"num_layers": 12}).build()
    state = encoder.init_state(3, device="cpu")
    assert list(state) == [f"hidden_{i}" for i in range(12)]
    x = torch.randn(3, 2, 6)
    _, after = encoder(x, clock(x), state)
    assert len({tensor.sum().item() for tensor in after.values()}) == 12


def test_the_convolution_sees_its_last_inputs():
    convolution, x = ShortConvolution(4, 3).double(), torch.randn(2, 9, 4, dtype=torch.float64)
    y, past = convolution(x, None)
    torch.testing.assert_close(y, convolved(convolution, x))
    assert torch.equal(past, x[:, -2:])


def test_every_stack_is_checked_tiny():
    assert set(STACKS) <= set(SMALL_MEMORY)
