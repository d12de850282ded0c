"""Random play of one environment, every answer of which is checked."""

from __future__ import annotations

import copy
import math
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.core.errors import EnvError
from seqrl.core.spaces import MASK_KEY, ActionCodec
from seqrl.envs.check.values import (
    Fault,
    answer_fault,
    as_array,
    end_faults,
    leaves,
    mask_fault,
    obs_faults,
    reward_fault,
    same,
    short,
)
from seqrl.envs.infos import SUCCESS_KEYS, plain_info


class Findings:
    """Collects faults; each key is told once, with the number of times it was seen."""

    def __init__(self) -> None:
        self._first: dict[str, Fault] = {}
        self._times: dict[str, int] = {}

    def add(self, fault: Fault | None, place: str = "") -> None:
        """Add a fault, if there is one, that was seen at a place such as ``step 3``."""
        if fault is not None:
            text = f"At {place}, {fault.text}" if place else fault.text
            self._first.setdefault(fault.key, fault._replace(text=text))
            self._times[fault.key] = self._times.get(fault.key, 0) + 1

    def in_order(self) -> list[Fault]:
        """Return the problems, then the notes, each in the order in which they were seen."""
        told = [
            fault._replace(text=f"{fault.text} (Seen {self._times[key]} times.)") if self._times[key] > 1 else fault
            for key, fault in self._first.items()
        ]
        return sorted(told, key=lambda fault: fault.level != "problem")


class RandomPlay:
    """Plays an environment with random legal actions and checks every answer.

    Args:
        env: The environment.
        codec: Its actions; None if they are not supported, then its space draws them.
        space: Space of the observation; None if it is not supported, then observations are not looked at.
        found: Takes what is wrong.
        seed: Seed of the environment and of the actions.

    Attributes:
        has_begun: Whether the first reset worked.
        has_success: Whether some info told of success.
        num_steps: Steps that worked.
        lengths: Lengths of the episodes that ended.
        returns: Their sums of rewards.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        codec: ActionCodec | None,
        space: spaces.Space[Any] | None,
        found: Findings,
        seed: int,
    ) -> None:
        self.env, self.codec, self.space, self.found, self.seed = env, codec, space, found, seed
        self.has_begun = self.has_success = False
        self.num_steps = 0
        self.lengths: list[int] = []
        self.returns: list[float] = []
        self._actor = Actor(env, codec, seed)
        self._has_mask: bool | None = None
        self._kept: tuple[str, Any, dict[str, np.ndarray]] = ("", None, {})
        self._length, self._return = 0, 0.0

    def run(self, num_steps: int) -> None:
        """Play until so many steps are done, or something happens after which nothing can."""
        ready = self.has_begun = self._reset("reset", seed=self.seed)
        while ready and self.num_steps < num_steps:
            ready = self._step()

    def _reset(self, place: str, **kwargs: Any) -> bool:
        answer = self._call(place, "reset", **kwargs)
        if answer is None:
            return False
        self._look(place, answer[0], answer[1])
        self._length, self._return = 0, 0.0
        return True

    def _step(self) -> bool:
        place = f"step {self.num_steps + 1}"
        answer = self._call(place, "step", self._actor.action())
        if answer is None:
            return False
        obs, reward, terminated, truncated, info = answer
        self.num_steps += 1
        self._length += 1
        wrong = reward_fault(reward)
        self._return += float(reward) if wrong is None else math.nan
        for fault in (wrong, *end_faults(terminated, truncated)):
            self.found.add(fault, place)
        ended = has_ended(answer)
        if not isinstance(info, dict):
            wrong = Fault("info", f"info is a {type(info).__name__}, but has to be a dict. Return one, such as `{{}}`.")
            self.found.add(wrong, place)
            info = {}
        self._look_at_info(place, info)
        self.has_success |= any(info.get(key) is not None for key in SUCCESS_KEYS)
        self._look(place, obs, info, ended=ended)
        if not ended:
            return True
        self.lengths.append(self._length)
        self.returns.append(self._return)
        return self._reset(f"the reset after {place}")

    def _look_at_info(self, place: str, info: dict[str, Any]) -> None:
        try:
            plain_info(info)
        except EnvError as error:
            self.found.add(Fault("info", f"{error}."), place)

    def _call(self, place: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return what the environment answers; None, once reported, if that is an exception or has the wrong form."""
        given = copy.deepcopy(args)
        try:
            answer = getattr(self.env, method)(*args, **kwargs)
        except Exception as error:
            answer = self._unwrapped_answer(method, *given, **kwargs)
            if answer is None or answer_fault(method, answer) is None:
                self.found.add(Fault("raise", _raised(method, given, error)), place)
                return None
        fault = answer_fault(method, answer)
        self.found.add(fault, place)
        return answer if fault is None else None

    def _unwrapped_answer(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Ask behind the wrappers: a wrapper that unpacks the wrong number of values hides what is wrong."""
        if self.env.unwrapped is self.env:
            return None
        try:
            return getattr(self.env.unwrapped, method)(*args, **kwargs)
        except Exception:
            return None

    def _look(self, place: str, obs: Any, info: dict[str, Any], ended: bool = False) -> None:
        self._check_kept(place, obs)
        if self.space is not None:
            for fault in obs_faults(self.space, obs):
                self.found.add(fault, place)
        self._check_mask(place, obs, info, ended)
        self._actor.look(obs, info)

    def _check_kept(self, place: str, obs: Any) -> None:
        """Compare the observation before this one with the copy that was made of it."""
        before, kept, copies = self._kept
        now = dict(leaves(self.space, kept)) if self.space is not None else {}
        for name in [k for k, v in copies.items() if k in now and not same(now[k], v)]:
            text = (
                f"Observation {name!r} that {before} returned was changed by {place}: the environment goes on "
                "writing into the array that it gave away, so that an episode's last observation becomes the "
                "next one's first. Return a copy, such as `obs.copy()`."
            )
            self.found.add(Fault(f"reuse {name}", text))
        if self.space is not None:
            self._kept = (place, obs, {k: v.copy() for k, v in leaves(self.space, obs)})

    def _check_mask(self, place: str, obs: Any, info: dict[str, Any], ended: bool) -> None:
        codec, mask = self.codec, given_mask(self.space, obs, info)
        if codec is None or codec.kind == "continuous":
            return
        if self._has_mask is None:
            self._has_mask = mask is not None
        if (mask is not None) != self._has_mask and not (mask is None and ended):
            have, lack = ("the first reset", place) if self._has_mask else (place, "the first reset")
            text = (
                f"An {MASK_KEY} was given by {have} but not by {lack}. Give it always, in reset and in step, or never."
            )
            self.found.add(Fault("mask missing", text))
        if mask is not None:
            fault = mask_fault(codec, mask)
            is_over = ended and fault is not None and fault.key == "mask stuck"
            self.found.add(None if is_over else fault, place)


class Actor:
    """Draws random legal actions; the same ones for the same seed and masks."""

    def __init__(self, env: gym.Env[Any, Any], codec: ActionCodec | None, seed: int) -> None:
        self._env, self._codec, self._rng = env, codec, np.random.default_rng(seed)
        self._space = getattr(env, "observation_space", None)
        self._mask: np.ndarray | None = None
        if codec is None and isinstance(getattr(env, "action_space", None), spaces.Space):
            env.action_space.seed(seed)

    def look(self, obs: Any, info: Mapping[str, Any]) -> None:
        """Take the mask of the next action; a mask that is wrong allows all."""
        raw = given_mask(self._space, obs, info)
        usable = self._codec is not None and raw is not None and mask_fault(self._codec, raw) is None
        self._mask = self._codec.legal(raw)[None] if usable and self._codec is not None else None

    def action(self) -> Any:
        """Return the next action in the environment's form."""
        if self._codec is None:
            return self._env.action_space.sample()
        drawn = self._codec.random(self._rng, 1, self._mask)
        return self._codec.nested(self._codec.decode(drawn)[0])


def has_ended(answer: Any) -> bool:
    """Return whether an answer of ``step`` ends the episode, whatever the type of its flags."""
    return any(a.dtype.kind in "biuf" and bool(a.any()) for a in map(as_array, answer[2:4]))


def described(error: Exception) -> str:
    """Return an exception as its type, message and the line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(frame[0].filename).name}, line {frame[0].lineno})" if frame else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{where}"


def _raised(method: str, args: Any, error: Exception) -> str:
    if method == "reset" and isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
        return f"reset raised {described(error)}. Write `def reset(self, *, seed=None, options=None)`."
    given = f"step({short(as_array(args[0]).tolist())})" if args else "reset"
    mend = "Every action that the action space and the mask allow has to work." if args else "Mend reset."
    return f"{given} raised {described(error)}. {mend}"


def given_mask(space: spaces.Space[Any] | None, obs: Any, info: Mapping[str, Any]) -> Any:
    """Return the mask as the environment gives it, from the observation or else from info; or None."""
    is_known = not isinstance(space, spaces.Dict) or MASK_KEY in space.spaces
    if is_known and isinstance(obs, Mapping) and MASK_KEY in obs:
        return obs[MASK_KEY]
    return info.get(MASK_KEY) if isinstance(info, Mapping) else None
