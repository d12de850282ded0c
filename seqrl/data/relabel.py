"""Relabelers: what changes stored trajectories or windows when they are sampled for training."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from seqrl.core.errors import DataError, did_you_mean
from seqrl.core.registry import RELABELERS
from seqrl.core.types import Trajectory

logger = logging.getLogger(__name__)

_TOLD: set[tuple[float, float]] = set()
"""Rewards of success and failure that were found not to be those of the data."""


class Relabeler:
    """Base of all relabelers. None changes the arrays that it is given.

    Attributes:
        needs: What it is given: batches of windows (cheap, vectorised), or whole trajectories, one by one.
    """

    needs: ClassVar[Literal["window", "trajectory"]]

    def relabel_window(self, columns: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the columns of a batch of windows, changed.

        Args:
            columns: A store's columns ``(B, T + 1, ...)``, with ``step`` ``(B, T + 1)`` and ``mask`` ``(B, T)``. The
                entry ``rewards`` ``(B, T)`` may be added: what the losses see, while policies read ``prev_reward``.
            rng: Source of randomness.
        """
        raise NotImplementedError(f"{type(self).__name__} does not relabel windows")

    def relabel_trajectory(self, trajectory: Trajectory, rng: np.random.Generator) -> Trajectory:
        """Return the trajectory, changed: consistent, perhaps shorter, with at least one transition.

        Args:
            trajectory: A whole stored one; its rewards are also what policies read as previous rewards.
            rng: Source of randomness.

        Raises:
            DataError: If an entry that the relabeler's settings name is missing, or has a wrong shape.
        """
        raise NotImplementedError(f"{type(self).__name__} does not relabel trajectories")


def relabelled(relabeler: Relabeler, trajectory: Trajectory, rng: np.random.Generator) -> Trajectory:
    """Return a trajectory as a relabeler of whole ones changes it.

    Raises:
        DataError: If that is none.
    """
    try:
        return relabeler.relabel_trajectory(trajectory, rng).check()
    except DataError as error:
        raise DataError(f"relabeler {type(relabeler).__name__}: {error}") from error


@RELABELERS.register("scale_rewards")
@dataclass(frozen=True, kw_only=True)
class ScaleRewards(Relabeler):
    """Rewards of the losses become ``clip(reward * scale + shift)``; previous rewards stay raw, as when acting.

    Attributes:
        scale: Factor.
        shift: Added after the factor.
        clip_low: Smallest reward after both, if any.
        clip_high: Largest reward after both, if any.
    """

    needs: ClassVar[Literal["window", "trajectory"]] = "window"

    scale: float = 1.0
    shift: float = 0.0
    clip_low: float | None = None
    clip_high: float | None = None

    def relabel_window(self, columns: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Add ``rewards``, or change those of the relabeler before."""
        raw = columns["rewards"] if "rewards" in columns else columns["prev_reward"][:, 1:]
        low = -np.inf if self.clip_low is None else self.clip_low
        high = np.inf if self.clip_high is None else self.clip_high
        rewards = np.clip(raw.astype(np.float64) * self.scale + self.shift, low, high)
        return {**columns, "rewards": rewards.astype(np.float32)}


@dataclass(frozen=True, kw_only=True)
class _GoalRelabeler(Relabeler):
    """What both hindsight relabelers share.

    Attributes:
        threshold: Euclidean distance, over the flattened goal, at which it counts as reached; 0 asks for equality.
        success_reward: Reward of reaching a goal.
        failure_reward: Reward of a transition that reaches none.
        probability: Share of the trajectories that get a new goal; the others stay as they are.
        achieved_key: Observation entry that holds what has been achieved.
        goal_key: Observation entry that holds the goal.
        terminate: End the trajectory, and cut it, at the success. Otherwise its ends stay where they are.
    """

    needs: ClassVar[Literal["window", "trajectory"]] = "trajectory"
    name: ClassVar[str]

    threshold: float
    success_reward: float
    failure_reward: float
    probability: float = 0.8
    achieved_key: str = "achieved_goal"
    goal_key: str = "desired_goal"
    terminate: bool = True

    def _entry(self, trajectory: Trajectory, setting: str) -> np.ndarray:
        key = getattr(self, setting)
        if key not in trajectory.obs:
            raise self._error(trajectory, setting, "is not an observation entry" + did_you_mean(key, trajectory.obs))
        return trajectory.obs[key]

    def _error(self, trajectory: Trajectory, setting: str, text: str) -> DataError:
        entries = ", ".join(f"{k} {v.shape} {v.dtype}" for k, v in sorted(trajectory.obs.items())) or "none"
        return DataError(f"{self.name}: {setting} {getattr(self, setting)!r} {text}; the entries are: {entries}")

    def _rewritten(
        self, trajectory: Trajectory, changes: dict[str, np.ndarray], rewards: np.ndarray, end: int
    ) -> Trajectory:
        """Return the first ``end`` transitions with new rewards, and new rows of the entries that settings name."""
        rows = end + 1
        obs = {k: v[:rows] for k, v in trajectory.obs.items()}
        for setting, values in changes.items():
            key = getattr(self, setting)
            obs[key] = values[:rows].astype(obs[key].dtype, order="C")
            if obs[key].dtype.kind != "f" and not np.array_equal(obs[key], values[:rows]):
                raise self._error(trajectory, setting, f"cannot hold the new values, which are {values.dtype}")
        terminated, truncated = trajectory.terminated[:end], trajectory.truncated[:end]
        if self.terminate:
            terminated, truncated = np.arange(end) == end - 1, np.zeros(end, bool)
        return replace(
            trajectory,
            obs=obs,
            goal={k: v[:rows] for k, v in trajectory.goal.items()},
            actions=trajectory.actions[:end],
            rewards=rewards[:end].astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            action_mask=None if trajectory.action_mask is None else trajectory.action_mask[:rows],
        )


def checked_window(name: str, given: Mapping[str, np.ndarray], relabelled: Any) -> dict[str, np.ndarray]:
    """Return what a relabeler made of a batch of windows.

    Args:
        name: Of the relabeler.
        given: What it was given.
        relabelled: What it returned.

    Raises:
        DataError: If that is no dict, or a column is unknown or of another shape.
    """
    if not isinstance(relabelled, Mapping):
        raise DataError(f"{name}.relabel_window returned {type(relabelled).__name__}, not the dict of columns")
    shapes = {**{key: column.shape for key, column in given.items()}, "rewards": given["mask"].shape}
    for key, column in relabelled.items():
        if key not in shapes:
            raise DataError(f"{name}.relabel_window returned the column {key!r}{did_you_mean(key, shapes)}")
        if np.shape(column) != shapes[key]:
            raise DataError(f"{name}.relabel_window: {key!r} has shape {np.shape(column)}, not {shapes[key]}")
    return dict(relabelled)


@RELABELERS.register("hindsight")
@dataclass(frozen=True, kw_only=True)
class Hindsight(_GoalRelabeler):
    """One goal, in gymnasium's GoalEnv layout, is replaced by one that was achieved (hindsight experience replay).

    Attributes:
        strategy: The new goal is what the last input has achieved, or that of a random input after the first.
    """

    name: ClassVar[str] = "hindsight"

    success_reward: float = 0.0
    failure_reward: float = -1.0
    strategy: Literal["final", "future"] = "final"

    def relabel_trajectory(self, trajectory: Trajectory, rng: np.random.Generator) -> Trajectory:
        """Replace the goal, recompute the rewards, and cut at the first transition that leads to the goal."""
        achieved, goal = self._entry(trajectory, "achieved_key"), self._entry(trajectory, "goal_key")
        if achieved.shape != goal.shape:
            raise self._error(trajectory, "goal_key", f"has shape {goal.shape}, not {achieved.shape} as achieved_key")
        self._compare_rewards(trajectory.rewards)
        if rng.random() >= self.probability:
            return trajectory
        steps = len(trajectory)
        chosen = steps if self.strategy == "final" else int(rng.integers(1, steps + 1))
        reached = _within(achieved[1:], achieved[chosen], self.threshold)  # at ``chosen`` at the latest
        rewards = np.where(reached, self.success_reward, self.failure_reward)
        end = int(np.argmax(reached)) + 1 if self.terminate else steps
        changes = {"goal_key": np.broadcast_to(achieved[chosen], goal.shape)}
        return self._rewritten(trajectory, changes, rewards, end)

    def _compare_rewards(self, rewards: np.ndarray) -> None:
        """Warn, once, if the data pays something else than relabelled trajectories do."""
        pays = self.success_reward, self.failure_reward
        if pays in _TOLD or np.isin(rewards, np.asarray(pays, np.float32)).all():
            return
        _TOLD.add(pays)
        logger.warning(
            "%s: the data has rewards from %g to %g, and relabelled trajectories get %g at the goal and %g elsewhere. "
            "Set success_reward and failure_reward to what the environment pays",
            self.name, rewards.min(), rewards.max(), *pays,
        )  # fmt: skip


@RELABELERS.register("hindsight_sequence")
@dataclass(frozen=True, kw_only=True)
class HindsightSequence(_GoalRelabeler):
    """K goals to be reached in order are replaced by what was achieved at K times.

    Attributes:
        progress_key: Observation entry with the number of goals reached so far, if any.
    """

    name: ClassVar[str] = "hindsight_sequence"

    success_reward: float = 1.0
    failure_reward: float = 0.0
    progress_key: str | None = None

    def relabel_trajectory(self, trajectory: Trajectory, rng: np.random.Generator) -> Trajectory:
        """Replace the goals, recompute rewards and progress, and cut where the last goal is reached."""
        achieved, goals, progress = self._checked_entries(trajectory)
        if rng.random() >= self.probability:
            return trajectory
        steps, num_goals = len(trajectory), goals.shape[1]
        chosen = 1 + np.sort(rng.choice(steps, num_goals, replace=steps < num_goals))
        newly, last = np.zeros(steps, np.int64), 0
        for row in chosen:  # transition ``last`` reaches the goal that was achieved at ``row``, row - 1 at the latest
            last += int(np.argmax(_within(achieved[1 + last :], achieved[row], self.threshold)))
            newly[last] += 1
        rewards = np.where(newly > 0, self.success_reward * newly, self.failure_reward)
        changes = {"goal_key": np.broadcast_to(achieved[chosen], goals.shape)}
        if progress is not None:
            changes["progress_key"] = np.concatenate([[0], np.cumsum(newly)]).reshape(progress.shape)
        return self._rewritten(trajectory, changes, rewards, last + 1 if self.terminate else steps)

    def _checked_entries(self, trajectory: Trajectory) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        achieved, goals = self._entry(trajectory, "achieved_key"), self._entry(trajectory, "goal_key")
        rows = len(trajectory) + 1
        if achieved.ndim != 2:
            raise self._error(trajectory, "achieved_key", f"has shape {achieved.shape}, not (T + 1, D)")
        if goals.ndim != 3 or goals.shape[1] < 1 or goals.shape[::2] != achieved.shape:
            legal = f"({rows}, K, {achieved.shape[1]}): K goals like those of achieved_key"
            raise self._error(trajectory, "goal_key", f"has shape {goals.shape}, not {legal}")
        progress = None if self.progress_key is None else self._entry(trajectory, "progress_key")
        if progress is not None and progress.size != rows:
            raise self._error(trajectory, "progress_key", f"has shape {progress.shape}, not one element per input")
        return achieved, goals, progress


def _within(achieved: np.ndarray, goal: np.ndarray, threshold: float) -> np.ndarray:
    """Return ``(N,)`` bool: whether each of N rows lies within the threshold of the goal."""
    flat, target = achieved.reshape(len(achieved), -1), np.reshape(goal, -1)
    if threshold == 0:
        return np.asarray((flat == target).all(axis=1))
    return np.asarray(np.linalg.norm(flat.astype(np.float64) - target, axis=1) <= threshold)
