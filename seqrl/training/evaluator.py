"""Evaluation: fixed episodes, own generators, no influence on training."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from seqrl.algo.algo import Algo
from seqrl.configs.sections.run import EvaluationSection
from seqrl.core.errors import EnvError
from seqrl.core.seeding import integer_seed
from seqrl.envs.metrics import Episode
from seqrl.envs.vector import BatchedEnv
from seqrl.training.rollouts import AlgoPolicy, OnStep, evaluate_episodes
from seqrl.training.statistics import summarize_episodes


class Evaluator:
    """Rolls the policy out in its own environments, which live as long as the evaluator.

    Args:
        section: How many episodes, over how many environments.
        build: Makes that many parallel environments.
        seed: The run's seed.
        least: Fewest parallel environments, so that every task has one.
    """

    def __init__(
        self, section: EvaluationSection, build: Callable[[int], BatchedEnv], seed: int, *, least: int = 1
    ) -> None:
        self._section = section
        self._build = build
        self._seed = seed
        self._num_envs = max(min(section.num_envs, section.episodes), least)
        self._env: BatchedEnv | None = None

    @property
    def env(self) -> BatchedEnv:
        """The environments, made on first use and again after :meth:`close`."""
        if self._env is None:
            self._env = self._build(self._num_envs)
        return self._env

    def evaluate(
        self,
        algo: Algo,
        epoch: int,
        *,
        episodes: int | None = None,
        max_steps: int | None = None,
        on_step: OnStep | None = None,
    ) -> tuple[dict[str, float], list[Episode]]:
        """Return metrics and episodes of the policy as it is after ``epoch`` epochs.

        Args:
            algo: The policy.
            epoch: With the seed it decides the episodes.
            episodes: How many; None takes ``section.episodes``, or all that end within ``max_steps`` if that is given.
            max_steps: Stop after so many steps of each environment; None takes ``section.max_steps_per_env``.
            on_step: See :func:`seqrl.training.rollouts.evaluate_episodes`.

        Raises:
            EnvError: If no episode ended.
        """
        if episodes is None and max_steps is None:
            episodes, max_steps = self._section.episodes, self._section.max_steps_per_env
        begin = time.perf_counter()
        with evaluation_mode(algo, integer_seed(self._seed, "eval", "policy", epoch)):
            policy = AlgoPolicy(algo, self.env.num_envs, deterministic=self._section.deterministic)
            seed = integer_seed(self._seed, "eval", "env", epoch)
            ended = evaluate_episodes(self.env, policy, episodes, seed=seed, max_steps=max_steps, on_step=on_step)
        if not ended:
            raise EnvError(
                f"no episode ended within {max_steps} steps of each environment; allow more, or count episodes"
            )
        metrics = summarize_episodes(ended)
        metrics["time/evaluation_s"] = time.perf_counter() - begin
        return metrics, ended

    def close(self) -> None:
        """Close the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None


@contextmanager
def evaluation_mode(algo: Algo | None, seed: int) -> Iterator[None]:
    """Switch to evaluation with a generator of its own, and restore both afterwards; without an algo, do nothing."""
    if algo is None:
        yield
        return
    training = algo.nets.training
    devices = [algo.device] if algo.device.type == "cuda" else []
    states = random.getstate(), np.random.get_state()  # noqa: NPY002  (an environment may draw from it)
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        algo.set_eval()
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
            if training:
                algo.set_train()
