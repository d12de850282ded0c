"""Environments given as a class or function instead of an id."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from types import FunctionType
from typing import Any

import gymnasium as gym

from seqrl.core.errors import ConfigError

_MADE: dict[str, tuple[Any, list[Any]]] = {}
"""Id that :func:`id_of_maker` gave -> the function that it registered, and what told it apart then."""


def id_of_maker(make: Callable[..., gym.Env[Any, Any]]) -> str:
    """Return an id under which gymnasium makes the environment, in this process: the same for the same function.

    A lambda in a loop over seeds is a new object in each turn, and still makes the same task.

    Raises:
        ConfigError: If it cannot be called.
    """
    if not callable(make):
        raise ConfigError(f"env is {make!r}: give a gymnasium id, or a class or function that makes an environment")
    given = _given(make)
    inner = make.func if isinstance(make, partial) else make
    name = getattr(inner, "__name__", type(inner).__name__)
    name = name if name.isidentifier() else "Environment"
    for number in count(1):
        env_id = f"{name}-v0" if number == 1 else f"{name}_{number}-v0"
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=make)
            _MADE[env_id] = make, given
            return env_id
        entry_point = gym.registry[env_id].entry_point
        registered, former = _MADE.get(env_id, (None, []))
        if registered is not entry_point:
            former = _given(entry_point)
        if len(former) == len(given) and all(a is b for a, b in zip(former, given, strict=True)):
            return env_id
    raise AssertionError


def _given(make: Any) -> list[Any]:
    """Return what tells makers apart: a function's code and all values that it knows, or else the object."""
    if isinstance(make, partial):
        return [*_given(make.func), *make.args, *(part for pair in sorted(make.keywords.items()) for part in pair)]
    if not isinstance(make, FunctionType):
        return [make]
    known = [make.__globals__.get(name) for name in make.__code__.co_names]
    cells = [cell.cell_contents for cell in make.__closure__ or ()]
    return [make.__code__, *(make.__defaults__ or ()), *(make.__kwdefaults__ or {}).values(), *known, *cells]
