"""Stored episodes again: their actions in an environment, with what comes out otherwise; or their images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import DataError, EnvError, did_you_mean
from seqrl.core.rotations import with_rotations
from seqrl.core.spaces import ActionCodec, flatten_obs
from seqrl.core.types import Trajectory
from seqrl.data.store import Store
from seqrl.data.store_info import StoreInfo
from seqrl.envs.check.values import answer_fault
from seqrl.envs.faults import rendered, told
from seqrl.rollout.agreement import check_actions
from seqrl.rollout.video import as_picture, captioned, fitted, side_by_side

TOLERANCE = 1e-5
"""Differences up to this, absolute and relative to the stored value, are rounding."""

OnPicture = Callable[[np.ndarray], None]


@dataclass
class Replay:
    """What came of one episode whose actions were played again.

    Attributes:
        name: Of the episode.
        num_steps: Steps that were played.
        num_stored: Steps that are stored.
        compared: Observation entries that dataset and environment both have.
        first_step: First input (0 is that of the reset) that differs; None if none does.
        largest: Largest difference of an observation.
        largest_key: Where it is.
        largest_step: When.
        reward: Largest difference of a reward that is more than rounding.
    """

    name: str
    num_steps: int
    num_stored: int
    compared: tuple[str, ...] = ()
    first_step: int | None = None
    largest: float = 0.0
    largest_key: str = ""
    largest_step: int = 0
    reward: float = 0.0

    @property
    def is_as_stored(self) -> bool:
        """Whether all its steps were played, and nothing that was compared differs by more than rounding."""
        return self.first_step is None and self.num_steps == self.num_stored and self.reward == 0

    def text(self) -> str:
        """Return one line for people."""
        played = f"{self.num_steps} steps" if self.num_steps == self.num_stored else (
            f"{self.num_steps} of {self.num_stored} steps (the environment ended there)"
        )  # fmt: skip
        if not self.compared:
            result = "nothing to compare"
        elif self.first_step is None:
            result = f"observations as stored (largest difference {self.largest:.3g})"
        else:
            result = (
                f"observations differ from step {self.first_step} on; "
                f"at most by {self.largest:.4g} ({self.largest_key}, step {self.largest_step})"
            )
        rewards = f"; rewards by up to {self.reward:.4g}" if self.reward else ""
        return f"{self.name}  {played}  {result}{rewards}"

    def compare(self, step: int, stored: dict[str, np.ndarray], obs: dict[str, np.ndarray]) -> None:
        """Take in the observation of one step, and the stored one."""
        for key in self.compared:
            expected, found = (np.asarray(v, np.float64) for v in (stored[key][step], obs[key]))
            gap = np.nan_to_num(np.abs(found - expected), nan=np.inf)
            if self.first_step is None and (gap > TOLERANCE * (1 + np.abs(expected))).any():
                self.first_step = step
            if gap.max(initial=0.0) > self.largest:
                self.largest, self.largest_key, self.largest_step = float(gap.max()), key, step


def replay(
    env: gym.Env[Any, Any],
    info: StoreInfo,
    trajectory: Trajectory,
    name: str,
    *,
    seed: int,
    state: Mapping[str, Any] | None = None,
    on_picture: OnPicture | None = None,
    every: int = 1,
    only_first: bool = False,
) -> Replay:
    """Play the actions of a trajectory, one after the other, from a reset with a seed, and compare what comes.

    Args:
        env: Where; with ``render_mode="rgb_array"`` if there is ``on_picture``.
        info: Of the dataset.
        trajectory: A whole episode.
        name: Its name.
        seed: Of the reset; a trajectory does not hold its own.
        state: Of the simulator, in which the episode began; the environment needs ``reset_to``.
        on_picture: Takes every ``every``-th frame, and the last one.
        every: See ``on_picture``.
        only_first: Reset only.

    Raises:
        DataError: If it is a later piece of an episode.
        EnvError: If the environment takes other actions, fails, or renders nothing where it should.
    """
    if trajectory.start_step:
        raise DataError(f"{name} begins at step {trajectory.start_step} of its episode, which a reset cannot reach")
    actions = _actions_of(env, info, trajectory.actions)[: 0 if only_first else None]
    with _failing(f"{name}, reset"):
        obs = flatten_obs(env.observation_space, begun(env, seed, state))
    same = tuple(k for k, v in trajectory.obs.items() if k in obs and np.shape(obs[k]) == v.shape[1:])
    codec, result = ActionCodec(env.action_space), Replay(name, 0, len(actions), same)
    result.compare(0, trajectory.obs, obs)
    total = 0.0
    if on_picture is not None:
        on_picture(_picture(env, result, total))
    for t, action in enumerate(actions):
        with _failing(f"{name}, step {t + 1}"):
            answer: Any = env.step(codec.nested(action))
            if (fault := answer_fault("step", answer)) is not None:
                raise EnvError(fault.text)
            obs, reward = flatten_obs(env.observation_space, answer[0]), float(answer[1])
        is_last = bool(answer[2] or answer[3]) or t + 1 == len(actions)
        total += reward
        result.num_steps = t + 1
        stored = float(trajectory.rewards[t])
        if not (gap := abs(reward - stored)) <= TOLERANCE * (1 + abs(stored)):
            result.reward = max(result.reward, math.inf if math.isnan(gap) else gap)
        if info.has_next_obs or t + 1 < len(trajectory):
            result.compare(t + 1, trajectory.obs, obs)
        if on_picture is not None and (is_last or (t + 1) % every == 0):
            on_picture(_picture(env, result, total))
        if is_last:
            break
    return result


@contextmanager
def _failing(where: str) -> Iterator[None]:
    """Say where an environment failed.

    Raises:
        EnvError: If something is raised inside.
    """
    try:
        yield
    except Exception as error:  # whatever the code of others raises
        raise EnvError(f"{where}: the environment fails: {told(error)}") from error


def begun(env: gym.Env[Any, Any], seed: int, state: Mapping[str, Any] | None) -> Any:
    """Reset an environment, go to a state of its simulator if there is one, and return what is observed."""
    obs, _ = env.reset(seed=seed)
    return obs if state is None else env.get_wrapper_attr("reset_to")(dict(state))


def goes_to_states(env: gym.Env[Any, Any]) -> bool:
    """Tell whether an environment can be set to a state: it has ``reset_to(state)``, as robomimic's have."""
    return env.has_wrapper_attr("reset_to")


def show_states(
    env: gym.Env[Any, Any], states: Mapping[str, Any], name: str, on_picture: OnPicture, *, every: int, only_first: bool
) -> None:
    """Draw the stored states of an episode, one after the other.

    Args:
        env: With ``reset_to``, and ``render_mode="rgb_array"``.
        states: ``states`` ``(T, S)``, and ``model``.
        name: Of the episode.
        on_picture: Takes the pictures.
        every: Draw every n-th state.
        only_first: Draw the first one.

    Raises:
        EnvError: If the environment renders nothing.
    """
    env.reset()
    rows = states["states"][: 1 if only_first else None]
    for step, row in enumerate(rows):
        if step == 0 or step % every == 0:
            model = {"model": states["model"]} if step == 0 else {}
            env.get_wrapper_attr("reset_to")({**model, "states": row})
            frame: Any = rendered(env)
            if frame is None:
                raise EnvError("the environment renders nothing, so there is nothing to write")
            on_picture(captioned(fitted(as_picture(frame)), (name, f"step {step}")))


def _actions_of(env: gym.Env[Any, Any], info: StoreInfo, actions: np.ndarray) -> np.ndarray:
    """Return stored actions as the environment takes them; some data without a space is scaled to [-1, 1]."""
    name = env.spec.id if env.spec else str(env)
    if info.spaces_are_known:
        check_actions(env.action_space, info.action_space, name)
        return actions
    ours = action_codec(info.action_space)
    theirs = action_codec(with_rotations(env.action_space, info.action_space))
    if theirs.kind != ours.kind or theirs.shape != ours.shape:
        raise EnvError(
            f"environment {name!r} takes {env.action_space}, but the data's actions are like {info.action_space}"
        )
    is_scaled = theirs.kind == "continuous" and info.actions_are_scaled
    return theirs.decode(ours.encode(actions)) if is_scaled else actions


def _picture(env: gym.Env[Any, Any], result: Replay, total: float) -> np.ndarray:
    frame: Any = rendered(env)
    if frame is None:
        raise EnvError(
            "the environment renders nothing, so there is nothing to write; leave --output out, or draw stored images "
            "with --obs KEY"
        )
    state = "as stored" if result.first_step is None else f"differs from step {result.first_step} on"
    return captioned(fitted(as_picture(frame)), (result.name, f"step {result.num_steps}, return {total:.4g}", state))


# ------------------------------------------------------------------------------------ stored images
def image_keys(store: Store) -> list[str]:
    """Return the observation entries that can be drawn: ``(H, W)``, ``(H, W, C)`` or ``(C, H, W)``."""
    shapes = {k[4:]: shape for k, (_, shape) in store.schema.items() if k.startswith("obs/")}
    return [k for k, shape in shapes.items() if len(shape) in (2, 3) and sorted(shape)[-2] > 1]


def check_image_keys(store: Store, keys: Sequence[str], where: str) -> None:
    """Check that entries of a dataset can be drawn; ``where`` names it in messages.

    Raises:
        DataError: That names the entries that are no images, and those that are.
    """
    legal = image_keys(store)
    if not keys:
        raise DataError(f"{where}: no observation is an image")
    has = f"image-like entries: {', '.join(legal) or 'none'}"
    for key in keys:
        if f"obs/{key}" not in store.schema:
            raise DataError(f"{where}: no observation {key!r}{did_you_mean(key, legal)}; {has}")
        if key not in legal:
            shape = store.schema[f"obs/{key}"][1]
            raise DataError(f"{where}: {key!r} has shape {shape} and is no image; {has}")


def draw_stored(
    trajectory: Trajectory,
    name: str,
    keys: Sequence[str],
    on_picture: OnPicture,
    *,
    every: int = 1,
    only_first: bool = False,
) -> None:
    """Draw the stored images of a trajectory, several entries side by side.

    ``uint8`` images are drawn as they are, floats in [0, 1] as such, and anything else (depth) from the least to the
    largest value of the episode.
    """
    limits = {key: image_limits(trajectory.obs[key]) for key in keys}
    for t in range(0, 1 if only_first else len(trajectory) + 1, every):
        total = float(np.sum(trajectory.rewards[:t], dtype=np.float64))
        lines = (name, f"step {t}, return {total:.4g}")
        tiles = [
            captioned(fitted(as_picture(trajectory.obs[k][t], limits[k])), (*lines, k) if len(keys) > 1 else lines)
            for k in keys
        ]
        on_picture(side_by_side(tiles))


def image_limits(images: np.ndarray) -> tuple[float, float] | None:
    """Return what is black and what is white in the images of an episode; None where the dtype says it."""
    if images.dtype in (np.uint8, np.bool_):
        return None
    low, high = float(images.min()), float(images.max())
    return (0.0, 1.0) if images.dtype.kind == "f" and low >= 0 and high <= 1 else (low, high)
