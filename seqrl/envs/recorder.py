"""From time steps of many environments to whole trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqrl.core.types import TimeStep, Trajectory


class Recorder:
    """Collects what a batch of environments does, and hands out each trajectory when its episode ends.

    Args:
        max_steps: Longest stored trajectory; a longer episode is stored in pieces that know what came before
            them. None stores whole episodes.
    """

    def __init__(self, max_steps: int | None = None) -> None:
        self._max_steps = max_steps
        self._buffers: dict[str, np.ndarray] = {}
        self._length = np.zeros(0, np.int64)

    def start(self, step: TimeStep) -> None:
        """Begin with the result of ``reset``; whatever was unfinished is dropped."""
        num_envs = len(step.reward)
        self._buffers = {}
        self._length = np.zeros(num_envs, np.int64)
        self._start_step = np.zeros(num_envs, np.int64)
        self._active = np.ones(num_envs, bool)
        self._before: list[tuple[Any, float]] = [(None, 0.0)] * num_envs
        self._write(np.arange(num_envs), _inputs(step.obs, step.action_mask, slice(None)))

    def add(self, actions: np.ndarray, step: TimeStep) -> list[Trajectory]:
        """Take the environments' actions ``(E, ...)`` and the step that they led to; return what was finished."""
        return [trajectory for _, trajectory in self.add_by_row(actions, step)]

    def add_by_row(self, actions: np.ndarray, step: TimeStep) -> list[tuple[int, Trajectory]]:
        """Do as :meth:`add`, and return each trajectory with its row."""
        moved = np.flatnonzero(self._active & (~step.is_first | step.done))
        self._write(
            moved,
            {
                "actions": actions[moved],
                "rewards": step.reward[moved],
                "terminated": step.terminated[moved],
                "truncated": step.truncated[moved],
            },
        )
        self._length[moved] += 1
        self._write(moved, _inputs(step.final_obs, step.final_action_mask, moved))
        self._active[moved] = ~step.done[moved]
        finished = [(int(row), self._trajectory(int(row), step.env_name[row])) for row in moved if step.done[row]]
        if self._max_steps is not None:
            full = [r for r in moved if not step.done[r] and self._length[r] >= self._max_steps]
            finished += [(int(row), self._piece(int(row), step.env_name[row])) for row in full]
        self._begin(np.flatnonzero(step.is_first), step)
        return finished

    def _begin(self, rows: np.ndarray, step: TimeStep) -> None:
        self._length[rows] = 0
        self._start_step[rows] = 0
        self._active[rows] = True
        for row in rows:
            self._before[row] = (None, 0.0)
        self._write(rows, _inputs(step.obs, step.action_mask, rows))

    def _write(self, rows: np.ndarray, values: dict[str, np.ndarray]) -> None:
        """Write one entry per row at the row's current length."""
        if not len(rows):
            return
        position = self._length[rows]
        for name, value in values.items():
            buffer = self._buffers.get(name)
            if buffer is None or position.max() >= buffer.shape[1]:
                buffer = self._grown(name, buffer, value)
            buffer[rows, position] = value

    def _grown(self, name: str, old: np.ndarray | None, value: np.ndarray) -> np.ndarray:
        capacity = 64 if old is None else 2 * old.shape[1]
        buffer = np.zeros((len(self._length), capacity, *value.shape[1:]), value.dtype)
        if old is not None:
            buffer[:, : old.shape[1]] = old
        self._buffers[name] = buffer
        return buffer

    def _trajectory(self, row: int, env_name: str) -> Trajectory:
        steps = int(self._length[row])
        prev_action, prev_reward = self._before[row]
        columns: dict[str, Any] = {
            k: self._buffers[k][row, :steps].copy() for k in ("actions", "rewards", "terminated", "truncated")
        }
        mask = self._buffers.get("action_mask")
        return Trajectory(
            action_mask=None if mask is None else mask[row, : steps + 1].copy(),
            obs={k[4:]: v[row, : steps + 1].copy() for k, v in self._buffers.items() if k.startswith("obs/")},
            env_name=env_name,
            start_step=int(self._start_step[row]),
            prev_action=prev_action,
            prev_reward=prev_reward,
            **columns,
        )

    def _piece(self, row: int, env_name: str) -> Trajectory:
        """Hand out the steps so far, and go on with the same episode as a new piece."""
        piece = self._trajectory(row, env_name)
        self._before[row] = (piece.actions[-1], float(piece.rewards[-1]))
        self._start_step[row] += len(piece)
        mask = None if piece.action_mask is None else piece.action_mask[-1:]
        last = _inputs({k: v[-1:] for k, v in piece.obs.items()}, mask, slice(None))
        self._length[row] = 0
        self._write(np.array([row]), last)
        return piece


def _inputs(obs: dict[str, np.ndarray], action_mask: np.ndarray | None, rows: Any) -> dict[str, np.ndarray]:
    """Return the columns that belong to an input, for some rows."""
    columns = {f"obs/{k}": v[rows] for k, v in obs.items()}
    return columns if action_mask is None else {**columns, "action_mask": action_mask[rows]}
