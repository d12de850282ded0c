"""Frames that are read together: their order, the first one repeated, and the same step by step with any memory."""

import pytest
import torch

from seqrl.conformance import memories
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders import make_sequence_encoder


def test_an_input_is_read_beside_the_two_before_it():
    net = make_sequence_encoder("identity", 2, 6, {"num_frames": 3})
    x = torch.randn(2, 5, 2, dtype=torch.float64)
    got, state = net(x, torch.arange(5).expand(2, -1))
    assert state is None
    beside = [x[:, 0], x[:, 0], *x.unbind(1)]
    for t in range(5):
        assert torch.equal(got[:, t], torch.cat(beside[t : t + 3], dim=-1))


@pytest.mark.parametrize("name", SEQUENCE_ENCODERS.names())
def test_step_by_step_equals_the_whole_and_rows_are_reset_on_their_own(name):
    net = memories.MemoryCase(name, {"num_frames": 3}).build(window=6).double()
    x = torch.randn(2, 7, net.d_input, dtype=torch.float64)
    step = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 0, 1, 2, 3]])
    state, outputs = net.init_state(2, device="cpu", dtype=torch.float64), []
    with torch.no_grad():
        for t in range(7):
            state = net.reset_rows(state, step[:, t] == 0)
            out, state = net(x[:, t : t + 1], step[:, t : t + 1], state)
            outputs.append(out)
        stepped = torch.cat(outputs, dim=1)
        torch.testing.assert_close(stepped[0], net(x, step)[0][0])
        for part in (slice(0, 3), slice(3, 7)):
            torch.testing.assert_close(stepped[1, part], net(x[1:, part], step[1:, part])[0][0])


def test_one_frame_is_the_memory_alone():
    one, plain = (
        [p.shape for p in make_sequence_encoder("gru", 4, 6, o).parameters()] for o in ({"num_frames": 1}, {})
    )
    assert one == plain


@pytest.mark.parametrize("name", SEQUENCE_ENCODERS.names())
def test_frames_go_on_from_a_state_as_their_memory_does(name):
    case = memories.MemoryCase(name, {"num_frames": 3})
    assert case.build().is_recurrent == memories.MemoryCase(name).build().is_recurrent
    if case.build().is_recurrent:
        memories.goes_on_from_a_state(case)


def test_empty_rows_of_a_state_have_no_frames():
    net = make_sequence_encoder("gru", 2, 6, {"num_frames": 3})
    x, step = torch.randn(2, 4, 2), torch.arange(4).expand(2, -1)
    _, state = net(x, step, net.init_state(2, device="cpu"))
    going_on, _ = net(x, step, net.with_empty_rows(state, torch.tensor([True, False])))
    torch.testing.assert_close(going_on[0], net(x, step)[0][0])
    assert not torch.allclose(going_on[1, 0], net(x, step)[0][1, 0])
