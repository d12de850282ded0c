"""Spaces as JSON, observations as flat dicts of arrays, actions in the one form that policies use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError, EnvError
from seqrl.core.nested_spaces import (
    SUPPORTED,
    children,
    choice_columns,
    flat_actions,
    flat_space,
    joined,
    leaves,
    nested_actions,
    whole_columns,
)
from seqrl.core.rotations import RotationBox
from seqrl.core.text import TEXT_BYTES

OBS_KEY = "obs"
"""Name of the only entry when the observation is not a dict."""

MASK_KEY = "action_mask"
"""Observation entry, or info key, that tells which discrete actions are legal."""

GOAL_PREFIX = "goal/"
"""Of the observation entries that hold the goal of another entry."""

ActionKind = Literal["categorical", "binary", "continuous", "hybrid"]
ACTION_KINDS = ("continuous", "discrete", "multi_discrete", "binary", "hybrid")
"""Kinds of action spaces by which an algorithm says what it takes; see :attr:`ActionCodec.action_kind`."""

MOST_INFERRED = 2**20
"""Discrete actions that numbers alone may imply; more are damage, or no indices."""


# ------------------------------------------------------------------------------------------------ JSON
def space_to_json(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as a JSON object that :func:`space_from_json` turns back into an equal space.

    Raises:
        EnvError: If the space is of a kind that seqrl does not support.
    """
    if isinstance(space, spaces.Box):
        return {
            "type": "Box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": _bounds_to_json(space.low),
            "high": _bounds_to_json(space.high),
        } | ({"rotations": list(space.rotations)} if isinstance(space, RotationBox) else {})
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiDiscrete):
        return {
            "type": "MultiDiscrete",
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": str(space.dtype),
        }
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "spaces": {k: space_to_json(v) for k, v in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(s) for s in space.spaces]}
    raise EnvError(
        f"space {space!r} is not supported; supported are Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
    )


def space_from_json(value: Mapping[str, Any]) -> spaces.Space[Any]:
    """Return the space that :func:`space_to_json` wrote.

    Raises:
        DataError: If the object does not describe a space.
    """
    try:
        return _space_from_json(value)
    except (KeyError, TypeError, ValueError, OverflowError, AssertionError, AttributeError, MemoryError) as error:
        raise DataError(f"not the JSON of a space ({error!r}): {str(value)[:200]}") from error


def _space_from_json(value: Mapping[str, Any]) -> spaces.Space[Any]:
    kind = value["type"]
    if kind == "Box":
        shape, dtype = tuple(value["shape"]), np.dtype(value["dtype"])
        low, high = (_bounds_from_json(value[k], shape, dtype) for k in ("low", "high"))
        if "rotations" in value:
            return RotationBox(low, high, value["rotations"], dtype.type)
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        dtype = np.dtype(value["dtype"])
        options = {} if dtype == np.int64 else {"dtype": dtype.type}  # an option that older gymnasium does not know
        return spaces.Discrete(value["n"], start=value["start"], **options)
    if kind == "MultiDiscrete":
        dtype = np.dtype(value["dtype"])
        return spaces.MultiDiscrete(np.array(value["nvec"]), dtype=dtype.type, start=np.array(value["start"]))
    if kind == "MultiBinary":
        return spaces.MultiBinary(value["n"])
    if kind == "Dict":
        return spaces.Dict({k: _space_from_json(v) for k, v in value["spaces"].items()})
    if kind == "Tuple":
        return spaces.Tuple([_space_from_json(v) for v in value["spaces"]])
    raise ValueError(f"unknown space type {kind!r}")


def _bounds_to_json(bounds: np.ndarray) -> Any:
    """Return one number where all bounds agree, else the flat list; infinities as text."""
    flat = [_number_to_json(x) for x in bounds.ravel().tolist()]
    return flat[0] if flat and all(x == flat[0] for x in flat) else flat


def _number_to_json(x: float) -> float | str:
    return x if math.isfinite(x) else ("inf" if x > 0 else "-inf")


def _bounds_from_json(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    values = value if isinstance(value, list) else [value] * math.prod(shape)
    return np.array([float(x) if isinstance(x, str) else x for x in values], dtype=dtype).reshape(shape)


# -------------------------------------------------------------------------------------- observations
@dataclass(frozen=True)
class ObsSpec:
    """What an encoder needs to know of one observation entry.

    Attributes:
        shape: Shape of one observation, without batch and time.
        dtype: NumPy dtype name, as stored.
        nvec: Sizes of the categories if the entry is categorical (Discrete, MultiDiscrete), else None;
            such entries hold integers from 0 and are read as one-hot.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    nvec: tuple[int, ...] | None = None


def obs_specs(space: spaces.Space[Any]) -> dict[str, ObsSpec]:
    """Return name -> :class:`ObsSpec` of a (possibly nested) observation space, nested names joined by ``/``."""
    specs = {}
    for name, leaf in leaves(space, OBS_KEY):
        if isinstance(leaf, spaces.Discrete):
            specs[name] = ObsSpec((), str(leaf.dtype), (int(leaf.n),))
        elif isinstance(leaf, spaces.MultiDiscrete):
            specs[name] = ObsSpec(leaf.shape, str(leaf.dtype), tuple(int(n) for n in leaf.nvec.ravel()))
        elif isinstance(leaf, spaces.Box | spaces.MultiBinary):
            specs[name] = ObsSpec(leaf.shape, str(leaf.dtype))
        else:
            raise EnvError(f"observation {name!r} has space {leaf!r}; supported are Box, Discrete and Multi*")
    return specs


def flatten_obs(space: spaces.Space[Any], obs: Any) -> dict[str, np.ndarray]:
    """Return an observation (or a batch of them) as name -> array; categories are shifted to start at 0."""
    return dict(_flat_items(space, obs, ""))


def _flat_items(space: spaces.Space[Any], obs: Any, prefix: str) -> list[tuple[str, np.ndarray]]:
    parts = children(space)
    if parts is not None:
        return [item for key, sub in parts for item in _flat_items(sub, obs[key], joined(prefix, key))]
    array = np.asarray(obs)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        array = array - space.start
    dtype = np.dtype(space.dtype)
    fits = np.can_cast(array.dtype, dtype, "same_kind")  # a float is never cut to an integer unseen
    return [(prefix or OBS_KEY, array.astype(dtype, copy=False) if fits else array)]


# ------------------------------------------------------------------------------------------- actions
class ActionCodec:
    """Converts between an environment's actions and the policy's.

    The policy's action is one float32 vector of width ``dim``: a one-hot per factor (Discrete, MultiDiscrete),
    zeros and ones (MultiBinary), or values in [-1, 1] (Box, scaled by its bounds and flattened). Dimensions of a Box
    without bounds keep the environment's units.

    Actions of a Dict or a Tuple are kept as one vector of numbers, part after part (:meth:`flat`, :meth:`nested`). With
    parts of one kind they are actions of that kind; bits beside other choices are factors of two. With choices and
    values the kind is ``hybrid``: values in [-1, 1] come first, then a one-hot per factor.

    Args:
        space: Action space of the environment.

    Attributes:
        kind: ``categorical``, ``binary``, ``continuous`` or ``hybrid``.
        action_kind: One of :data:`ACTION_KINDS`; ``discrete`` and ``multi_discrete`` are both categorical.
        dim: Width of the policy's action.
        shape: Of the environment's actions as arrays; ``(N,)`` for a Dict or a Tuple.
        factors: Sizes of the one-hot blocks; empty unless categorical.
        parts: Codecs of the values and of the choices of a hybrid space; else empty.
        is_bounded: False for a Box that lacks a bound; see :meth:`check_bounded`.

    Raises:
        EnvError: If the space is of another kind, or has a part that is.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.kind: ActionKind
        self.dtype: np.dtype[Any]
        self.factors: tuple[int, ...] = ()
        self.parts: tuple[ActionCodec, ...] = ()
        self.is_bounded = True
        self.is_nested = children(space) is not None
        flat: Any = flat_space(space)
        self.shape: tuple[int, ...] = tuple(flat.shape or ())
        if isinstance(flat, spaces.Discrete):
            self._init_choices((int(flat.n),), np.asarray([flat.start]))
        elif isinstance(flat, spaces.MultiDiscrete):
            self._init_choices(tuple(int(n) for n in flat.nvec.ravel()), flat.start.ravel())
        elif isinstance(flat, spaces.MultiBinary):
            self.kind, self.dtype = "binary", np.dtype(np.int8)
            self._start = np.zeros(math.prod(self.shape), np.int64)
        elif isinstance(flat, spaces.Box):
            self._init_box(flat)
        elif isinstance(flat, spaces.Tuple):
            self._init_parts(*flat.spaces)
        else:
            raise EnvError(f"action space {space!r} is not supported; {SUPPORTED}")
        names = {"categorical": "discrete" if len(self.factors) == 1 else "multi_discrete"}
        self.action_kind = names.get(self.kind, self.kind)
        self.dim = self._width()
        self._sizes = np.asarray(self.factors or 2)
        self._offsets = np.cumsum([0, *self.factors[:-1]]) if self.factors else np.zeros(0, np.int64)

    def _init_choices(self, factors: tuple[int, ...], start: np.ndarray) -> None:
        self.kind, self.dtype = "categorical", np.dtype(np.int64)
        self.factors, self._start = factors, start.astype(np.int64)

    def _init_box(self, space: spaces.Box) -> None:
        self.kind, self.dtype = "continuous", np.dtype(space.dtype)
        self.is_bounded = space.is_bounded("both")
        self._low, self._high = space.low.ravel(), space.high.ravel()
        low, high = self._low.astype(np.float64), self._high.astype(np.float64)
        has_both = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(has_both, low, -1.0), np.where(has_both, high, 1.0)  # scales by one
        self._center, self._half = (high + low) / 2, np.maximum((high - low) / 2, 1e-12)
        self._limit = np.where(has_both, 1.0, np.inf)
        self._is_whole = whole_columns(self.space)
        self._rounds = bool(self._is_whole.any())

    def _init_parts(self, choices: spaces.Space[Any], values: spaces.Space[Any]) -> None:
        self.kind = "hybrid"
        self.parts = (ActionCodec(values), ActionCodec(choices))
        is_choice = choice_columns(self.space)
        self._columns = (np.flatnonzero(~is_choice), np.flatnonzero(is_choice))
        self.shape, self.is_bounded = (len(is_choice),), self.parts[0].is_bounded
        self.dtype = np.result_type(*(part.dtype for part in self.parts))

    def _width(self) -> int:
        return sum(part.dim for part in self.parts) or sum(self.factors) or math.prod(self.shape)

    def flat(self, actions: Any, *lead: int) -> np.ndarray:
        """Return environment actions as ``(*lead, *shape)`` numbers: those of a Dict or a Tuple part after part.

        Raises:
            DataError: If a part is missing, or has another shape.
        """
        return flat_actions(self.space, actions, *lead) if self.is_nested else np.asarray(actions)

    def nested(self, actions: np.ndarray) -> Any:
        """Return ``(..., *shape)`` numbers as the environment takes them: the inverse of :meth:`flat`."""
        if self.is_nested:
            return nested_actions(self.space, actions)
        return actions if self.kind == "continuous" else actions.astype(self.space.dtype, copy=False)

    def _split(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the values and the choices of hybrid policy actions, or flags."""
        width = self.parts[0].dim
        return actions[..., :width], actions[..., width:]

    def check_bounded(self) -> None:
        """Check that policy actions lie in [-1, 1].

        Raises:
            EnvError: If the space is a Box without bounds, or has one.
        """
        if not self.is_bounded:
            raise EnvError(
                f"action space {self.space!r} has no bounds, so actions cannot be scaled to [-1, 1]: give the space "
                "finite bounds (gymnasium.wrappers.TransformAction, or low and high of the Box in the environment), "
                "or, to learn from data alone, set train.normalize_actions to min_max"
            )

    def encode(self, actions: np.ndarray) -> np.ndarray:
        """Return environment actions ``(..., *shape)`` as float32 ``(..., dim)``.

        Continuous values outside the bounds are clipped to them.

        Raises:
            DataError: If the shape is another one, or a discrete action is not in the space.
        """
        flat = self._in_shape(actions)
        if self.parts:
            own = [part.encode(flat[..., c]) for part, c in zip(self.parts, self._columns, strict=True)]
            return np.concatenate(own, axis=-1)
        if self.kind == "continuous":
            return np.clip((flat - self._center) / self._half, -self._limit, self._limit).astype(np.float32)
        index = self._index(flat)
        if self.kind == "binary":
            return index.astype(np.float32)
        encoded = np.zeros((*flat.shape[:-1], self.dim), np.float32)
        np.put_along_axis(encoded, index + self._offsets, 1.0, axis=-1)
        return encoded

    def check(self, actions: np.ndarray) -> None:
        """Check what :meth:`encode` checks, and encode nothing.

        Raises:
            DataError: If the shape is another one, or a discrete action is not in the space.
        """
        flat = self._in_shape(actions)
        for part, columns in zip(self.parts, self._columns if self.parts else (), strict=True):
            part.check(flat[..., columns])
        if self.kind in ("categorical", "binary"):
            self._index(flat)

    def _in_shape(self, actions: np.ndarray) -> np.ndarray:
        """Return actions ``(..., *shape)`` as ``(..., N)``."""
        actions = np.asarray(actions)
        lead = actions.shape[: actions.ndim - len(self.shape)]
        if actions.shape[len(lead) :] != self.shape:
            raise DataError(f"actions of shape {actions.shape} do not end in the shape of {self.space!r}")
        return actions.reshape((*lead, math.prod(self.shape)))

    def _index(self, flat: np.ndarray) -> np.ndarray:
        """Return discrete actions ``(..., N)`` counted from 0."""
        index = flat.astype(np.int64) - self._start
        legal = (index >= 0) & (index < self._sizes) & (index + self._start == flat)
        if not legal.all():
            raise DataError(f"an action is outside {self.space!r}: {flat[~legal.all(-1)][0].tolist()}")
        return np.asarray(index)

    def decode(self, actions: np.ndarray) -> np.ndarray:
        """Return policy actions ``(..., dim)`` as environment actions ``(..., *shape)``; see :meth:`nested`."""
        shape = (*actions.shape[:-1], *self.shape)
        if self.parts:
            flat = np.empty(shape, self.dtype)
            for part, columns, own in zip(self.parts, self._columns, self._split(actions), strict=True):
                flat[..., columns] = part.decode(own)
            return flat
        if self.kind == "continuous":
            scaled = np.clip(actions, -self._limit, self._limit) * self._half + self._center
            if self._rounds:
                scaled = np.where(self._is_whole, np.rint(scaled), scaled)
            values: np.ndarray = np.clip(scaled, self._low, self._high)
            return values.astype(self.dtype).reshape(shape)
        if self.kind == "binary":
            return (actions > 0.5).astype(self.dtype).reshape(shape)
        parts = np.split(actions, self._offsets[1:], axis=-1)
        index = np.stack([part.argmax(-1) for part in parts], axis=-1) + self._start
        return index.reshape(shape).astype(self.dtype)

    def scaling(self) -> dict[str, np.ndarray]:
        """Return the numbers that :meth:`decode` computes with, by their names; float32 where actions are."""
        if self.parts:
            values, choices = self._columns
            order = np.argsort(np.concatenate([values, choices]))  # of the numbers in the environment's action
            return {"order": order}
        if self.kind != "continuous":
            return {"start": self._start}
        found = {"center": self._center, "half": self._half, "limit": self._limit, "low": self._low, "high": self._high}
        return {**{name: value.astype(np.float32) for name, value in found.items()}, "is_whole": self._is_whole}

    def executed(self, actions: np.ndarray) -> np.ndarray:
        """Return policy actions as the environment executes them: clipped, and rounded where it takes integers."""
        if self.parts:
            own = [part.executed(a) for part, a in zip(self.parts, self._split(actions), strict=True)]
            return np.concatenate(own, axis=-1)
        if self.kind == "continuous" and self._rounds:
            return self.encode(self.decode(actions))
        if self.kind == "continuous":
            return np.asarray(np.clip(actions, -self._limit, self._limit), actions.dtype)
        return np.array(actions)

    def legal(self, mask: Any, *lead: int) -> np.ndarray:
        """Return an environment's action mask as bool ``(*lead, dim)``: one flag per action of each factor, or per bit.

        The values of a hybrid action are always legal; its mask is that of its choices.

        Raises:
            DataError: If it has another size, or actions are continuous.
        """
        choices = self.parts[1] if self.parts else self
        is_in_parts = isinstance(mask, tuple | list) and 0 < len(mask) == len(choices.factors)
        if is_in_parts and not lead:  # gymnasium's own form
            mask = np.concatenate([np.ravel(np.asarray(part)) for part in mask])
        array = np.asarray(mask)
        if self.parts and array.shape == (*lead, self.dim):
            return array.astype(bool)
        if self.kind == "continuous" or array.shape[: len(lead)] != lead or array.size != math.prod(lead) * choices.dim:
            raise DataError(
                f"action_mask has shape {array.shape[len(lead) :]}, but {self.space!r} "
                + ("takes no mask" if self.kind == "continuous" else f"needs {choices.dim} flags, factor after factor")
            )
        flags = array.astype(bool).reshape(*lead, choices.dim)
        return np.concatenate([np.ones((*lead, self.dim - choices.dim), bool), flags], axis=-1)

    def stuck(self, mask: np.ndarray) -> np.ndarray:
        """Return where ``(..., dim)`` masks leave some factor without a legal action, ``(...)`` bool."""
        if self.parts:
            return self.parts[1].stuck(self._split(mask)[1])
        if self.kind == "binary":  # a bit that may not be set is 0
            return np.zeros(mask.shape[:-1], bool)
        parts = np.split(mask, self._offsets[1:], axis=-1)
        blocked = np.stack([~part.any(-1) for part in parts], axis=-1)
        return np.asarray(blocked.any(-1))

    def random(self, rng: np.random.Generator, num: int, mask: np.ndarray | None = None) -> np.ndarray:
        """Return ``(num, dim)`` uniformly random actions, legal by the mask ``(num, dim)`` where there is one."""
        if self.parts:
            masks = (None, None) if mask is None else self._split(mask)
            return np.concatenate([p.random(rng, num, m) for p, m in zip(self.parts, masks, strict=True)], axis=-1)
        if self.kind == "continuous":
            return rng.uniform(-1.0, 1.0, (num, self.dim)).astype(np.float32)
        legal = np.ones((num, self.dim), bool) if mask is None else mask
        if self.kind == "binary":
            return (legal & (rng.random((num, self.dim)) < 0.5)).astype(np.float32)
        score = np.where(legal, rng.random((num, self.dim)), -1.0)
        parts = np.split(score, self._offsets[1:], axis=-1)
        return np.concatenate([np.eye(p.shape[-1], dtype=np.float32)[p.argmax(-1)] for p in parts], axis=-1)

    def zeros(self, *lead: int) -> np.ndarray:
        """Return policy actions of zeros, the "previous action" of an episode's first step."""
        return np.zeros((*lead, self.dim), np.float32)


def infer_observation_space(obs: Mapping[str, Any]) -> spaces.Dict:
    """Return Boxes of the dtypes and shapes that recorded observations have, for data that does not bring a space.

    Text is a Box of its bytes (:mod:`seqrl.core.text`).

    Args:
        obs: Name -> array, or what else has ``shape`` and ``dtype``; rows ``(T, ...)``.
    """
    return spaces.Dict({name: _box(rows.shape[1:], rows.dtype) for name, rows in sorted(obs.items())})


def _box(shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Box:
    if dtype == np.bool_:
        return spaces.Box(0, 1, shape, np.bool_)  # type: ignore[arg-type]
    if dtype.kind in "OS":
        return spaces.Box(0, 255, (*shape, TEXT_BYTES), np.uint8)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return spaces.Box(limits.min, limits.max, shape, dtype.type)
    return spaces.Box(-np.inf, np.inf, shape, dtype.type)


def extremes(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return ``(2, ...)``: the least and the greatest of actions that come in parts ``(N, ...)``.

    Raises:
        DataError: If there is none.
    """
    found: list[np.ndarray] = []
    for part in parts:
        if len(part):
            found = [np.stack([rows.min(0), rows.max(0)]) for rows in (np.concatenate([*found, part]),)]
    if not found:
        raise DataError("the data holds no actions")
    return found[0]


def infer_action_space(actions: np.ndarray) -> spaces.Space[Any]:
    """Return the action space that recorded actions imply, for data that does not bring one.

    Floats mean a Box of [-1, 1] (robomimic's convention), or one without bounds if they leave it; an integer per step
    means Discrete, and several MultiDiscrete, each up to the greatest one seen.

    Raises:
        DataError: If integers are negative or huge, or dtype and shape say nothing.
    """
    if np.issubdtype(actions.dtype, np.integer) and (actions.ndim == 1 or (actions.ndim == 2 and actions.shape[1] > 1)):
        if actions.min(initial=0) < 0 or actions.max(initial=0) >= MOST_INFERRED:
            reached = [int(actions.min()), int(actions.max())]
            raise DataError(f"integer actions reach {reached}, but they have to be 0 to {MOST_INFERRED - 1}")
        sizes = actions.max(0).astype(np.int64) + 1
        return spaces.Discrete(int(sizes)) if actions.ndim == 1 else spaces.MultiDiscrete(sizes)
    if not np.issubdtype(actions.dtype, np.floating):
        raise DataError(
            f"the space of {actions.dtype} actions of shape {actions.shape[1:]} cannot be inferred: store one integer "
            "per step (no second axis) or floats; or, in a robomimic file, write the space as JSON to the attribute "
            "'action_space' of the group 'data'"
        )
    if float(np.abs(actions).max(initial=0.0)) > 1.0 + 1e-6:
        return spaces.Box(-np.inf, np.inf, actions.shape[1:], np.float32)
    return spaces.Box(-1.0, 1.0, actions.shape[1:], np.float32)
