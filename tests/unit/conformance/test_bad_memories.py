"""Memories that break their contract are caught, and told in words."""

import re

import pytest
import torch
from torch import nn

from seqrl.conformance import ConformanceError
from seqrl.conformance.memories import CHECKS, MemoryCase
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders import SequenceEncoder


class Mean(SequenceEncoder):
    """A linear layer, and the mean of all that it gave so far; options break it."""

    def __init__(self, d_input, window_steps, *, fault="none"):
        super().__init__(d_input, window_steps)
        self.d_output = 16
        self.fault = fault
        self.layer = nn.Linear(d_input, 16)

    def forward(self, x, step, state=None):
        y = self.layer(x)
        count = step.unsqueeze(-1) + 1
        if self.fault == "is_shifted":
            y = y.roll(-1, dims=1) if state is None else y
        if self.fault == "mixes_rows":
            y = y + y.mean(0)
        if self.fault == "jumps":
            y = y + (x.amax((1, 2), keepdim=True) > 4.0).float()
        if state is None:
            total = y.sum(1, keepdim=True).expand_as(y) if self.fault == "looks_ahead" else y.cumsum(1)
            return total / count, state
        total = state["total"].transpose(0, 1) + y if self.fault == "rows_second" else state["total"] + y
        if self.fault == "forgets_to_divide":
            return total, {"total": total}
        if self.fault == "has_rows_second_later":
            return total / count, {"total": total.transpose(0, 1)}
        return total / count, {"total": total}

    def init_state(self, num_rows, *, device, dtype=torch.float32):
        shape = (1, num_rows, 16) if self.fault == "rows_second" else (num_rows, 1, 16)
        return {"total": torch.zeros(shape, device=device, dtype=dtype)}

    def reset_rows(self, state, rows):
        if self.fault == "resets_all":
            return super().reset_rows(state, torch.full_like(rows, bool(rows.any())))
        if self.fault == "resets_by_product":  # NaN * 0 is NaN
            return {"total": state["total"] * ~rows.view(-1, 1, 1)}
        return super().reset_rows(state, rows)


class NoMemory(Mean):
    """Keeps a state without using it."""

    def forward(self, x, step, state=None):
        return self.layer(x), state


@pytest.fixture(autouse=True)
def _registered(registries_as_before):
    SEQUENCE_ENCODERS.register("test_mean")(Mean)
    SEQUENCE_ENCODERS.register("test_no_memory")(NoMemory)


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"stepping_in_bfloat16", "rows_reset_alone_in_bfloat16"}))
def test_a_sound_one_passes(check):
    case = MemoryCase("test_mean")
    assert CHECKS[check].fits(case) is (check != "goes_on_from_a_state")
    if CHECKS[check].fits(case):
        CHECKS[check](case)


@pytest.mark.parametrize(
    ("fault", "check", "message"),
    [
        ("looks_ahead", "causality", "looks ahead: output 0 changes when input 1 changes"),
        ("is_shifted", "causality", "looks ahead: output 0 changes when input 1 changes"),
        ("jumps", "causality", "looks ahead: output 0 changes when inputs from 4 on change"),
        (
            "rows_second",
            "keeps_rows_first",
            "init_state(num_rows=3)['total'] has shape (1, 3, 16): rows must come first",
        ),
        ("rows_second", "stepping", "init_state(num_rows=3)['total'] has shape (1, 3, 16): rows must come first"),
        (
            "has_rows_second_later",
            "keeps_rows_first",
            "the state of 3 rows after a step, ['total'] has shape (1, 3, 16): rows must come first",
        ),
        ("forgets_to_divide", "stepping", "stepping differs from the whole pass, from step 1 on (by up to "),
        ("mixes_rows", "rows_do_not_mix", "mixes rows: row 0 changes when row 1 does"),
        ("resets_all", "rows_reset_alone", "after reset_rows of row 0 alone, at step 5, its output differs"),
        (
            "resets_by_product",
            "reset_forgets_what_was_not_finite",
            "remembers NaN over a reset: its output 0 steps after",
        ),
    ],
)
def test_a_fault_is_told(fault, check, message):
    with pytest.raises(ConformanceError, match=re.escape(message)):
        CHECKS[check](MemoryCase("test_mean", {"fault": fault}))


def test_one_that_does_not_remember():
    with pytest.raises(ConformanceError, match="does not remember: output 7 changes with none"):
        CHECKS["remembers"](MemoryCase("test_no_memory"))


def test_one_that_goes_on_from_a_state_by_single_steps_only():
    class Recurrent(Mean):
        """Says that windows may begin with its state."""

        is_recurrent = True

    SEQUENCE_ENCODERS.register("test_recurrent")(Recurrent)
    with pytest.raises(ConformanceError, match=re.escape("going on from a state (is_recurrent) ")):
        CHECKS["goes_on_from_a_state"](MemoryCase("test_recurrent"))


def test_one_that_reaches_less_far_than_the_window_is_sound():
    class Last(Mean):
        """The mean of the last two inputs."""

        def forward(self, x, step, state=None):
            before = state["total"] if state is not None else x.new_zeros(len(x), 1, 16)
            y = self.layer(x)
            rows = torch.cat([before, y], dim=1)
            return (rows[:, 1:] + rows[:, :-1]) / 2, {"total": rows[:, -1:]} if state is not None else None

    SEQUENCE_ENCODERS.register("test_last")(Last)
    for name in ("remembers", "causality", "stepping"):
        CHECKS[name](MemoryCase("test_last"))


def test_a_check_leaves_no_trace_in_the_generators():
    before = torch.get_rng_state()
    for check in CHECKS.values():
        if check.cheap:
            check(MemoryCase("gru"))
    assert torch.equal(torch.get_rng_state(), before)
