"""Several environments as one, with one space for all: a task each episode."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.core.errors import EnvError
from seqrl.core.plugins import names_foreign_module
from seqrl.core.spaces import MASK_KEY, OBS_KEY, ObsSpec, flatten_obs, obs_specs
from seqrl.envs.make import make_env

MIXTURE_ID = "seqrl/Mixture-v0"
TASK_KEY = "task"
"""Observation entry of the task's number, one-hot."""

MOST_ACTIONS = 4096
"""Actions of a MultiDiscrete space, all combinations counted, that are joined with other ones."""


class Mixture(gym.Env[Any, Any]):
    """Plays one of several environments in each episode: all of them in turn, in an order that the seed shuffles.

    Where observations differ, each becomes one vector, categories one-hot, padded with zeros to the longest. Where
    discrete actions differ, the space has as many as the task with the most, and ``action_mask`` is observed: it
    allows the task's own. ``info["env_name"]`` of a reset names the task, so metrics are told for each; tasks of one id
    may bring names of their own.

    Args:
        tasks: Id, and ``kwargs``, of each.
        observe_task: Observe the task's number, one-hot, as ``task``.
        render_mode: Of the environments.

    Raises:
        EnvError: If there is no task, or two cannot share a space.
    """

    metadata = {"render_modes": ["rgb_array", "human"]}  # noqa: RUF012  (gymnasium's)

    def __init__(
        self, tasks: Sequence[dict[str, Any]] = (), observe_task: bool = False, render_mode: str | None = None
    ) -> None:
        if not tasks:
            raise EnvError("a mixture needs at least one task: [{'id': ..., 'kwargs': ...}, ...]")
        self.names = [str(task["id"]) for task in tasks]
        for name in self.names:
            if module := names_foreign_module(name):
                raise EnvError(f"{name!r} would import {module!r}, which a mixture never does; pass --plugin {module}")
        self.render_mode, self._observes_task = render_mode, observe_task
        self._envs = [make_env(str(t["id"]), t.get("kwargs"), render_mode=render_mode) for t in tasks]
        self._views = _views(self.names, [env.observation_space for env in self._envs])
        hides_mask = any(view.is_joined and MASK_KEY in obs_specs(e.observation_space) for view, e in self._pairs())
        self._actions = _actions(self.names, [env.action_space for env in self._envs], is_masked=hides_mask)
        self.action_space = self._actions[0].space
        self.observation_space = self._observation_space()
        self._order: list[int] = []
        self._unseeded: set[int] = set()
        self._task = 0

    def _pairs(self) -> Iterator[tuple[_View, gym.Env[Any, Any]]]:
        return zip(self._views, self._envs, strict=True)

    def _observation_space(self) -> spaces.Space[Any]:
        added: dict[str, spaces.Space[Any]] = {}
        if self._actions[0].is_masked:
            added[MASK_KEY] = spaces.MultiBinary(int(self.action_space.n))  # type: ignore[attr-defined]
        if self._observes_task:
            added[TASK_KEY] = spaces.Box(0.0, 1.0, (len(self.names),), np.float32)
        self._adds = bool(added)
        space = self._views[0].space
        if not added:
            return space
        own = dict(space.spaces) if isinstance(space, spaces.Dict) else {OBS_KEY: space}
        if self._observes_task and TASK_KEY in own:
            raise EnvError(
                f"the tasks observe an entry {TASK_KEY!r} of their own, which observe_task "
                "(env.common_space=with_task) would hide: rename it, or turn that off"
            )
        return spaces.Dict({**own, **added})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of the next task."""
        super().reset(seed=seed)
        if seed is not None or not self._order:
            self._order = self.np_random.permutation(len(self._envs)).tolist()
        if seed is not None:
            self._unseeded = set(self._order)
        self._task = self._order.pop()
        task_seed = int(self.np_random.integers(2**31)) if self._task in self._unseeded else None
        self._unseeded.discard(self._task)
        obs, info = self._envs[self._task].reset(seed=task_seed, options=options)
        return self._seen(obs, info), {**info, **self._named(info)}

    def _named(self, info: dict[str, Any]) -> dict[str, Any]:
        name = self.names[self._task]
        return {} if self.names.count(name) > 1 and "env_name" in info else {"env_name": name}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the task."""
        taken = self._actions[self._task].own(action)
        obs, reward, terminated, truncated, info = self._envs[self._task].step(taken)
        return self._seen(obs, info), reward, terminated, truncated, info

    def _seen(self, obs: Any, info: dict[str, Any]) -> Any:
        view = self._views[self._task]
        seen = view.seen(obs)
        if not self._adds:
            return seen
        seen = dict(seen) if isinstance(view.space, spaces.Dict) else {OBS_KEY: seen}
        if self._actions[0].is_masked:
            own = obs.get(MASK_KEY) if isinstance(obs, dict) else None
            seen[MASK_KEY] = self._actions[self._task].mask(info.pop(MASK_KEY, None) if own is None else own)
        if self._observes_task:
            seen[TASK_KEY] = np.eye(len(self.names), dtype=np.float32)[self._task]
        return seen

    def render(self) -> Any:
        """Return the task's frame."""
        return self._envs[self._task].render()

    def close(self) -> None:
        """Close all."""
        for env in self._envs:
            env.close()


# --------------------------------------------------------------------------------------- observations
class _View:
    """How a task is observed: as it is, or as a padded vector."""

    def __init__(self, own: spaces.Space[Any], width: int | None) -> None:
        self._own, self._width, self.is_joined = own, width, width is not None
        self.space = own if width is None else spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def seen(self, obs: Any) -> Any:
        if self._width is None:
            return obs
        flat = flatten_obs(self._own, obs)
        parts = [_numbers(flat[name], spec) for name, spec in _entries(self._own).items()]
        vector = np.zeros(self._width, np.float32)
        found = np.concatenate(parts)
        vector[: len(found)] = found
        return vector


def _views(names: Sequence[str], owns: Sequence[spaces.Space[Any]]) -> list[_View]:
    if all(own == owns[0] for own in owns):
        return [_View(own, None) for own in owns]
    for name, own in zip(names, owns, strict=True):
        if images := [key for key, spec in _entries(own).items() if len(spec.shape) > 2 and spec.nvec is None]:
            other = next(n for n, o in zip(names, owns, strict=True) if o != own)
            raise EnvError(f"{name!r} observes an image ({images[0]}), {other!r} something else: no vector joins them")
    widths = [sum(map(_width, _entries(own).values())) for own in owns]
    return [_View(own, max(widths)) for own in owns]


def _entries(space: spaces.Space[Any]) -> dict[str, ObsSpec]:
    return {name: spec for name, spec in obs_specs(space).items() if name != MASK_KEY}


def _width(spec: ObsSpec) -> int:
    return sum(spec.nvec) if spec.nvec is not None else math.prod(spec.shape)


def _numbers(value: np.ndarray, spec: ObsSpec) -> np.ndarray:
    """Return an entry as floats, categories one-hot."""
    if spec.nvec is None:
        return value.ravel().astype(np.float32)
    offsets = np.cumsum([0, *spec.nvec[:-1]])
    numbers = np.zeros(sum(spec.nvec), np.float32)
    numbers[offsets + value.ravel()] = 1.0
    return numbers


# -------------------------------------------------------------------------------------------- actions
class _Actions:
    """How a task is acted in: as it is, or by the first of some numbers, which stand for its actions."""

    def __init__(self, own: spaces.Space[Any], space: spaces.Space[Any], *, is_masked: bool) -> None:
        self._own, self.space, self.is_masked = own, space, is_masked

    def own(self, action: Any) -> Any:
        """Return the task's action."""
        if not self.is_masked:
            return action
        number = int(action)
        if number >= _count(self._own):
            raise EnvError(f"action {number} is masked: the task takes {self._own}")
        if isinstance(self._own, spaces.Discrete):
            return np.int64(number) + self._own.start
        assert isinstance(self._own, spaces.MultiDiscrete)
        return np.array(np.unravel_index(number, self._own.nvec), self._own.dtype) + self._own.start

    def mask(self, given: Any) -> np.ndarray:
        """Return which actions the task has now, of which it may tell by a mask of its own."""
        legal = np.zeros(int(self.space.n), np.int8)  # type: ignore[attr-defined]
        count = _count(self._own)
        legal[:count] = 1
        if given is not None:
            legal[:count] = _combined(self._own, given)
        return legal


def _combined(own: spaces.Space[Any], given: Any) -> np.ndarray:
    """Return a flag for each combination of a MultiDiscrete's actions, of those of its factors."""
    flags = np.concatenate([np.ravel(part) for part in given]) if isinstance(given, tuple) else np.ravel(given)
    if not isinstance(own, spaces.MultiDiscrete):
        return flags
    combined = np.ones(1, np.int8)
    for part in np.split(flags, np.cumsum(own.nvec)[:-1]):
        combined = np.outer(combined, part).ravel()
    return combined


def _count(own: spaces.Space[Any]) -> int:
    return int(own.n) if isinstance(own, spaces.Discrete) else int(np.prod(own.nvec))  # type: ignore[attr-defined]


def _actions(names: Sequence[str], owns: Sequence[spaces.Space[Any]], *, is_masked: bool) -> list[_Actions]:
    if all(own == owns[0] for own in owns) and not is_masked:
        return [_Actions(own, own, is_masked=False) for own in owns]
    for name, own in zip(names, owns, strict=True):
        is_flat = isinstance(own, spaces.MultiDiscrete) and len(own.shape) == 1
        if not (isinstance(own, spaces.Discrete) or is_flat) or _count(own) > MOST_ACTIONS:
            other, theirs = next(((n, o) for n, o in zip(names, owns, strict=True) if o != own), (name, own))
            raise EnvError(f"{name!r} takes {own}, {other!r} takes {theirs}: no space joins these actions")
    space = spaces.Discrete(max(map(_count, owns)))
    return [_Actions(own, space, is_masked=True) for own in owns]
