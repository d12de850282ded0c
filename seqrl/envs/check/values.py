"""What is wrong with a single value that an environment returned, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import spaces

from seqrl.core.nested_spaces import joined
from seqrl.core.spaces import MASK_KEY, OBS_KEY, ActionCodec

LARGE = 1e4
SLACK = 1e-5
"""Relative rounding that bounds forgive, since spaces keep them in float32."""

Level = Literal["problem", "note"]


class Fault(NamedTuple):
    """Something wrong with a value.

    Attributes:
        key: Names the fault and where it sits, so that it is told once and not at each step.
        text: What was given, what is expected, and how to mend it; continues "At step 3, ".
        level: Whether it has to be mended.
    """

    key: str
    text: str
    level: Level = "problem"


def as_array(value: Any) -> np.ndarray:
    """Return a value as an array; one of objects where that is impossible."""
    try:
        return np.asarray(value)
    except Exception:
        return np.empty((), object)


def leaves(space: spaces.Space[Any], obs: Any, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield the entries of an observation with their names; what is missing is left out."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, sub, value in _children(space, obs):
            yield from leaves(sub, value, joined(name, key))
    else:
        yield name or OBS_KEY, as_array(obs)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays are equal, floats but for rounding; nan equals nan, and objects are not compared."""
    if a.dtype.kind == "O" or b.dtype.kind == "O":
        return True
    if a.dtype.kind in "fc" and b.dtype.kind in "fc":
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)
    return np.array_equal(a, b)


def answer_fault(method: str, answer: Any) -> Fault | None:
    """Return what is wrong with the form of what ``reset`` or ``step`` returned; nothing can go on after that."""
    given = f"{len(answer)} values" if isinstance(answer, tuple) else f"one {type(answer).__name__}"
    if method == "reset":
        if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping):
            return None
        if isinstance(answer, tuple) and len(answer) == 2:
            given = f"2 values of which the second is a {type(answer[1]).__name__}"
        return Fault(
            "answer",
            f"reset returned {given}, but has to return (obs, info), with info a dict. Write `return obs, {{}}`.",
        )
    if isinstance(answer, tuple) and len(answer) == 5:
        return None
    old = isinstance(answer, tuple) and len(answer) == 4
    return Fault(
        "answer",
        f"step returned {given}{' as in the old gym interface' if old else ''}, but has to return 5: "
        "(obs, reward, terminated, truncated, info). "
        + ("Split `done`: " if old else "Return all five: ")
        + "terminated is an end by the task's own rules, truncated an end by a time limit.",
    )


def obs_faults(space: spaces.Space[Any], obs: Any, name: str = "") -> Iterator[Fault]:
    """Yield what is wrong with an observation."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        yield from _container_faults(space, obs, name)
        for key, sub, value in _children(space, obs):
            yield from obs_faults(sub, value, joined(name, key))
    else:
        yield from _leaf_faults(space, obs, name or OBS_KEY)


def reward_fault(reward: Any) -> Fault | None:
    """Return what is wrong with a reward."""
    array = as_array(reward)
    if array.ndim or array.dtype.kind not in "biuf":
        what = f"a {type(reward).__name__}" + (f" of shape {array.shape}" if array.ndim else "")
        return Fault("reward", f"the reward is {what}, but has to be one number. Return `float(reward)`.")
    if not np.isfinite(array):
        return Fault(
            "reward finite",
            f"the reward is {float(array)}, but has to be finite. "
            "Look for a division by zero, a logarithm of zero or an overflow.",
        )
    return None


def end_faults(terminated: Any, truncated: Any) -> Iterator[Fault]:
    """Yield what is wrong with the two flags that end an episode."""
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        array = as_array(value)
        if array.ndim or array.dtype != bool:
            yield Fault(
                name,
                f"{name} is {short(value)} of type {type(value).__name__}, but has to be a bool. "
                f"Return `bool({name})`.",
            )


def mask_fault(codec: ActionCodec, mask: Any) -> Fault | None:
    """Return what is wrong with an action mask."""
    try:
        legal = codec.legal(mask)
    except Exception as error:
        return Fault("mask size", f"the mask is wrong: {error}. Give one flag per action.")
    if codec.stuck(legal):
        return Fault(
            "mask stuck",
            f"the {MASK_KEY} leaves no legal action: {short(legal.astype(int).tolist())}, but "
            "some action has to be legal until the episode ends. Allow one, or end the "
            "episode there.",
        )
    return None


def _container_faults(space: spaces.Dict | spaces.Tuple, obs: Any, name: str) -> Iterator[Fault]:
    label = f"observation {name!r}" if name else "the observation"
    if isinstance(space, spaces.Tuple):
        if not isinstance(obs, tuple | list) or len(obs) != len(space.spaces):
            given = f"{len(obs)} entries" if isinstance(obs, tuple | list) else f"a {type(obs).__name__}"
            yield Fault(
                f"keys {name}",
                f"{label} is {given}, but its space is a Tuple of {len(space.spaces)}. Return a tuple of that length.",
            )
    elif not isinstance(obs, Mapping):
        yield Fault(
            f"keys {name}",
            f"{label} is a {type(obs).__name__}, but its space is a Dict. "
            f"Return a dict with the keys {list(space.spaces)}.",
        )
    else:
        for key in [k for k in space.spaces if k not in obs]:
            yield Fault(
                f"key {name} {key}",
                f"{label} has no entry {key!r}, but observation_space has; "
                f"there are {list(obs)}. Return it, or take it out of the space.",
            )
        for key in [k for k in obs if k not in space.spaces]:
            yield Fault(
                f"extra key {name} {key}",
                f"{label} has an entry {key!r} that is not in observation_space. "
                "It is ignored; add it to the space if it is meant.",
                "note",
            )


def _leaf_faults(space: spaces.Space[Any], value: Any, name: str) -> Iterator[Fault]:
    array, dtype = as_array(value), np.dtype(space.dtype)
    label, given = f"observation {name!r}", isinstance(value, np.ndarray | np.generic)
    if array.dtype.kind not in "biuf":
        what = f"dtype {array.dtype}" if given else f"type {type(value).__name__}"
        yield Fault(
            f"dtype {name}",
            f"{label} has {what}, but its space needs numbers of dtype {dtype}. Return an array of {dtype}.",
        )
    elif array.shape != space.shape:
        yield Fault(
            f"shape {name}",
            f"{label} has shape {array.shape}, but its space has shape {space.shape}. "
            "Return that shape, or correct observation_space.",
        )
    elif not np.can_cast(array.dtype, dtype, "same_kind"):
        yield Fault(
            f"dtype {name}",
            f"{label} has dtype {array.dtype}, but its space has {dtype}, which cannot hold "
            f"all of it. Return `.astype(np.{dtype})`, or correct the space's dtype.",
        )
    else:
        if given and isinstance(space, spaces.Box) and not np.can_cast(array.dtype, dtype):
            yield Fault(
                f"cast {name}",
                f"{label} has dtype {array.dtype}, but its space has {dtype}. It is cast each "
                f"time; return `.astype(np.{dtype})` to say what is meant.",
                "note",
            )
        yield from _number_faults(space, array, name)


def _number_faults(space: spaces.Space[Any], array: np.ndarray, name: str) -> Iterator[Fault]:
    values = array.astype(np.float64)
    if (bad := ~np.isfinite(values)).any():
        where = _first(bad)
        yield Fault(
            f"finite {name}",
            f"observation {name!r}{_index(where)} is {values[where]}, but has to be finite. "
            "Look for a division by zero, a missing measurement or an overflow.",
        )
        return
    low, high = (np.broadcast_to(np.asarray(x, np.float64), values.shape) for x in _limits(space))
    slack = SLACK if array.dtype.kind == "f" else 0.0
    bad = (values < low - slack * np.maximum(1, np.abs(low))) | (values > high + slack * np.maximum(1, np.abs(high)))
    if bad.any():
        where = _first(bad)
        yield Fault(
            f"bounds {name}",
            f"observation {name!r}{_index(where)} is {values[where]:.6g}, but its space "
            f"allows {low[where]:.6g} to {high[where]:.6g}. Clip it, or widen "
            "the bounds of observation_space.",
        )
    if isinstance(space, spaces.Box) and (large := np.abs(values) > LARGE).any():
        where = _first(large)
        yield Fault(
            f"large {name}",
            f"observation {name!r}{_index(where)} is {values[where]:.6g}, which is a large "
            "scale for a network. Divide it by its usual size, or keep the encoder's "
            "normalize_inputs on.",
            "note",
        )


def _limits(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    sizes = space.n if isinstance(space, spaces.Discrete) else space.nvec
    return space.start, space.start + sizes - 1


def _children(space: spaces.Dict | spaces.Tuple, obs: Any) -> list[tuple[Any, spaces.Space[Any], Any]]:
    """Return key, space and value of those entries that are there."""
    if isinstance(space, spaces.Dict):
        return [(k, sub, obs[k]) for k, sub in space.spaces.items() if isinstance(obs, Mapping) and k in obs]
    if not isinstance(obs, tuple | list):
        return []
    return [(i, *pair) for i, pair in enumerate(zip(space.spaces, obs, strict=False))]


def _first(flags: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(flags)), flags.shape)) if flags.ndim else ()


def _index(where: tuple[int, ...]) -> str:
    return str(list(where)) if where else ""


def short(value: Any) -> str:
    """Return a value as text that fits into a sentence."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
