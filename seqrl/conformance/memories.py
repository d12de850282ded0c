"""What every memory (sequence encoder) must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import seqrl.models  # noqa: F401  (registers)
from seqrl.conformance.cases import SMALL_MEMORY
from seqrl.conformance.check import Check, ConformanceError, expect, expect_close, named, seeded
from seqrl.models.sequence_encoders import SequenceEncoder, State, make_sequence_encoder

D = 6


@dataclass(frozen=True)
class MemoryCase:
    """A memory to check.

    Attributes:
        name: Registered name.
        options: Of the encoder, over those that make a built-in one tiny.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self, window: int = 8) -> SequenceEncoder:
        """Return the encoder in evaluation, its weights away from special initial values, such as scales of one."""
        with seeded(0), torch.no_grad():
            options = {**SMALL_MEMORY.get(self.name, {}), **self.options}
            encoder = make_sequence_encoder(self.name, D, window, options)
            expect(isinstance(encoder, SequenceEncoder), "is no subclass of SequenceEncoder")
            expect(isinstance(getattr(encoder, "d_output", None), int), "does not set d_output, an int, in __init__")
            for parameter in encoder.parameters():
                fan_in = parameter.shape[-1] if parameter.dim() > 1 else 1
                parameter.add_(torch.randn_like(parameter), alpha=0.1 * min(1.0, 4.0 / fan_in**0.5))
        return encoder.eval()


def keeps_rows_first(case: MemoryCase) -> None:
    """Every tensor of a state has one row per environment, and rows are its first dimension."""
    encoder = case.build()
    for num_rows in (3, 7):
        state = _empty(encoder, num_rows)
        with torch.no_grad():
            _step(encoder, _inputs(num_rows, 1), torch.zeros(num_rows, 1, dtype=torch.int64), state)


def causality(case: MemoryCase) -> None:
    """An output depends on its own input, and on none that follows it."""
    encoder, length = case.build(), 20
    x = _inputs(2, length).requires_grad_()
    y = _pass(encoder, x)
    expect(y.requires_grad, "no gradient flows from its outputs to its inputs, so that nothing before it learns")
    for t in (0, 3, 7, 12):
        (gradient,) = torch.autograd.grad(y[:, t].square().sum(), x, retain_graph=True)
        seen = (gradient.abs().amax((0, 2)) > 0).nonzero().flatten().tolist()
        later = [j for j in seen if j > t]
        expect(not later, f"looks ahead: output {t} changes when input {later[0] if later else 0} changes")
        expect(t in seen, f"does not read its input: output {t} does not change when input {t} changes")
    with torch.no_grad():  # what gradients do not see, such as a comparison
        for j in (4, 13):
            other = x.detach().clone()
            other[:, j:] = 3.0 * _inputs(2, length, seed=2)[:, j:]
            moved = (_pass(encoder, other) - y)[:, :j].abs().amax((0, 2)) > 1e-4 * _scale(y)
            first = int(moved.int().argmax())
            expect(not moved.any(), f"looks ahead: output {first} changes when inputs from {j} on change")


def stepping(case: MemoryCase) -> None:
    """One input at a time gives what the whole sequence gives: over four windows, so after a bounded one has filled."""
    encoder = case.build()
    x = _inputs(3, 32)
    with torch.no_grad():
        whole = _pass(encoder, x)
        _expect_equal(_stepped(encoder, x), whole, "stepping")


def goes_on_from_a_state(case: MemoryCase) -> None:
    """From a state, many inputs are read as in the whole, whatever their steps are; and learned from."""
    encoder, x, clock = case.build(), _inputs(3, 20), _clock(3, 20)
    state = _empty(encoder, 3)
    with torch.no_grad():
        for t in range(12):
            _, state = _step(encoder, x[:, t : t + 1], clock[:, t : t + 1], state)
        given = {k: v.clone() for k, v in state.items()}
        whole, what = _pass(encoder, x), "going on from a state (is_recurrent)"
        rest, after = _step(encoder, x[:, 12:19], clock[:, 12:19] + 100, given)
        _expect_equal(rest, whole[:, 12:19], what)
        _expect_equal(_step(encoder, x[:, 19:], clock[:, 19:] + 100, after)[0], whole[:, 19:], f"{what}, once more,")
    encoder.train()
    rest, _ = encoder(x[:, 12:].requires_grad_(), clock[:, 12:], encoder.with_empty_rows(state, torch.arange(3) == 1))
    expect(rest.requires_grad, "no gradient flows from outputs after a given state to their inputs")
    rest.square().sum().backward()
    still = [name for name, p in encoder.named_parameters() if p.requires_grad and p.grad is None]
    expect(not still, f"from a given state, {', '.join(still)} gets no gradient")


def stepping_in_bfloat16(case: MemoryCase) -> None:
    """The same in bfloat16, as near as the whole pass in bfloat16 is to that in float32."""
    encoder = case.build().bfloat16()
    x = _inputs(2, 32).bfloat16()
    with torch.no_grad():
        whole = _pass(encoder, x)
        stepped = _stepped(encoder, x)
        exact = _pass(case.build(), x.float())
    expect(stepped.dtype == torch.bfloat16, f"in bfloat16 a step gives {stepped.dtype}, expected torch.bfloat16")
    tolerance = float(3 * (whole.float() - exact).abs().max().clamp(min=0.02 * _scale(exact)))
    expect_close(stepped.float(), exact, "in bfloat16 stepping differs from the whole pass", atol=tolerance)


def rows_reset_alone(case: MemoryCase) -> None:
    """Each row begins anew when it likes; its outputs are those of its episodes alone."""
    _check_resets(case, torch.float32)


def rows_reset_alone_in_bfloat16(case: MemoryCase) -> None:
    """The same in bfloat16."""
    _check_resets(case, torch.bfloat16)


def reset_forgets_what_was_not_finite(case: MemoryCase) -> None:
    """After a reset nothing is left, not even of inputs that were NaN."""
    encoder = case.build(window=4)
    x, clock = _inputs(2, 12), _clock(2, 12)
    state = _empty(encoder, 2)
    with torch.no_grad():
        for t in range(3):
            _, state = _step(encoder, torch.full((2, 1, D), torch.nan), clock[:, t : t + 1], state)
        state = encoder.reset_rows(state, torch.tensor([True, False]))
        whole = _pass(encoder, x[:1])
        for t in range(12):
            y, state = _step(encoder, x[:, t : t + 1], clock[:, t : t + 1], state)
            problem = f"remembers NaN over a reset: its output {t} steps after reset_rows differs from a new episode's"
            expect_close(y[:1], whole[:, t : t + 1], problem, atol=2e-5 * _scale(whole), rtol=1e-4)


def rows_do_not_mix(case: MemoryCase) -> None:
    """A row's outputs do not depend on the other rows."""
    encoder = case.build()
    x = _inputs(2, 12)
    other = x.clone()
    other[1] = 7.0
    with torch.no_grad():
        one, two = _pass(encoder, x)[0], _pass(encoder, other)[0]
    expect_close(two, one, "mixes rows: row 0 changes when row 1 does", atol=1e-5 * _scale(one), rtol=1e-5)


def remembers(case: MemoryCase) -> None:
    """The last output within the window depends on an earlier input."""
    encoder = case.build()
    x = _inputs(2, 8).requires_grad_()
    (gradient,) = torch.autograd.grad(_pass(encoder, x)[:, -1].square().sum(), x)
    expect(
        gradient[:, :-1].abs().max() > 0,
        "does not remember: output 7 changes with none of the inputs 0 to 6 (an encoder that is not meant to remember "
        "has an empty state)",
    )


def _has_state(case: MemoryCase) -> bool:
    return bool(case.build().init_state(1, device="cpu"))


def _is_recurrent(case: MemoryCase) -> bool:
    return case.build().is_recurrent


CHECKS: dict[str, Check[MemoryCase]] = named(
    Check("keeps a row of state per environment", keeps_rows_first, cheap=True),
    Check("is causal", causality, cheap=True),
    Check("gives step by step what the whole pass gives", stepping, cheap=True),
    Check("goes on from a state", goes_on_from_a_state, cheap=True, fits=_is_recurrent),
    Check("gives step by step in bfloat16 what the whole pass gives", stepping_in_bfloat16),
    Check("resets rows on their own", rows_reset_alone, cheap=True),
    Check("resets rows on their own in bfloat16", rows_reset_alone_in_bfloat16),
    Check("forgets what was not finite", reset_forgets_what_was_not_finite),
    Check("does not mix rows", rows_do_not_mix, cheap=True),
    Check("remembers within its window", remembers, fits=_has_state),
)


# ------------------------------------------------------------------------------------------------- parts
def _inputs(num: int, length: int, seed: int = 1) -> Tensor:
    return torch.randn(num, length, D, generator=torch.Generator().manual_seed(seed))


def _clock(num: int, length: int) -> Tensor:
    return torch.arange(length).expand(num, -1)


def _scale(y: Tensor) -> float:
    """Return the size of outputs, at least 1: rounding errors grow with it."""
    return max(1.0, float(y.detach().abs().max()))


def _expect_equal(given: Tensor, whole: Tensor, what: str) -> None:
    """Expect what acting gives to be what training gives, and say from which step on it is not."""
    atol = 2e-5 * _scale(whole)
    wrong = ((given - whole).abs() > atol + 1e-4 * whole.abs()) | ~torch.isfinite(given)
    at = wrong.any(-1).any(0).nonzero().flatten().tolist() if given.shape == whole.shape else []
    since = f", from step {at[0]} on" if at else ""
    expect_close(given, whole, f"{what} differs from the whole pass{since}", atol=atol, rtol=1e-4)


def _pass(encoder: SequenceEncoder, x: Tensor) -> Tensor:
    """Return the outputs of whole sequences, of the shape that the encoder says."""
    y: Tensor
    y, state = _called(encoder, x, _clock(*x.shape[:2]))
    expected = (*x.shape[:2], encoder.d_output)
    expect(y.shape == expected, f"gives outputs of shape {tuple(y.shape)}, expected {expected} (d_output)")
    expect(state is None, "gives a state where it was given none: without one it reads whole sequences")
    return y


def _called(encoder: SequenceEncoder, *given: Any) -> tuple[Tensor, State | None]:
    found: tuple[Tensor, State | None] = encoder(*given)
    is_pair = isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Tensor)
    expect(is_pair, f"forward has to return (outputs, state), it returned {type(found).__name__}")
    return found


def _empty(encoder: SequenceEncoder, num_rows: int, dtype: torch.dtype = torch.float32) -> State:
    """Return the state of an empty memory, once its rows are seen to be first."""
    state = encoder.init_state(num_rows, device="cpu", dtype=dtype)
    _expect_rows(state, num_rows, f"init_state(num_rows={num_rows})")
    return state


def _step(encoder: SequenceEncoder, x: Tensor, step: Tensor, state: State) -> tuple[Tensor, State]:
    y, after = _called(encoder, x, step, state)
    if after is None:
        raise ConformanceError("gives no next state where it was given one")
    _expect_rows(after, len(x), f"the state of {len(x)} rows after a step, ")
    return y.clone(), after  # it may be part of the state, which the next call may overwrite


def _expect_rows(state: State, num_rows: int, what: str) -> None:
    expect(isinstance(state, dict), f"{what.rstrip(', ')} is a {type(state).__name__}, expected a dict of tensors")
    for name, tensor in state.items():
        shape = tuple(tensor.shape)
        expect(shape[:1] == (num_rows,), f"{what}[{name!r}] has shape {shape}: rows must come first")


def _stepped(encoder: SequenceEncoder, x: Tensor) -> Tensor:
    state = _empty(encoder, len(x), x.dtype)
    clock, outputs = _clock(*x.shape[:2]), []
    for t in range(x.shape[1]):
        y, state = _step(encoder, x[:, t : t + 1], clock[:, t : t + 1], state)
        outputs.append(y)
    return torch.cat(outputs, dim=1)


def _check_resets(case: MemoryCase, dtype: torch.dtype) -> None:
    encoder = case.build().to(dtype)
    length, begins = 40, [[0, 5, 30], [0, 17], [0]]
    x = _inputs(3, length).to(dtype)
    state = _empty(encoder, 3, dtype)
    clock = torch.zeros(3, dtype=torch.int64)
    outputs = []
    with torch.no_grad():
        for t in range(length):
            begin = torch.tensor([t in row for row in begins])
            state = encoder.reset_rows(state, begin)
            _expect_rows(state, 3, "the state of 3 rows after reset_rows, ")
            clock = torch.where(begin, 0, clock)
            y, state = _step(encoder, x[:, t : t + 1], clock[:, None], state)
            outputs.append(y)
            clock = clock + 1
        stepped = torch.cat(outputs, dim=1)
        for row, starts in enumerate(begins):
            for start, end in zip(starts, [*starts[1:], length], strict=True):
                alone = _pass(encoder, x[row : row + 1, start:end])
                what = f"after reset_rows of row {row} alone, at step {start}, its output"
                if dtype == torch.float32:
                    _expect_equal(stepped[row : row + 1, start:end], alone, what)
                else:
                    limit = 0.1 * _scale(alone)
                    given = stepped[row : row + 1, start:end]
                    expect_close(
                        given, alone, f"in bfloat16, {what} differs from a new episode's", atol=limit, rtol=0.1
                    )
