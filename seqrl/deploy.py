"""A policy from an ONNX file: numpy and onnxruntime are all that it needs, on a robot or in a service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqrl.core.checkpoint_card import EXPORT_VERSION
from seqrl.core.errors import CheckpointError, DataError, format_problem
from seqrl.core.obs_entry import (
    ObsEntry,
    changed_rows,
    check_finite_actions,
    check_mask_is_given,
    check_present,
    check_rewards,
    checked_rows,
    counted_rows,
    mask_rows,
    num_rows_of,
)

_OBS, _STATE, _NOISE = "obs/", "state/", "noise/"


class OnnxPolicy:
    """Takes an environment's observations and returns actions, remembering the episode in between.

    Args:
        session: An ``onnxruntime.InferenceSession`` of a file that ``seqrl export`` wrote.
        facts: The file's metadata.
        seed: Of the noise that a sampled policy (``seqrl export --sample``) acts by; None takes a random one.

    Attributes:
        facts: Spaces, state, algorithm.
    """

    def __init__(self, session: Any, facts: Mapping[str, Any], *, seed: int | None = None) -> None:
        self.facts = dict(facts)
        self._rng = np.random.default_rng(seed)
        self._session = session
        self._inputs = {entry.name: entry.type for entry in session.get_inputs()}
        self._outputs = [entry.name for entry in session.get_outputs()]
        self._leaves = _leaves(self.facts["observation_space"], "")
        self._entries = {name: _entry(name, own) for name, own in self.facts["observations"].items()}
        self._state: dict[str, np.ndarray] | None = None
        self._is_first = np.zeros(0, bool)
        self._is_masked = False

    def start_episode(self) -> None:
        """Forget everything: all rows begin a new episode."""
        self._state, self._is_masked = None, False

    def reset_rows(self, rows: np.ndarray) -> None:
        """Begin a new episode in the rows that are True, in batched use.

        Raises:
            DataError: If they are no bools, or of another number.
        """
        if self._state is not None:
            rows = checked_rows(rows, len(self._is_first))
            self._is_first = self._is_first | rows
            self._is_masked = self._is_masked and not rows.all()

    def __call__(self, ob: Any, reward: Any = None, batched_ob: bool = False, action_mask: Any = None) -> Any:
        """Return the environment's action for one more observation; with ``batched_ob`` an array of one per row.

        Actions of a Dict or Tuple space are a dict or a tuple, of arrays with ``batched_ob``.

        Args:
            ob: As the environment gives it; with ``batched_ob``, one row per environment. Entries that the policy does
                not read may be left out.
            reward: Reward of the last action (one per row), needed if the policy was trained to read it.
            batched_ob: Whether ``ob`` has a leading row dimension.
            action_mask: ``(A,)`` bool, True where an action is legal; an observation entry of that name is read by
                itself.

        Raises:
            DataError: If the observation or the number of rows is not what the policy expects, or a number is not
                finite, of the action too; what the policy remembers is then as before.
        """
        obs = self._observed(ob, batched_ob)
        num_rows = num_rows_of(obs)
        state, is_first = self._state, self._is_first
        if state is None:
            state, is_first = self._empty(num_rows), np.ones(num_rows, bool)
        elif len(is_first) != num_rows:
            raise DataError(changed_rows(num_rows, len(is_first)))
        given = {_OBS + name: obs[name] for name in self.facts["observations"]}
        steps = np.where(is_first, 0, state["state/step"])
        if self.facts["max_step"] is not None and steps.max() > self.facts["max_step"]:
            raise DataError(f"this policy can act for at most {self.facts['max_step'] + 1} steps of an episode")
        given |= {"reward": self._reward(reward, is_first), "reset": is_first, **state}
        check_mask_is_given(action_mask is not None, was_given=self._is_masked)
        if action_mask is not None:
            rows = mask_rows(action_mask, num_rows, self.facts["factors"]) if batched_ob else [action_mask]
            given["action_mask"] = self._legal(rows, num_rows)
        elif self.facts["mask_entry"] is not None:
            given["action_mask"] = self._legal(obs.get(self.facts["mask_entry"]), num_rows)
        given |= self._noise(num_rows)
        found = self._session.run(None, {name: given[name] for name in self._inputs})
        answers = dict(zip(self._outputs, found, strict=True))
        actions = answers["action"]
        check_finite_actions(actions)
        self._state = {name: answers[f"next_{name}"] for name in state}
        self._is_first = np.zeros(num_rows, bool)
        self._is_masked = action_mask is not None
        return _taken(self.facts["action_space"], actions if batched_ob else actions[0])

    def _observed(self, ob: Any, batched_ob: bool) -> dict[str, np.ndarray]:
        """Return what the policy reads, and an action mask: name -> ``(rows, ...)``."""
        space = self.facts["observation_space"]
        own = space["spaces"] if space["type"] == "Dict" else {}
        if len(own) == 1 and not isinstance(ob, Mapping):
            ob = dict.fromkeys(own, ob)
        flat: dict[str, tuple[Mapping[str, Any], Any]] = {}
        if isinstance(ob, Mapping):  # names that are flat already, beside the space's own
            flat = {k: (self._leaves.get(k, {}), v) for k, v in ob.items() if k not in own}
        if own or not isinstance(ob, Mapping):
            flat |= _flat(space, ob, "")
        check_present(self._entries, flat)
        obs: dict[str, np.ndarray] = {}
        for name, entry in self._entries.items():
            obs[name] = self._array(name, entry, *flat[name], batched_ob)
        if (mask := self.facts["mask_entry"]) in flat and mask not in obs:
            row = np.asarray(flat[mask][1])
            obs[mask] = row if batched_ob else row[None]
        return obs

    def _array(self, name: str, entry: ObsEntry, space: Any, given: Any, is_batched: bool) -> np.ndarray:
        """Return an entry as the graph reads it: one row per environment, categories from 0."""
        try:
            array = np.asarray(given)
        except ValueError as error:  # rows of different lengths
            raise DataError(f"{entry.label} is no array: {error}") from error
        entry.check_form(array, is_batched=is_batched)
        if space and _is_image_of_bytes(space, array):
            raise DataError(f"{entry.label} is uint8 (0 to 255), but was an image of floats in training")
        array = array - np.asarray(space["start"]) if "start" in space else array
        rows = array if is_batched else array[None]
        kind = _numpy_type(self._inputs.get(_OBS + name, "tensor(float)"))
        if np.dtype(kind).kind == "f":  # before the look: a double may be too large for it
            with np.errstate(over="ignore"):
                rows = rows.astype(kind, copy=False)
        entry.check_values(rows)
        return rows.astype(kind, copy=False)

    def _reward(self, reward: Any, is_first: np.ndarray) -> np.ndarray:
        num_rows = len(is_first)
        if reward is None:
            if self.facts["reads_reward"] and not is_first.all():
                raise DataError(
                    "this policy was trained to read the previous reward, and none was given after the first step: "
                    "pass reward=..."
                )
            return np.zeros(num_rows, np.float32)
        rewards = np.atleast_1d(np.asarray(reward, np.float32))
        if rewards.shape != (num_rows,):
            raise DataError(f"reward has shape {rewards.shape}, but the observation has {counted_rows(num_rows)}")
        if self.facts["reads_reward"]:
            check_rewards(np.where(is_first, 0.0, rewards))
        return rewards

    def _legal(self, rows: Any, num_rows: int) -> np.ndarray:
        """Return which of a policy's actions are legal, from flags for each row; None allows all."""
        if self.facts["mask_entry"] is None:
            raise DataError("this policy takes no action_mask")
        width = self._shape("action_mask")[-1]
        legal = np.ones((num_rows, width), bool)
        if rows is None:
            return legal
        choices = sum(self.facts["factors"]) or width
        try:
            flags = [_joined(row) for row in rows]
        except (TypeError, ValueError) as error:
            raise DataError(f"action_mask is not {choices} flags for each of {num_rows} rows ({error})") from error
        sizes = [len(row) for row in flags]
        if sizes not in ([choices] * num_rows, [width] * num_rows):
            raise DataError(f"action_mask has {sizes} flags in its rows; give {choices} for each of {num_rows} rows")
        legal[:, width - sizes[0] :] = flags  # values beside choices are always legal
        parts = np.split(legal[:, width - choices :], np.cumsum(self.facts["factors"])[:-1], axis=-1)
        if self.facts["factors"] and not all(part.any(-1).all() for part in parts):
            raise DataError("an action mask leaves no legal action")
        return legal

    def _noise(self, num_rows: int) -> dict[str, np.ndarray]:
        widths = self.facts.get("noise", {}).items()
        return {_NOISE + kind: self._drawn(kind, (num_rows, width)) for kind, width in widths}

    def _drawn(self, kind: str, shape: tuple[int, int]) -> np.ndarray:
        return self._rng.standard_normal(shape, np.float32) if kind == "normal" else self._rng.random(shape, np.float32)

    def _empty(self, num_rows: int) -> dict[str, np.ndarray]:
        state = self.facts["state"].items()
        return {_STATE + name: np.zeros((num_rows, *facts["shape"]), facts["dtype"]) for name, facts in state}

    def _shape(self, name: str) -> list[int]:
        return next(list(entry.shape) for entry in self._session.get_inputs() if entry.name == name)


def policy_from_onnx(path: str | Path, *, num_threads: int = 1, seed: int | None = None) -> OnnxPolicy:
    """Load a policy that ``seqrl export`` wrote.

    Args:
        path: The file.
        num_threads: That one step may use.
        seed: Of the noise that a sampled policy acts by; None takes a random one. Greedy policies need none.

    Raises:
        CheckpointError: If the file is missing, or was not written by ``seqrl export``.
        DataError: If onnxruntime is not installed.
    """
    try:
        import onnxruntime  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ModuleNotFoundError as error:
        raise DataError("onnxruntime is not installed: pip install onnxruntime") from error
    if not Path(path).is_file():
        raise CheckpointError(f"{path} does not exist; write it with: seqrl export RUN --output {path}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        facts = json.loads(session.get_modelmeta().custom_metadata_map["seqrl"])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} was not written by 'seqrl export'") from error
    except Exception as error:
        raise CheckpointError(f"{path} is not an ONNX file that can be run ({error})") from error
    version = facts.get("format_version") if isinstance(facts, dict) else None
    if version != EXPORT_VERSION:
        raise CheckpointError(f"{path}: {format_problem('policy format', version, EXPORT_VERSION)}")
    return OnnxPolicy(session, facts, seed=seed)


def _entry(name: str, facts: Mapping[str, Any]) -> ObsEntry:
    nvec = facts["categories"]
    values = facts.get("values", "any")  # files of earlier versions do not say
    return ObsEntry(
        f"observation {name!r}", tuple(facts["shape"]), facts["dtype"], None if nvec is None else tuple(nvec), values
    )


def _flat(space: Mapping[str, Any], ob: Any, prefix: str) -> dict[str, tuple[Mapping[str, Any], Any]]:
    """Return name -> space and what is given of each leaf, nested names joined by ``/``, without what is missing."""
    if space["type"] not in ("Dict", "Tuple"):
        return {prefix or "obs": (space, ob)}
    is_dict = space["type"] == "Dict"
    if not isinstance(ob, Mapping if is_dict else (tuple, list, np.ndarray)):
        whole = f"observation {prefix!r}" if prefix else "the observation"
        raise DataError(f"{whole} does not fit its space: it is no {space['type'].lower()}, but {type(ob).__name__}")
    parts = space["spaces"].items() if is_dict else enumerate(space["spaces"])
    keys = ob if is_dict else range(len(ob))
    return {
        name: leaf
        for key, sub in parts
        if key in keys
        for name, leaf in _flat(sub, ob[key], f"{prefix}/{key}" if prefix else str(key)).items()
    }


def _leaves(space: Mapping[str, Any], prefix: str) -> dict[str, Mapping[str, Any]]:
    """Return name -> space of each leaf, nested names joined by ``/``."""
    if space["type"] not in ("Dict", "Tuple"):
        return {prefix or "obs": space}
    parts = space["spaces"].items() if space["type"] == "Dict" else enumerate(space["spaces"])
    found = [_leaves(sub, f"{prefix}/{key}" if prefix else str(key)) for key, sub in parts]
    return {name: leaf for part in found for name, leaf in part.items()}


def _is_image_of_bytes(space: Mapping[str, Any], array: np.ndarray) -> bool:
    """Tell whether 0 to 255 was given for an image of floats, unless its space goes up to there."""
    if array.dtype != np.uint8 or len(space.get("shape", ())) != 3 or np.dtype(space["dtype"]).kind != "f":
        return False
    top = np.array(space["high"], np.float64).max()
    return not (np.isfinite(top) and top >= 255)


def _joined(flags: Any) -> np.ndarray:
    """Return the flags of one row, which gymnasium gives as a tuple of arrays where there are several choices."""
    parts = [flags] if isinstance(flags, np.ndarray) else [np.asarray(part) for part in flags]
    return np.concatenate([np.zeros(0, bool), *(part.ravel() for part in parts)]).astype(bool)


def _numpy_type(kind: str) -> str:
    name = kind.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


def _taken(space: Mapping[str, Any], actions: np.ndarray) -> Any:
    """Return actions as the environment takes them: those of a Dict or a Tuple part by part."""
    if space["type"] not in ("Dict", "Tuple"):
        return _within(space, actions)
    parts = space["spaces"]
    named = sorted(parts.items()) if space["type"] == "Dict" else enumerate(parts)
    found, begin = {}, 0
    for key, sub in named:
        width = _num_numbers(sub)
        own = actions[..., begin : begin + width]
        if sub["type"] not in ("Dict", "Tuple"):
            own = own.reshape((*actions.shape[:-1], *_action_shape(sub)))
        found[key] = _taken(sub, own)
        begin += width
    return found if space["type"] == "Dict" else tuple(found.values())


def _num_numbers(space: Mapping[str, Any]) -> int:
    """Return of how many numbers an action consists."""
    if space["type"] in ("Dict", "Tuple"):
        parts = space["spaces"]
        return sum(_num_numbers(sub) for sub in (parts.values() if space["type"] == "Dict" else parts))
    return int(np.prod(_action_shape(space)))


def _action_shape(space: Mapping[str, Any]) -> tuple[int, ...]:
    if space["type"] in ("Box", "Discrete"):
        return tuple(space.get("shape", ()))
    return np.shape(space["nvec"]) if space["type"] == "MultiDiscrete" else tuple(np.atleast_1d(space["n"]))


def _within(space: Mapping[str, Any], actions: np.ndarray) -> np.ndarray:
    """Return actions of the dtype of their space, and within its bounds in that dtype."""
    if space["type"] != "Box":
        chosen: np.ndarray = np.rint(actions).astype(space.get("dtype", "int8"))
        return chosen
    low, high = (np.array(space[k], dtype=np.float64).reshape(-1) for k in ("low", "high"))
    shape = space["shape"]
    low, high = (np.broadcast_to(bound, int(np.prod(shape))).reshape(shape) for bound in (low, high))
    values = np.clip(actions.astype(np.float64), low, high)
    return (np.rint(values) if np.issubdtype(np.dtype(space["dtype"]), np.integer) else values).astype(space["dtype"])
