"""What a check is, and how it says what is wrong."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqrl.core.errors import PluginError
from seqrl.core.generators import generator_states, set_generator_states

Case = TypeVar("Case")


class ConformanceError(PluginError):
    """A component breaks its contract: what was given, and what is expected."""


def _always(case: Any) -> bool:
    return True


@dataclass(frozen=True)
class Check(Generic[Case]):
    """One thing that a component must keep.

    Attributes:
        title: What can be said of a component that keeps it, after its name ("is causal").
        run: Raises a ConformanceError for a case that breaks it.
        cheap: Whether it takes a few milliseconds only, so that runs can afford it at their start.
        fits: Whether it has something to say on a case.
    """

    title: str
    run: Callable[[Case], None]
    cheap: bool = False
    fits: Callable[[Case], bool] = _always

    def __call__(self, case: Case) -> None:
        """Run it, and leave no trace in the generators of this process.

        Raises:
            ConformanceError: If the case breaks it.
        """
        with seeded(0):
            self.run(case)


def named(*checks: Check[Case]) -> dict[str, Check[Case]]:
    """Return the checks by the names of their functions."""
    return {check.run.__name__: check for check in checks}


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of Python, NumPy and torch (CPU), and restore them afterwards."""
    cpu = torch.device("cpu")
    before = generator_states(cpu)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (a plug-in may draw from it)
    torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which seeds GPUs too
    try:
        yield
    finally:
        set_generator_states(before, cpu)


def expect(holds: bool | Tensor, problem: str) -> None:
    """Raise a ConformanceError with this text if something does not hold."""
    if not bool(holds):
        raise ConformanceError(problem)


def expect_kinds(name: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Expect an attribute to name known kinds of actions only."""
    unknown = sorted(set(given) - set(known))
    expect(not unknown, f"{name}: {', '.join(map(repr, unknown))} is no kind of actions; they are {', '.join(known)}")


def expect_close(given: Tensor, expected: Tensor, problem: str, *, atol: float, rtol: float = 0.0) -> None:
    """Expect two tensors to agree up to rounding; numbers that are not finite never agree."""
    if given.shape != expected.shape:
        raise ConformanceError(f"{problem}: shape {tuple(given.shape)}, expected {tuple(expected.shape)}")
    given, expected = given.detach().double(), expected.detach().double()
    difference = (given - expected).abs()
    is_near = difference <= atol + rtol * expected.abs()
    expect(is_near.all(), f"{problem} (by up to {float(difference.max()) if difference.numel() else 0.0:.3g})")


def difference(before: Any, after: Any, path: str = "") -> str:
    """Return where nested values differ first, as ``path: a becomes b``; "" if nowhere. A tuple is equal to a list."""
    pairs: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(before, Mapping) and isinstance(after, Mapping) and before.keys() == after.keys():
        pairs = ((key, value, after[key]) for key, value in before.items())
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        pairs = zip(range(len(before)), before, after, strict=True)
    elif before != after:
        return f"{path}: {before!r} becomes {after!r}"
    return next(filter(None, (difference(a, b, f"{path}.{key}".lstrip(".")) for key, a, b in pairs)), "")


def located(error: BaseException, path: str) -> str:
    """Return an error with its type and with the place in the plug-in where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve() == Path(path).resolve()]
    frame = (own or list(frames))[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
