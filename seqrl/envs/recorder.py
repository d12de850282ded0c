"""From time steps of many environments to whole trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqrl.core.errors import DataError
from seqrl.core.types import TimeStep, Trajectory

_CAPACITY = 256


class Recorder:
    """Collects what a batch of environments does, and hands out each trajectory when its episode ends.

    All rows advance together, so one cursor says where to write, and each row remembers where its piece began.

    Args:
        max_steps: Longest stored trajectory; a longer episode is stored in pieces that know what came before
            them. None stores whole episodes.
        is_staggered: Cut the first piece of row ``e`` of E after ``(e + 1) / E`` of ``max_steps``, so that rows which
            began together do not all hand out their pieces in the same step.
    """

    def __init__(self, max_steps: int | None = None, *, is_staggered: bool = False) -> None:
        self._max_steps = max_steps
        self._is_staggered = is_staggered
        self._buffers: dict[str, np.ndarray] = {}
        self._cursor = 0

    def start(self, step: TimeStep) -> None:
        """Begin with the result of ``reset``; whatever was unfinished is dropped (see :meth:`cut`)."""
        num_envs = len(step.reward)
        self._buffers, self._cursor = {}, 0
        self._begin = np.zeros(num_envs, np.int64)
        self._start_step = np.zeros(num_envs, np.int64)
        self._active = np.ones(num_envs, bool)
        self._before: list[tuple[Any, float]] = [(None, 0.0)] * num_envs
        self._limit = np.full(num_envs, self._max_steps or np.iinfo(np.int64).max)
        if self._max_steps is not None and self._is_staggered:
            self._limit = -(-self._max_steps * np.arange(1, num_envs + 1) // num_envs)
        self._write_inputs(step)

    def add(self, actions: np.ndarray, step: TimeStep) -> list[Trajectory]:
        """Take the environments' actions ``(E, ...)`` and the step that they led to; return what was finished."""
        return [trajectory for _, trajectory in self.add_by_row(actions, step)]

    def add_by_row(self, actions: np.ndarray, step: TimeStep) -> list[tuple[int, Trajectory]]:
        """Do as :meth:`add`, and return each trajectory with its row."""
        self._write("actions", actions)
        self._write("rewards", step.reward)
        self._cursor += 1
        if self._cursor >= len(self._buffers["rewards"]):
            self._make_room()
        self._write_inputs(step)
        finished: list[tuple[int, Trajectory]] = []
        if step.fault is not None:
            finished += self._cut_rows(np.flatnonzero(step.fault & self._active), self._cursor - 1)
        done = step.done & self._active
        if done.any():
            finished += [(int(row), self._ended(int(row), step)) for row in np.flatnonzero(done)]
            self._active &= ~done
        if step.is_first.any():
            self._restart(np.flatnonzero(step.is_first))
        if self._max_steps is not None:
            full = self._active & (self._cursor - self._begin >= self._limit)
            finished += [(int(row), self._piece(int(row), step.env_name[row])) for row in np.flatnonzero(full)]
        self._names = step.env_name
        return finished

    def cut(self) -> list[Trajectory]:
        """Hand out what is unfinished, as pieces that end where it stands; call :meth:`start` before going on."""
        return [trajectory for _, trajectory in self._cut_rows(np.flatnonzero(self._active), self._cursor)]

    def _cut_rows(self, rows: np.ndarray, end: int) -> list[tuple[int, Trajectory]]:
        """Hand out the transitions of some rows up to input ``end``, if there are any; no flag says that they ended."""
        cut = []
        for row in map(int, rows):
            if end > self._begin[row]:
                cut.append((row, self._trajectory(row, end, self._names[row])))
            self._active[row] = False
        return cut

    def _restart(self, rows: np.ndarray) -> None:
        self._begin[rows] = self._cursor
        self._start_step[rows] = 0
        self._active[rows] = True
        for row in rows:
            self._before[row] = (None, 0.0)

    # ------------------------------------------------------------------------------------------- writing
    def _write_inputs(self, step: TimeStep) -> None:
        for key, value in step.obs.items():
            self._write(f"obs/{key}", value)
        if step.action_mask is not None:
            self._write("action_mask", step.action_mask)

    def _write(self, name: str, value: np.ndarray) -> None:
        buffer = self._buffers.get(name)
        if buffer is None:
            capacity = max((len(b) for b in self._buffers.values()), default=_CAPACITY)
            buffer = self._buffers[name] = np.zeros((capacity, *value.shape), value.dtype)
        elif value.dtype != buffer.dtype and not np.can_cast(value.dtype, buffer.dtype, "same_kind"):
            raise DataError(f"{name} was {buffer.dtype} and is now {value.dtype}, which does not fit")
        buffer[self._cursor] = value

    def _make_room(self) -> None:
        """Move what is unfinished to the front, into larger buffers if it fills half of them."""
        first = int(self._begin[self._active].min(initial=self._cursor))
        live, capacity = self._cursor - first, len(self._buffers["rewards"])
        for name, buffer in self._buffers.items():
            target = np.zeros((2 * capacity, *buffer.shape[1:]), buffer.dtype) if 2 * live > capacity else buffer
            target[:live] = buffer[first : self._cursor].copy()
            self._buffers[name] = target
        self._begin -= first
        self._cursor = live

    # ------------------------------------------------------------------------------------------- reading
    def _trajectory(self, row: int, end: int, env_name: str) -> Trajectory:
        """Return the transitions of a row from where its piece began to input ``end``."""
        begin = int(self._begin[row])
        prev_action, prev_reward = self._before[row]
        mask = self._buffers.get("action_mask")
        return Trajectory(
            obs={k[4:]: v[begin : end + 1, row].copy() for k, v in self._buffers.items() if k.startswith("obs/")},
            actions=self._buffers["actions"][begin:end, row].copy(),
            rewards=self._buffers["rewards"][begin:end, row].copy(),
            terminated=np.zeros(end - begin, bool),
            truncated=np.zeros(end - begin, bool),
            env_name=env_name,
            start_step=int(self._start_step[row]),
            prev_action=prev_action,
            prev_reward=prev_reward,
            action_mask=None if mask is None else mask[begin : end + 1, row].copy(),
        )

    def _ended(self, row: int, step: TimeStep) -> Trajectory:
        """Return the trajectory of a row whose episode ended: its last input may have been reset away."""
        trajectory = self._trajectory(row, self._cursor, step.env_name[row])
        for name, values in trajectory.obs.items():
            values[-1] = step.final_obs[name][row]
        if trajectory.action_mask is not None and step.final_action_mask is not None:
            trajectory.action_mask[-1] = step.final_action_mask[row]
        trajectory.terminated[-1] = step.terminated[row]
        trajectory.truncated[-1] = step.truncated[row]
        return trajectory

    def _piece(self, row: int, env_name: str) -> Trajectory:
        """Hand out the steps so far, and go on with the same episode as a new piece."""
        piece = self._trajectory(row, self._cursor, env_name)
        self._before[row] = (piece.actions[-1], float(piece.rewards[-1]))
        self._start_step[row] += len(piece)
        self._begin[row] = self._cursor
        self._limit[row] = self._max_steps
        return piece
