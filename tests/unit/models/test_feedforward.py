"""Frames that are read together: their order, the first one repeated, and the same step by step."""

import torch

from seqrl.models.sequence_encoders import FeedForward


def encoder():
    torch.manual_seed(0)
    return FeedForward(2, 6, d_model=8, d_ff=8, num_frames=3).double().eval()


def test_an_input_is_read_beside_the_two_before_it():
    net, x = encoder(), torch.randn(2, 5, 2, dtype=torch.float64)
    got, state = net(x, torch.arange(5).expand(2, -1))
    assert state is None
    beside = [x[:, 0], x[:, 0], *x.unbind(1)]
    for t in range(5):
        torch.testing.assert_close(got[:, t], net.layers(torch.cat(beside[t : t + 3], dim=-1)))


def test_step_by_step_equals_the_whole_and_rows_are_reset_on_their_own():
    net, x = encoder(), torch.randn(2, 7, 2, dtype=torch.float64)
    step = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 0, 1, 2, 3]])
    state, outputs = net.init_state(2, device="cpu", dtype=torch.float64), []
    for t in range(7):
        state = net.reset_rows(state, step[:, t] == 0)
        out, state = net(x[:, t : t + 1], step[:, t : t + 1], state)
        outputs.append(out)
    stepped = torch.cat(outputs, dim=1)
    whole, _ = net(x, step)
    torch.testing.assert_close(stepped[0], whole[0])
    for part in (slice(0, 3), slice(3, 7)):
        torch.testing.assert_close(stepped[1, part], net(x[1:, part], step[1:, part])[0][0])
