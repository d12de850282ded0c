"""Videos of a policy at work."""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from seqrl.algo.algo import Algo
from seqrl.core.errors import EnvError
from seqrl.core.types import TimeStep
from seqrl.envs.faults import RestartingMaker
from seqrl.envs.make import make_env
from seqrl.envs.metrics import Episode
from seqrl.envs.vector import BatchedEnv
from seqrl.rollout.environments import Makers
from seqrl.rollout.evaluator import evaluation_mode
from seqrl.rollout.rollouts import AlgoPolicy, evaluate_episodes, row_quota
from seqrl.rollout.video import VideoWriter, as_picture, captioned, fitted, side_by_side

MAX_TASKS = 9


class Film:
    """Draws the first episodes of every row, side by side, with their task, number, step, return and success below.

    It is a hook for :func:`seqrl.rollout.rollouts.evaluate_episodes`. A row that has shown its episodes stands still.

    Args:
        env: Whose frames are drawn.
        video: Takes the pictures.
        num_episodes: How many, spread over the rows.
        every: Draw every n-th step, besides the last one of an episode.
        max_frames: Draw no more than that.
        max_s: Draw nothing more after so many seconds.
        subgoals: Asked for what the rows are on their way to, entry -> ``(E, W)``. It is drawn where the environment
            has a method ``draw_subgoal(frame, subgoal)`` that returns the frame with the subgoal in it.
    """

    def __init__(
        self,
        env: BatchedEnv,
        video: VideoWriter,
        num_episodes: int,
        *,
        subgoals: Callable[[], Mapping[str, np.ndarray]] = dict,
        every: int = 1,
        max_frames: int | None = None,
        max_s: float = math.inf,
    ) -> None:
        num = env.num_envs
        self._ends_at = time.monotonic() + max_s
        self._env, self._video, self._every, self._max_frames = env, video, every, max_frames
        self._subgoals = subgoals
        self._quota = row_quota(num_episodes, num)
        self._num_steps = 0
        self._return, self._length, self._number = np.zeros(num), np.zeros(num, np.int64), np.ones(num, np.int64)
        self._success, self._known, self._ended = np.zeros(num, bool), np.zeros(num, bool), np.zeros(num, bool)
        self._tiles: list[np.ndarray | None] = [None] * num

    def __call__(self, actions: np.ndarray | None, step: TimeStep) -> None:
        """Take the step that the policy's actions led to, and draw it if it is time.

        Raises:
            EnvError: If the environment renders nothing.
        """
        is_drawn = self._num_steps % self._every == 0 or bool(step.done.any())
        self._num_steps += 1
        self._count(step, is_start=actions is None)
        if self._max_frames is not None and self._video.num_frames >= self._max_frames:
            return
        if is_drawn and time.monotonic() < self._ends_at:
            self._draw(step)

    def _count(self, step: TimeStep, *, is_start: bool) -> None:
        begun = self._ended
        self._number += begun
        self._return = np.where(begun, 0.0, self._return) + (0.0 if is_start else step.reward)
        real = ~step.is_first | step.done
        self._length = np.where(begun, 0, self._length) + real
        self._success = (self._success & ~begun) | (step.success & real)
        self._known = (self._known & ~begun) | (step.success_known & real)
        self._quota = self._quota - begun
        self._ended = step.done.copy()

    def _draw(self, step: TimeStep) -> None:
        frames = self._env.render()
        if len(frames) != self._env.num_envs or any(f is None for f in frames):
            raise EnvError("the environment renders nothing; it has to be made with render_mode='rgb_array'")
        for row, frame in enumerate(self._with_subgoals(frames)):
            if self._quota[row] > 0 or self._tiles[row] is None:
                self._tiles[row] = captioned(fitted(as_picture(frame)), self._caption(row, step.env_name[row]))
        self._video.add(side_by_side([tile for tile in self._tiles if tile is not None]))

    def _with_subgoals(self, frames: Sequence[Any]) -> list[Any]:
        """Return the frames with what each row is on its way to, where its environment can draw that."""
        subgoals, envs = self._subgoals(), getattr(self._env.env, "envs", [None] * len(frames))
        drawn = list(frames)
        for row, env in enumerate(envs if subgoals else ()):
            draw = getattr(env and env.unwrapped, "draw_subgoal", None)
            if draw is not None and self._length[row] > 0:
                drawn[row] = draw(np.array(frames[row]), {k: v[row] for k, v in subgoals.items()})
        return drawn

    def _caption(self, row: int, env_name: str) -> tuple[str, str]:
        """Return two lines; a success is told at once, a failure when the episode is over."""
        outcome = ""
        if self._known[row] and (self._success[row] or self._ended[row]):
            outcome = ": success" if self._success[row] else ": failure"
        task = f"{env_name}, " if len(self._tiles) > 1 else ""
        return (
            f"{task}episode {self._number[row]}{outcome}",
            f"step {self._length[row]}, return {self._return[row]:.4g}",
        )


def rendering_env(makers: Makers) -> BatchedEnv:
    """Return environments that render arrays: one of each maker (up to 9), in this process.

    Those that are named by an id get ``render_mode="rgb_array"``; a callable of the user's has to set it itself.
    """
    singles = [_rendering(maker) for maker in ([makers] if callable(makers) else makers[:MAX_TASKS])]
    first = singles[0]()
    if isinstance(first, VectorEnv):
        return BatchedEnv(first)
    first.close()
    rows = [RestartingMaker(single, is_restarting=False) for single in singles]
    # In the next-step mode the last frame of an episode is rendered before the environment is reset.
    return BatchedEnv(SyncVectorEnv(rows, autoreset_mode=AutoresetMode.NEXT_STEP))


def _rendering(maker: Any) -> Any:
    return functools.partial(maker, render_mode="rgb_array") if is_named(maker) else maker


def why_not_rendered(makers: Makers) -> str | None:
    """Return why environments that are named by an id cannot render arrays, or None if they can.

    A callable of the user's that makes them itself is believed to.
    """
    for maker in [makers] if callable(makers) else makers[:MAX_TASKS]:
        if is_named(maker):
            env = maker()
            modes, make = env.metadata.get("render_modes") or (), getattr(env.spec, "entry_point", None)
            env.close()
            if "rgb_array" not in modes:
                return "the environment has no render mode 'rgb_array'"
            if callable(make) and not _takes_render_mode(make):
                return (
                    f"{getattr(make, '__name__', make)}() has no argument 'render_mode' to pass on to the environment"
                )
    return None


def _takes_render_mode(make: Any) -> bool:
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # written in C
        return True
    return "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def is_named(maker: Any) -> bool:
    """Tell whether a callable makes an environment by its id, so that it can be told to render."""
    return getattr(maker, "func", None) is make_env


def record_episodes(
    algo: Algo,
    makers: Makers,
    video: VideoWriter,
    num_episodes: int,
    *,
    seed: int,
    policy_seed: int,
    deterministic: bool | None = None,
    every: int = 1,
    max_frames: int | None = None,
    max_s: float = math.inf,
) -> list[Episode]:
    """Roll a policy out before the camera, and return the episodes that ended; the run's generators are not touched.

    Args:
        algo: The policy.
        makers: What makes the environments, one of each (up to 9), shown side by side.
        video: Takes the pictures.
        num_episodes: How many, at least one of each maker.
        seed: Of the environments.
        policy_seed: Of a policy that samples.
        deterministic: Act greedily; False samples, None does what the run's evaluations did.
        every: See :class:`Film`.
        max_frames: Stop after so many.
        max_s: Draw nothing more after so many seconds.

    Raises:
        EnvError: If the environment cannot be made or renders nothing.
    """
    with evaluation_mode(algo, policy_seed):
        env = rendering_env(makers)
        env.codec = algo.codec
        try:
            num_episodes = max(num_episodes, env.num_envs)
            policy = AlgoPolicy(algo, env.num_envs, deterministic=deterministic)
            options: dict[str, Any] = {"every": every, "max_frames": max_frames, "max_s": max_s}
            film = Film(env, video, num_episodes, subgoals=policy.subgoals, **options)
            max_steps = None if max_frames is None else every * max_frames
            return evaluate_episodes(env, policy, num_episodes, seed=seed, on_step=film, max_steps=max_steps)
        finally:
            env.close()
