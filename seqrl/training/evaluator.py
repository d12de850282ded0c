"""Evaluation: fixed episodes, own generators, no influence on training."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from seqrl.algo.algo import Algo
from seqrl.configs.sections.run import EvaluationSection
from seqrl.core.errors import EnvError
from seqrl.core.seeding import integer_seed
from seqrl.envs.make import MakeEnv, make_batched_env
from seqrl.envs.metrics import Episode
from seqrl.envs.vector import BatchedEnv
from seqrl.training.rollouts import AlgoPolicy, evaluate_episodes
from seqrl.training.statistics import summarize_episodes

MAX_FRAMES = 400


class Evaluator:
    """Rolls the policy out in its own environments, which live as long as the evaluator.

    Args:
        section: How many episodes, over how many environments.
        make_env: Makes one environment, or a vector of them.
        vectorization: ``sync`` or ``async``.
        seed: The run's seed.
    """

    def __init__(self, section: EvaluationSection, make_env: MakeEnv, vectorization: Any, seed: int) -> None:
        self._section = section
        self._make_env = make_env
        self._seed = seed
        self._vectorization = vectorization
        self._env: BatchedEnv | None = None

    @property
    def env(self) -> BatchedEnv:
        """The environments, made on first use and again after :meth:`close`."""
        if self._env is None:
            num_envs = min(self._section.num_envs, self._section.episodes)
            self._env = make_batched_env(self._make_env, num_envs, vectorization=self._vectorization)
        return self._env

    def evaluate(self, algo: Algo, epoch: int) -> tuple[dict[str, float], list[Episode]]:
        """Return metrics and episodes of the policy as it is after ``epoch`` epochs."""
        begin = time.perf_counter()
        with evaluation_mode(algo, integer_seed(self._seed, "eval", "policy", epoch)):
            policy = AlgoPolicy(algo, self.env.num_envs, deterministic=self._section.deterministic)
            seed = integer_seed(self._seed, "eval", "env", epoch)
            episodes = evaluate_episodes(self.env, policy, self._section.episodes, seed=seed)
        metrics = summarize_episodes(episodes)
        metrics["time/evaluation_s"] = time.perf_counter() - begin
        return metrics, episodes

    def close(self) -> None:
        """Close the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None


def record_animation(
    algo: Algo, make_env: MakeEnv, num_episodes: int, *, seed: int, deterministic: bool = True
) -> tuple[list[np.ndarray], list[Episode]]:
    """Return up to 400 frames of ``num_episodes`` episodes in one environment, and their results.

    ``make_env`` must make an environment with ``render_mode="rgb_array"``.

    Raises:
        EnvError: If it renders nothing.
    """
    # In the next-step mode the last frame of an episode is rendered before the environment is reset.
    env = BatchedEnv(SyncVectorEnv([make_env], autoreset_mode=AutoresetMode.NEXT_STEP))
    frames: list[np.ndarray] = []

    def keep(_actions: Any, _step: Any) -> None:
        frame = env.render()
        if len(frame) and frame[0] is not None and len(frames) < MAX_FRAMES:
            frames.append(np.asarray(frame[0], np.uint8))

    try:
        with evaluation_mode(algo, integer_seed(seed, "animation")):
            policy = AlgoPolicy(algo, 1, deterministic=deterministic)
            episodes = evaluate_episodes(env, policy, num_episodes, seed=integer_seed(seed, "animation"), on_step=keep)
    finally:
        env.close()
    if not frames:
        raise EnvError("the environment renders nothing; it needs render_mode='rgb_array'")
    return frames, episodes


@contextmanager
def evaluation_mode(algo: Algo | None, seed: int) -> Iterator[None]:
    """Switch to evaluation with a generator of its own, and restore both afterwards; without an algo, do nothing."""
    if algo is None:
        yield
        return
    training = algo.nets.training
    devices = [algo.device] if algo.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        algo.set_eval()
        try:
            yield
        finally:
            if training:
                algo.set_train()
