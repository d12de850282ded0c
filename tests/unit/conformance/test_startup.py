"""Before a run: memories of plug-ins that look ahead are refused, quickly and without a trace."""

import enum
import logging
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seqrl.configs.section import Component
from seqrl.conformance import startup
from seqrl.conformance.cases import small_config
from seqrl.conformance.startup import check_run
from seqrl.core.errors import ConfigError
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.models.sequence_encoders import SequenceEncoder


class Sum(SequenceEncoder):
    """Sums up; an option makes it look ahead, or raise."""

    def __init__(self, d_input: int, window_steps: int, *, fault: str = "none", d_model: int = 128) -> None:
        super().__init__(d_input, window_steps)
        if fault != "no_width":
            self.d_output = d_model
        self.fault = fault
        self.layer = nn.Linear(d_input, d_model)

    def forward(self, x, step, state=None):
        random.random(), np.random.rand(), torch.rand(1)  # draws of its own  # noqa: NPY002
        if self.fault == "raises":
            raise RuntimeError("needs a GPU")
        if self.fault == "mistake":
            return self.layer(x).no_such_method()
        y = self.layer(x)
        if self.fault == "no_pair":
            return y
        if state is None:
            return (y.sum(1, keepdim=True).expand_as(y) if self.fault == "looks_ahead" else y.cumsum(1)), None
        total = state["total"] + y
        return total, {"total": total}

    def init_state(self, num_rows, *, device, dtype=torch.float32):
        return {"total": torch.zeros(num_rows, 1, self.d_output, device=device, dtype=dtype)}


@pytest.fixture(autouse=True)
def _registered(registries_as_before):
    SEQUENCE_ENCODERS.register("test_startup")(Sum)


def config(fault="none", memory="test_startup"):
    section = {"type": memory} if memory != "test_startup" else {"type": memory, "fault": fault}
    return small_config("bc", sequence_encoder=section)


def generators():
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002


def test_a_memory_that_looks_ahead_is_refused():
    match = "algo.sequence_encoder.type: memory 'test_startup': looks ahead: output 0 changes when input 1 changes"
    with pytest.raises(ConfigError, match=match):
        check_run(config("looks_ahead"))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no_pair", r"forward has to return \(outputs, state\), it returned Tensor"),
        ("no_width", "does not set d_output, an int, in __init__"),
    ],
)
def test_a_memory_of_another_form_is_refused(fault, message):
    with pytest.raises(ConfigError, match=f"memory 'test_startup': {message}"):
        check_run(config(fault))


def test_a_memory_of_another_class_is_refused():
    SEQUENCE_ENCODERS.register("test_other")(
        type("Other", (nn.Module,), {"__init__": lambda self, d, w: nn.Module.__init__(self)})
    )
    with pytest.raises(ConfigError, match="is no subclass of SequenceEncoder"):
        check_run(config(memory="test_other"))


def test_a_sound_memory_passes_in_a_moment_and_leaves_no_trace(caplog):
    check_run(config())  # what is slow once, is slow here
    before, begin = generators(), time.process_time()
    check_run(config())
    assert time.process_time() - begin < 3.0
    assert generators() == before
    assert not caplog.records


def test_one_that_cannot_be_checked_here_is_let_through_with_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("seqrl"), "propagate", True)
    check_run(config("raises"))
    assert "memory 'test_startup' could not be checked before the run: RuntimeError: needs a GPU" in caplog.text


def test_a_mistake_of_its_code_is_told_with_its_place():
    with pytest.raises(ConfigError, match=r"AttributeError: .*no_such_method.* \(test_startup.py:\d+\)"):
        check_run(config("mistake"))


class Place(enum.Enum):
    """No value of JSON."""

    HERE = "here"


ODD = [
    (Place, Place.HERE),
    (Path, Path("a")),
    (type, int),
    (int, None),
    (Any, Place.HERE),
    (Any, math.inf),
    (dict, {1: 2}),
]


@pytest.mark.parametrize(("kind", "value"), ODD)
def test_options_that_cannot_be_saved_are_refused(kind, value):
    class Odd(Sum):
        def __init__(self, d_input: int, window_steps: int, *, odd=value) -> None:
            super().__init__(d_input, window_steps)

    Odd.__init__.__annotations__["odd"] = kind
    SEQUENCE_ENCODERS.register("test_odd")(Odd)
    with pytest.raises(
        ConfigError, match=r"could not be read again from its config\.json: (.|\n)*(odd|<class 'type'>)"
    ):
        check_run(config(memory="test_odd"))


LEGAL = [
    (list[int], (64, 64)),
    (tuple[int, ...], (3, 4)),
    (Sequence[int], [1]),
    (Any, (1, 2)),
    (float, 1),
    (dict, {"a": 1}),
]


@pytest.mark.parametrize(("kind", "value"), LEGAL)
def test_options_that_are_the_same_in_a_run_file_are_not(kind, value):
    class Odd(Sum):
        def __init__(self, d_input: int, window_steps: int, *, odd=value) -> None:
            super().__init__(d_input, window_steps)

    Odd.__init__.__annotations__["odd"] = kind
    SEQUENCE_ENCODERS.register("test_odd")(Odd)
    check_run(config(memory="test_odd"))
    section = Component(SEQUENCE_ENCODERS).section("test_odd")
    assert section().odd == value
    assert type(section().odd) is type(value)


def test_built_in_memories_are_not_checked_again(monkeypatch):
    monkeypatch.setattr(startup, "_check", lambda *_: pytest.fail("checked"))
    for name in ("gru", "transformer"):
        check_run(config(memory=name))
    with pytest.raises(pytest.fail.Exception):
        check_run(config())
