"""A trained policy, ready for an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.algo.acting import VectorPolicy, acts_greedily, missing_goal
from seqrl.algo.algo import Algo
from seqrl.algo.inputs import entry_label, obs_entries, with_goals
from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import DataError, did_you_mean
from seqrl.core.image_bytes import images_of_bytes
from seqrl.core.nested_spaces import children, leaves, parts_given
from seqrl.core.obs_entry import (
    changed_rows,
    check_mask_is_given,
    check_present,
    checked_rows,
    counted_rows,
    mask_rows,
    num_rows_of,
)
from seqrl.core.rotations import with_rotations
from seqrl.core.spaces import GOAL_PREFIX, MASK_KEY, OBS_KEY, ObsSpec, flatten_obs, infer_observation_space
from seqrl.core.text import with_readable_text

PREV_REWARD, INNER = "prev_reward", "observation"
"""Entries of what :func:`seqrl.with_prev_reward` observes: the last reward, and an observation that was no dict."""


class RolloutPolicy:
    """Takes an environment's observations and returns its actions, remembering the episode in between.

    Args:
        algo: Gives the actions.
        observation_space: Of one environment; None is a Dict of what the algorithm reads.
        action_space: Of one environment; None is the algorithm's.
        deterministic: Act greedily; False samples, None does what the run's evaluations did.

    Raises:
        DataError: If the policy's actions are of another width than those of ``action_space``.
    """

    def __init__(
        self,
        algo: Algo,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        *,
        deterministic: bool | None = None,
    ) -> None:
        self.algo = algo
        self.observation_space = _space_of(algo) if observation_space is None else observation_space
        own = algo.codec.space
        self.action_space = own if action_space is None else with_rotations(action_space, own)
        self.deterministic = acts_greedily(algo.config, deterministic)
        self._entries = obs_entries(algo.obs, algo.inputs.values)
        self._leaves = dict(leaves(self.observation_space, OBS_KEY))
        self._is_flat = self._leaves.keys() == {name for name, _ in children(self.observation_space) or []}
        self._codec = action_codec(self.action_space)
        if self._codec.dim != algo.codec.dim:
            raise DataError(
                f"the policy gives actions of {own!r}, but {self.action_space!r} was given: "
                f"{algo.codec.dim} and {self._codec.dim} numbers"
            )
        self._vector: VectorPolicy | None = None
        self._is_masked = False
        self._calls = 0

    def start_episode(self) -> None:
        """Forget everything: all rows begin a new episode."""
        self._vector = None
        self._calls += 1

    def reset_rows(self, rows: np.ndarray) -> None:
        """Begin a new episode in the rows that are True, in batched use.

        Raises:
            DataError: If they are no bools, or of another number.
        """
        if self._vector is not None:
            rows = checked_rows(rows, self._vector.num_rows)
            self._vector.reset(rows)
            self._is_masked = self._is_masked and not rows.all()

    def __call__(
        self,
        ob: Any,
        goal: Mapping[str, Any] | Any = None,
        reward: Any = None,
        batched_ob: bool = False,
        action_mask: Any = None,
    ) -> Any:
        """Return the environment's action for one more observation; with ``batched_ob`` an array of one per row.

        Actions of a Dict or Tuple space are a dict or a tuple, of arrays with ``batched_ob``.

        Args:
            ob: As the environment gives it; with ``batched_ob``, one row per environment. Entries that the policy does
                not read may be left out.
            goal: Name -> array, or the array where the policy reads one goal; else it is observed, as ``goal/<name>``.
            reward: Reward of the last action (one per row), needed if the policy was trained to read it.
            batched_ob: Whether ``ob`` and ``goal`` have a leading row dimension.
            action_mask: Legal actions, for environments that give them in ``info["action_mask"]``; an observation entry
                of that name is read by itself. With ``batched_ob`` one mask per row, or a tuple of ``(rows, choices)``
                arrays, one for each factor.

        Raises:
            DataError: If the observation or the number of rows is not what the policy expects, a number that it reads
                is not finite, or no action is legal; what the policy remembers is then as before.
        """
        obs = self._rows(self._given(ob), goal, batched_ob)
        num_rows = num_rows_of(obs)
        vector = self._vector
        if vector is None:
            vector = VectorPolicy(self.algo, num_rows, deterministic=self.deterministic)
        elif vector.num_rows != num_rows:
            raise DataError(changed_rows(num_rows, vector.num_rows))
        rewards = None if reward is None else np.atleast_1d(np.asarray(reward, np.float32))
        if rewards is not None and rewards.shape != (num_rows,):
            raise DataError(f"reward has shape {rewards.shape}, but the observation has {counted_rows(num_rows)}")
        if action_mask is not None:
            codec = self.algo.codec
            factors = codec.parts[1].factors if codec.parts else codec.factors
            rows = mask_rows(action_mask, num_rows, factors) if batched_ob else [action_mask]
            action_mask = np.stack([self.algo.codec.legal(row) for row in rows])
        check_mask_is_given(action_mask is not None, was_given=vector is self._vector and self._is_masked)
        actions = self._codec.decode(vector.act(obs, rewards, action_mask=action_mask))
        self._is_masked = action_mask is not None
        self._calls += 1
        self._vector = vector  # only now: a call that was refused begins no episode
        return self._codec.nested(actions if batched_ob else actions[0])

    def _given(self, ob: Any) -> Mapping[str, Any]:
        """Return name -> what is observed, from the environment's own structure or from a dict that is flat already."""
        space = self.observation_space
        if isinstance(space, spaces.Dict) and not isinstance(ob, Mapping):
            if len(names := list(space.spaces)) != 1:
                raise DataError(f"the policy reads a dict with {', '.join(self.algo.obs)}, got {type(ob).__name__}")
            ob = {names[0]: ob}
        if isinstance(ob, Mapping) and (self._is_flat or not isinstance(space, spaces.Dict)):
            return ob
        given = parts_given(space, ob) if children(space) is not None else {OBS_KEY: ob}
        own = space.spaces if isinstance(space, spaces.Dict) else ()
        others = {k: v for k, v in ob.items() if k not in own} if isinstance(ob, Mapping) else {}
        return others | given

    def _goals(self, goal: Any) -> dict[str, Any]:
        keys = self.algo.goal_keys
        if goal is None or (isinstance(goal, Mapping) and not goal):
            return {}
        if not keys:
            raise DataError("a goal was given, but this policy reads none (observation.goal_keys is empty)")
        if isinstance(goal, Mapping):
            given = {key: goal[key] for key in keys if key in goal}
            if "achieved_goal" in keys and "desired_goal" in goal:  # gymnasium's name for it
                given.setdefault("achieved_goal", goal["desired_goal"])
            unknown = sorted(map(str, goal.keys() - given.keys() - {"desired_goal"}))
            if unknown and len(given) < len(keys):  # the observation's own goal would be read instead
                raise DataError(
                    f"goal: {unknown[0]!r} is not among {', '.join(keys)}{did_you_mean(unknown[0], list(keys))}"
                )
            return given
        if len(keys) != 1:
            wanted = ", ".join(f"{key!r}: ..." for key in keys)
            raise DataError(f"goal is of type {type(goal).__name__}; this policy reads several: pass goal={{{wanted}}}")
        return {keys[0]: goal}

    def _rows(self, given: Mapping[str, Any], goal: Any, is_batched: bool) -> dict[str, np.ndarray]:
        """Return what the policy reads, and an action mask: name -> ``(rows, ...)``."""
        goals = self._goals(goal)
        if "desired_goal" in self.algo.obs and "achieved_goal" in goals:  # the same goal, read once more
            given = {**given, "desired_goal": goals["achieved_goal"]}
        check_present(self.algo.obs.keys() - {GOAL_PREFIX + key for key in self.algo.goal_keys}, given)
        seen = with_goals(self.algo.goal_keys, given, goals, missing_goal)
        rows = {name: self._array(name, seen[name], is_batched) for name in (*self.algo.obs, MASK_KEY) if name in seen}
        return rows if is_batched else {name: row[None] for name, row in rows.items()}

    def _array(self, name: str, value: Any, is_batched: bool) -> np.ndarray:
        """Return an entry as the policy reads it: of the space's dtype, categories from 0."""
        array = _as_array(name, value)
        entry = self._entries.get(name)
        if entry is None:
            return array
        entry.check_form(array, is_batched=is_batched)
        leaf = self._leaves.get(name, self._leaves.get(name.removeprefix(GOAL_PREFIX)))
        if leaf is None:
            return array
        if array.dtype == np.uint8 and images_of_bytes(leaf, array):
            raise DataError(f"{entry.label} is uint8 (0 to 255), but was an image of floats in training")
        return np.asarray(flatten_obs(leaf, array)[OBS_KEY])

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool | None = None,
        *,
        reward: Any = None,
        action_mask: Any = None,
    ) -> tuple[Any, Any]:
        """Act by stable-baselines3's protocol, so that its ``evaluate_policy`` plays this policy.

        Args:
            observation: As the environment gives it, or one row per environment.
            state: What the last call returned; None begins episodes everywhere.
            episode_start: ``(B,)`` bool, rows that begin an episode.
            deterministic: Act greedily rather than by sampling; None acts as the policy does elsewhere.
            reward: ``(B,)`` of the last actions, for policies that read it. :func:`seqrl.with_prev_reward` brings it
                where the caller does not know it.
            action_mask: ``(B, A)`` legal actions.

        Returns:
            The actions, and a state that the next call has to be given.

        Raises:
            DataError: If another episode was played with this policy meanwhile, or what it reads is missing.
        """
        reward, observation = _split_reward(observation, reward)
        batched = self._is_batched(observation)
        if state is None:
            self.start_episode()
        elif state != self._calls:
            raise DataError("predict was given an outdated state, not the last call's; a policy plays one batch")
        elif episode_start is not None and np.any(episode_start):
            self.reset_rows(np.atleast_1d(np.asarray(episode_start, bool)))
        before = self.deterministic
        self._set_deterministic(before if deterministic is None else deterministic)
        try:
            actions = self(observation, reward=reward, batched_ob=batched, action_mask=action_mask)
        finally:
            self._set_deterministic(before)
        return actions, self._calls

    def _set_deterministic(self, deterministic: bool) -> None:
        self.deterministic = deterministic
        if self._vector is not None:
            self._vector.deterministic = deterministic

    def _is_batched(self, observation: Any) -> bool:
        """Tell whether an observation has a leading row dimension."""
        given = self._given(observation)
        for name, spec in self.algo.obs.items():
            if (key := name if name in given else name.removeprefix(GOAL_PREFIX)) in given:
                return _as_array(key, given[key]).ndim == len(spec.shape) + 1
        return False


def _as_array(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(with_readable_text(value))
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{entry_label(name)} is no array: {error}") from error


def _split_reward(observation: Any, reward: Any) -> tuple[Any, Any]:
    """Return the reward that :func:`seqrl.with_prev_reward` put into the observation, and what else is observed."""
    if reward is not None or not isinstance(observation, Mapping) or PREV_REWARD not in observation:
        return reward, observation
    rest = {k: v for k, v in observation.items() if k != PREV_REWARD}
    given = np.asarray(observation[PREV_REWARD], np.float32)
    return given.reshape(-1), rest[INNER] if set(rest) == {INNER} else rest


def _space_of(algo: Algo) -> spaces.Space[Any]:
    """Return a space of what an algorithm reads."""

    def leaf(spec: ObsSpec) -> spaces.Space[Any]:
        if spec.nvec is not None:
            return (
                spaces.MultiDiscrete(np.reshape(spec.nvec, spec.shape)) if spec.shape else spaces.Discrete(spec.nvec[0])
            )
        return infer_observation_space({"x": np.zeros((0, *spec.shape), spec.dtype)})["x"]

    if set(algo.obs) == {OBS_KEY}:
        return leaf(algo.obs[OBS_KEY])
    return spaces.Dict({name: leaf(spec) for name, spec in algo.obs.items()})
