"""Meta-World (Yu et al., 2019, arXiv 1910.10897): tasks of a robot arm, and its benchmarks MT1 to MT50, ML1 to ML45."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import metaworld  # type: ignore[import-not-found,unused-ignore]
import numpy as np
from gymnasium import spaces
from metaworld import env_dict  # type: ignore[import-not-found,unused-ignore]

from seqrl.core.errors import EnvError, did_you_mean

PREFIX = "Meta-World/"
MOST_STEPS = 500
"""Steps after which Meta-World cuts an episode."""

_TABLES = {"MT10": "MT10_V3", "MT50": "MT50_V3", "ML10": "ML10_V3", "ML25": "ML25_V3", "ML45": "ML45_V3"}


class MetaWorld(gym.Env[np.ndarray, np.ndarray]):
    """Draws a task at each reset: one of the environments, and one of its 50 positions of goal and objects.

    In the benchmarks ML the goal is hidden (zeros), so it has to be found out; in MT it is observed, and where there
    are several environments, their number follows as a one-hot vector. ``info["success"]`` tells of the goal; at an
    episode's end ``log/success_<environment>`` tells it too.

    Args:
        names: Environments to draw from, such as ``reach-v3``.
        is_hidden: Whether the goal is hidden.
        split: Of the positions of ML1: those to train on, or those to test.
        task_seed: Of the positions; the same number gives the same 50.
        max_steps: Steps of an episode, at most Meta-World's own.
        render_mode: ``rgb_array``, ``human``, or None.
    """

    def __init__(
        self,
        names: list[str],
        *,
        is_hidden: bool,
        split: Literal["train", "test"] = "train",
        task_seed: int = 0,
        max_steps: int = MOST_STEPS,
        render_mode: str | None = None,
    ) -> None:
        self._max_steps, self._num_steps = min(max_steps, MOST_STEPS), 0
        self._names, self._is_hidden, self._split, self._task_seed = names, is_hidden, split, task_seed
        self.render_mode = render_mode
        self.metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 80}
        self._made: dict[str, tuple[Any, list[Any]]] = {}
        self._one_hot = np.eye(len(names)) if len(names) > 1 and not is_hidden else None
        self._name = names[0]
        first = self._inner(self._name)[0]
        self.action_space = first.action_space
        width = int(np.prod(first.observation_space.shape)) + (0 if self._one_hot is None else len(names))
        self.observation_space = spaces.Box(-np.inf, np.inf, (width,), np.float64)

    def _inner(self, name: str) -> tuple[Any, list[Any]]:
        """Return an environment and its tasks, which are made when they are first drawn: that takes a second."""
        if name not in self._made:
            made = (metaworld.ML1 if self._is_hidden else metaworld.MT1)(name, seed=self._task_seed)
            tasks = made.test_tasks if self._is_hidden and self._split == "test" else made.train_tasks
            self._made[name] = made.train_classes[name](render_mode=self.render_mode), list(tasks)
        return self._made[name]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a task."""
        super().reset(seed=seed)
        self._num_steps = 0
        self._name = self._names[int(self.np_random.integers(len(self._names)))]
        env, tasks = self._inner(self._name)
        env.set_task(tasks[int(self.np_random.integers(len(tasks)))])
        observation, _ = env.reset()
        return self._seen(observation), {"environment": self._name}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move the arm."""
        observation, reward, terminated, truncated, info = self._inner(self._name)[0].step(
            np.asarray(action, np.float32)
        )
        self._num_steps += 1
        truncated = bool(truncated) or self._num_steps == self._max_steps
        success = bool(info["success"])
        told: dict[str, Any] = {"success": success}
        if (terminated or truncated) and len(self._names) > 1:
            told[f"log/success_{self._name}"] = float(success)
        return self._seen(observation), float(reward), bool(terminated), truncated, told

    def _seen(self, observation: np.ndarray) -> np.ndarray:
        if self._one_hot is None:
            return np.asarray(observation, np.float64)
        return np.concatenate([observation, self._one_hot[self._names.index(self._name)]])

    def render(self) -> Any:
        """Return an image of the scene, the right way up."""
        image = self._inner(self._name)[0].render()
        return None if image is None else np.ascontiguousarray(image[::-1])

    def close(self) -> None:
        """Close what was made."""
        for env, _ in self._made.values():
            env.close()
        self._made.clear()


def make(
    env_id: str,
    *,
    env_name: str | None = None,
    split: Literal["train", "test"] = "train",
    task_seed: int = 0,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    disable_env_checker: bool | None = None,
) -> gym.Env[Any, Any]:
    """Return a task or a benchmark of Meta-World.

    Args:
        env_id: ``Meta-World/reach-v3`` and so on, ``Meta-World/MT1`` and ``Meta-World/ML1`` with ``env_name``, or
            ``Meta-World/MT10``, ``MT50``, ``ML10``, ``ML25``, ``ML45``.
        env_name: Environment of MT1 and ML1.
        split: Of ML: the environments (ML1: the positions) to train on, or those to test.
        task_seed: Of the positions of goals and objects.
        max_episode_steps: At most Meta-World's own 500, which is None.
        render_mode: ``rgb_array``, ``human``, or None.
        disable_env_checker: As in ``gymnasium.make``; nothing is checked here.

    Raises:
        EnvError: If there is no such task.
    """
    name = env_id.removeprefix(PREFIX)
    every = list(env_dict.ALL_V3_ENVIRONMENTS)
    is_hidden = name.startswith("ML")
    if split not in ("train", "test"):
        raise EnvError(f"environment {env_id!r}: split must be 'train' or 'test', got {split!r}")
    if name in _TABLES:
        table = getattr(env_dict, _TABLES[name])
        names = list(table[split] if is_hidden else table)
    else:
        names = [str(env_name) if name in ("MT1", "ML1") else name]
        if names[0] not in every:
            hint = did_you_mean(names[0], every) or f": there are {len(every)} tasks, such as {', '.join(every[:3])}"
            needs = (
                " needs env.kwargs.env_name" if env_name is None and name in ("MT1", "ML1") else f": no {names[0]!r}"
            )
            raise EnvError(f"environment {env_id!r}{needs}{hint}")
    steps = MOST_STEPS if max_episode_steps is None else max_episode_steps
    return MetaWorld(
        names, is_hidden=is_hidden, split=split, task_seed=task_seed, max_steps=steps, render_mode=render_mode
    )
