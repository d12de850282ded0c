"""Evaluation: fixed episodes, own generators, no influence on training."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import torch

from seqrl.algo.acting import evaluating
from seqrl.algo.algo import Algo
from seqrl.algo.engine import Engines
from seqrl.configs.sections.run import EvaluationSection, ReferenceScoresSection
from seqrl.core.errors import EnvError
from seqrl.core.seeding import integer_seed
from seqrl.envs.metrics import Episode, told_successes
from seqrl.envs.vector import BatchedEnv
from seqrl.reports.intervals import Estimate, mean_interval, share_interval
from seqrl.reports.statistics import bottom_quintile, iqm_interval
from seqrl.rollout.rollouts import AlgoPolicy, OnStep, evaluate_episodes

logger = logging.getLogger(__name__)


class Evaluator:
    """Rolls the policy out in its own environments, which live as long as the evaluator.

    Args:
        section: How many episodes, over how many environments.
        build: Makes that many parallel environments.
        seed: The run's seed.
        least: Fewest parallel environments and episodes, so that every task has one.
        summarize: From the episodes to metrics; None is :func:`summarize_episodes`.
        reference: For normalised scores, beside the returns.
    """

    def __init__(
        self,
        section: EvaluationSection,
        build: Callable[[int], BatchedEnv],
        seed: int,
        *,
        least: int = 1,
        summarize: Callable[[list[Episode]], dict[str, float]] | None = None,
        reference: ReferenceScoresSection | None = None,
    ) -> None:
        self._section = section
        self._build = build
        self._seed = seed
        self._summarize = summarize or summarize_episodes
        self._reference = reference
        self._least = least
        self._num_envs = max(min(section.num_envs, section.episodes), least)
        self._env: BatchedEnv | None = None
        self._engines = Engines(section.engine)

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
            episodes: How many, at least one per task; None takes ``section.episodes``, or all that end within
                ``max_steps`` if that is given.
            max_steps: Stop after so many steps of each environment; None takes ``section.max_steps_per_env``.
            on_step: See :func:`seqrl.rollout.rollouts.evaluate_episodes`.

        Raises:
            EnvError: If no episode ended within ``max_steps``. If ``section.max_steps_per_env`` says how many, that is
                a warning, and there are no metrics.
        """
        is_asked = max_steps is not None
        if episodes is None and max_steps is None:
            episodes, max_steps = self._section.episodes, self._section.max_steps_per_env
        episodes = None if episodes is None else max(episodes, self._least)
        begin = time.perf_counter()
        self.env.codec = algo.codec
        faults_before = self.env.num_faults
        with evaluation_mode(algo, integer_seed(self._seed, "eval", "policy", epoch)):
            is_greedy = self._section.deterministic
            engine = self._engines.ready(algo, deterministic=is_greedy)
            policy = AlgoPolicy(algo, self.env.num_envs, deterministic=is_greedy, engine=engine)
            seed = integer_seed(self._seed, "eval", "env", epoch)
            ended = evaluate_episodes(self.env, policy, episodes, seed=seed, max_steps=max_steps, on_step=on_step)
        warn_of_faults(self.env, faults_before)
        if not ended and not is_asked:
            logger.warning(
                "no episode ended within experiment.evaluation.max_steps_per_env, %s steps: nothing was evaluated",
                max_steps,
            )
            return {}, []
        if not ended:
            raise EnvError(
                f"no episode ended within {max_steps} steps of each environment; allow more, or count episodes"
            )
        metrics = self._summarize(ended)
        metrics |= normalized_scores(metrics, self._reference)
        metrics["time/evaluation_s"] = time.perf_counter() - begin
        return metrics, ended

    def close(self) -> None:
        """Close the environments."""
        if self._env is not None:
            self._env.close()
            self._env = None


def warn_of_faults(env: BatchedEnv, before: int) -> None:
    """Warn of environments that failed since there were so many failures: episodes that they cut short do not count."""
    if failed := env.num_faults - before:
        text = "an environment failed %s in evaluation; episodes that this cut short do not count: %s"
        logger.warning(text, "once" if failed == 1 else f"{failed} times", env.last_fault)


@contextmanager
def evaluation_mode(algo: Algo | None, seed: int, *, is_averaged: bool = True) -> Iterator[None]:
    """Switch to evaluation with a generator of its own, and restore both afterwards; without an algo, do nothing.

    Args:
        algo: The policy.
        seed: Of the generator.
        is_averaged: Take the averages of the weights, if there are any.
    """
    if algo is None:
        yield
        return
    devices = [algo.device] if algo.device.type == "cuda" else []
    states = random.getstate(), np.random.get_state()  # noqa: NPY002  (an environment may draw from it)
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            with evaluating(algo), algo.averaged() if is_averaged else nullcontext():
                yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def summarize_episodes(episodes: Sequence[Episode], prefix: str = "eval") -> dict[str, float]:
    """Return ``group/name`` -> number for the episodes of one evaluation.

    With several environment names, each has its own group, and the plain names hold the means over names.

    Raises:
        ValueError: If there is no episode.
    """
    if not episodes:
        raise ValueError("no episode was finished")
    by_name: dict[str, list[Episode]] = {}
    for episode in episodes:
        by_name.setdefault(episode.env_name, []).append(episode)
    parts = {name: _summary(group) for name, group in sorted(by_name.items())}
    if len(parts) == 1:
        (overall,) = parts.values()
        return {f"{prefix}/{k}": v for k, v in overall.items()}
    keys = [k for k in dict.fromkeys(k for part in parts.values() for k in part) if not k.endswith(("_low", "_high"))]
    overall = {k: float(np.mean([part[k] for part in parts.values() if k in part])) for k in keys}
    overall["episodes"] = float(len(episodes))
    each = {f"{prefix}/{name}/{k}": v for name, part in parts.items() for k, v in part.items()}
    return {f"{prefix}/{k}": v for k, v in overall.items()} | each


def normalized_scores(metrics: Mapping[str, float], reference: ReferenceScoresSection | None) -> dict[str, float]:
    """Return ``.../score_mean`` for each ``.../return_mean``, with its interval: 0 as random play, 100 as an expert.

    Args:
        metrics: From :func:`summarize_episodes`.
        reference: Their returns; None gives nothing.

    Source: Fu et al. (2020), D4RL, arXiv 2004.07219, section 5.
    """
    if reference is None:
        return {}
    unit = (reference.expert - reference.random) / 100
    names = {f"return_mean{end}": f"score_mean{end}" for end in ("", "_low", "_high")}
    found = [(key.rpartition("/"), value) for key, value in metrics.items()]
    return {f"{key[0]}/{names[key[2]]}": (v - reference.random) / unit for key, v in found if key[2] in names}


def _summary(episodes: Sequence[Episode]) -> dict[str, float]:
    returns = np.array([e.total_reward for e in episodes])
    out = {
        **_with_ends("return_mean", mean_interval(returns)),
        **_with_ends("return_iqm", iqm_interval(returns)),
        "return_bottom_quintile": bottom_quintile(returns),
        "length_mean": float(np.mean([e.length for e in episodes])),
        "episodes": float(len(episodes)),
    }
    if known := told_successes(episodes):
        out |= _with_ends("success_mean", share_interval(sum(known), len(known)))
    for key in sorted({k for e in episodes for k in e.log}):
        out[key] = float(np.mean([e.log[key] for e in episodes if key in e.log]))
    return out


def _with_ends(name: str, found: Estimate) -> dict[str, float]:
    """Return a value, and the ends of its interval if it has one."""
    ends = {f"{name}_low": found.low, f"{name}_high": found.high}
    return {name: found.value} | {key: end for key, end in ends.items() if end is not None}
