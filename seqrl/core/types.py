"""The NumPy containers that cross borders: one stored trajectory, one step of many environments."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqrl.core.errors import DataError


@dataclass(frozen=True)
class Trajectory:
    """One stretch of experience from one environment, in environment units and dtypes, as it lies on disk.

    Input ``t`` is followed by action ``t``, which yields reward ``t`` and termination ``t``.

    Attributes:
        obs: Name -> array ``(T + 1, ...)``; the last row is the input after the last action.
        actions: ``(T, ...)``, as the environment takes them.
        rewards: ``(T,)`` float32, never scaled here.
        terminated: ``(T,)`` bool. The MDP ended; the value of the next input is zero.
        truncated: ``(T,)`` bool. A time limit cut the episode; bootstrap through it. A piece of an episode that went
            on, or that was cut off by storage, ends without either flag.
        env_name: Which task it came from.
        start_step: Steps of the episode before this piece; 0 where it holds the episode's beginning.
        prev_action: Action before ``start_step``; zeros at an episode's start.
        prev_reward: Reward before ``start_step``; zero at an episode's start.
        goal: Optional name -> array ``(T + 1, ...)``.
        action_mask: Optional ``(T + 1, A)`` bool, True where the action is legal.
    """

    obs: dict[str, np.ndarray]
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    env_name: str = ""
    start_step: int = 0
    prev_action: np.ndarray | None = None
    prev_reward: float = 0.0
    goal: dict[str, np.ndarray] = field(default_factory=dict)
    action_mask: np.ndarray | None = None

    def __len__(self) -> int:
        """Return T, the number of transitions."""
        return len(self.rewards)

    @property
    def total_reward(self) -> float:
        """Sum of the rewards."""
        return float(np.sum(self.rewards, dtype=np.float64))

    def check(self) -> Trajectory:
        """Return self if every array has its length, dtype and only finite numbers.

        Raises:
            DataError: That lists everything wrong.
        """
        problems = self._shape_problems()
        problems += self._nonfinite_problems() + ([] if problems else self._order_problems())
        if problems:
            raise DataError((f"trajectory of {self.env_name}: " if self.env_name else "") + "; ".join(problems))
        return self

    def _shape_problems(self) -> list[str]:
        steps = statistics.mode(map(len, (self.rewards, self.actions, self.terminated, self.truncated)))
        problems = [] if steps else ["it has no transitions"]
        arrays: dict[str, tuple[np.ndarray, int]] = {f"obs/{k}": (v, steps + 1) for k, v in self.obs.items()}
        arrays |= {f"goal/{k}": (v, steps + 1) for k, v in self.goal.items()}
        arrays |= {k: (getattr(self, k), steps) for k in ("actions", "rewards", "terminated", "truncated")}
        if self.action_mask is not None:
            arrays["action_mask"] = (self.action_mask, steps + 1)
        problems += [f"{k} has {len(v)} rows, not {n}" for k, (v, n) in arrays.items() if len(v) != n]
        problems += [
            f"{k} is of dtype {v.dtype}, not numbers" for k, (v, _) in arrays.items() if v.dtype.kind not in "biuf"
        ]
        flat = ("rewards", "terminated", "truncated")
        problems += [f"{k} has shape {arrays[k][0].shape}, not (T,)" for k in flat if arrays[k][0].ndim != 1]
        flags = [k for k in ("terminated", "truncated", "action_mask") if k in arrays]
        problems += [f"{k} is {arrays[k][0].dtype}, not bool" for k in flags if arrays[k][0].dtype != np.bool_]
        if self.start_step < 0:
            problems.append(f"start_step is {self.start_step}, not at least 0")
        if self.prev_action is not None and np.shape(self.prev_action) != self.actions.shape[1:]:
            problems.append(f"prev_action has shape {np.shape(self.prev_action)}, not {self.actions.shape[1:]}")
        return problems

    def _nonfinite_problems(self) -> list[str]:
        arrays: dict[str, Any] = {f"obs/{k}": v for k, v in self.obs.items()}
        arrays |= {f"goal/{k}": v for k, v in self.goal.items()}
        arrays |= {"actions": self.actions, "rewards": self.rewards, "prev_reward": np.asarray([self.prev_reward])}
        if self.prev_action is not None:
            arrays["prev_action"] = np.asarray(self.prev_action)[None]
        return [
            f"{k} has a non-finite value at step {int(np.argwhere(~np.isfinite(v))[0][0])}"
            for k, v in arrays.items()
            if np.issubdtype(v.dtype, np.floating) and not np.isfinite(v).all()
        ]

    def _order_problems(self) -> list[str]:
        problems = []
        ends = self.terminated | self.truncated
        if ends[:-1].any():
            problems.append(f"it continues after its end at step {int(np.argmax(ends))}")
        return problems


@dataclass(frozen=True)
class TimeStep:
    """One step of E environments, whatever their autoreset mode.

    A transition led into row ``e`` of this step unless ``is_first[e] and not done[e]``: it carries ``reward``,
    ``terminated`` and ``truncated``, and leads to ``final_obs`` where the episode ended and to ``obs`` elsewhere.

    Attributes:
        obs: Name -> array ``(E, ...)``, the input to act on.
        final_obs: Name -> array ``(E, ...)``; differs from ``obs`` only in rows that were reset in the same step.
        reward: ``(E,)`` float32.
        terminated: ``(E,)`` bool.
        truncated: ``(E,)`` bool.
        is_first: ``(E,)`` bool. ``obs`` begins an episode in this row.
        step: ``(E,)`` int64, steps since the episode of ``obs`` began.
        env_name: E names.
        success: ``(E,)`` bool, whether the environment reported success in this step.
        success_known: ``(E,)`` bool, whether it reported success or failure at all.
        log: Name -> (values ``(E,)``, present ``(E,)``) of the info entries under ``log/``.
        action_mask: Optional ``(E, A)`` bool, of ``obs``.
        final_action_mask: Of ``final_obs``; there if ``action_mask`` is.
        fault: Optional ``(E,)`` bool: the environment failed and was restarted. The row is ``truncated`` and
            ``is_first``, and no transition led here: what was before it is cut off where it stands.
    """

    obs: dict[str, np.ndarray]
    final_obs: dict[str, np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    is_first: np.ndarray
    step: np.ndarray
    env_name: tuple[str, ...]
    success: np.ndarray
    success_known: np.ndarray
    log: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    action_mask: np.ndarray | None = None
    final_action_mask: np.ndarray | None = None
    fault: np.ndarray | None = None

    @property
    def done(self) -> np.ndarray:
        """``(E,)`` bool: an episode ended in this step."""
        ended: np.ndarray = self.terminated | self.truncated
        return ended


@dataclass(frozen=True)
class ColumnStats:
    """Statistics of one column of data, feature by feature, in float64.

    Attributes:
        mean: ``(...)``.
        std: ``(...)``, of the population.
        min: ``(...)``.
        max: ``(...)``.
    """

    mean: np.ndarray
    std: np.ndarray
    min: np.ndarray
    max: np.ndarray
