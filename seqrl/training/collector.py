"""Acting in training environments, and recording what happens."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqrl.algo.acting import Engine
from seqrl.algo.algo import Algo
from seqrl.algo.engine import Engines
from seqrl.configs.sections.run import CollectSection
from seqrl.core.registry import EXPLORATIONS
from seqrl.core.seeding import integer_seed, seed_sequence
from seqrl.core.types import TimeStep, Trajectory
from seqrl.envs.exploration import Exploration
from seqrl.envs.metrics import Episode, EpisodeMetrics, told_successes
from seqrl.envs.recorder import Recorder
from seqrl.envs.vector import BatchedEnv
from seqrl.rollout.evaluator import evaluation_mode
from seqrl.rollout.rollouts import AlgoPolicy


@dataclass
class CollectStats:
    """What one epoch of collecting came to.

    Attributes:
        env_steps: Environment name -> transitions.
        episodes: Those that ended.
        num_faults: Failures of environments.
        last_fault: What the last one was.
        env_s: Seconds in the environments.
        policy_s: Seconds in the policy and the exploration.
        record_s: Seconds of recording and writing.
    """

    env_steps: Counter[str] = field(default_factory=Counter)
    episodes: list[Episode] = field(default_factory=list)
    num_faults: int = 0
    last_fault: str = ""
    env_s: float = 0.0
    policy_s: float = 0.0
    record_s: float = 0.0

    @property
    def num_steps(self) -> int:
        """Transitions of all environments."""
        return sum(self.env_steps.values())

    def shares(self, elapsed: float) -> str:
        """Return where the time went, for a progress bar."""
        parts = (("env", self.env_s), ("policy", self.policy_s), ("record", self.record_s))
        return ", ".join(f"{name} {100 * spent / max(elapsed, 1e-9):.0f} %" for name, spent in parts)

    def metrics(self, epsilon: float) -> dict[str, float]:
        """Return what to log, as ``collect/...``; ``epsilon`` is the exploration's mean."""
        out = {"collect/episodes": float(len(self.episodes)), "collect/faults": float(self.num_faults)}
        if self.episodes:
            out["collect/return_mean"] = float(np.mean([e.total_reward for e in self.episodes]))
            out["collect/length_mean"] = float(np.mean([e.length for e in self.episodes]))
        if known := told_successes(self.episodes):
            out["collect/success_mean"] = float(np.mean(known))
        out["collect/epsilon_mean"] = epsilon
        return out


def merged(parts: Sequence[CollectStats]) -> CollectStats:
    """Return what several processes, or batches, came to; seconds are means over them."""
    if len(parts) == 1:
        return parts[0]
    return CollectStats(
        env_steps=sum((p.env_steps for p in parts), Counter()),
        episodes=[e for p in parts for e in p.episodes],
        num_faults=sum(p.num_faults for p in parts),
        last_fault=next((p.last_fault for p in parts if p.last_fault), ""),
        env_s=sum(p.env_s for p in parts) / len(parts),
        policy_s=sum(p.policy_s for p in parts) / len(parts),
        record_s=sum(p.record_s for p in parts) / len(parts),
    )


def build_exploration(section: CollectSection, env: BatchedEnv, seed: int, rank: int) -> Exploration:
    """Return the exploration that the run file names."""
    name, options = section.exploration.choice()
    source = seed_sequence(seed, "explore", rank)
    exploration: Exploration = EXPLORATIONS.get(name)(env.codec, env.num_envs, source, **options)
    return exploration


class Collector:
    """Plays in its environments, which go on where they were from one epoch to the next.

    Args:
        algo: Gives the actions.
        env: Training environments.
        exploration: Disturbs the actions.
        section: How many steps per epoch, and how they are stored.
        write: Takes each finished trajectory.
        seed: The run's seed.
        rank: Of this process; every rank plays other episodes.
    """

    def __init__(
        self,
        algo: Algo,
        env: BatchedEnv,
        exploration: Exploration,
        section: CollectSection,
        write: Callable[[Trajectory], None],
        *,
        seed: int,
        rank: int = 0,
    ) -> None:
        self.env = env
        self.exploration = exploration
        self._algo = algo
        self._section = section
        self._write = write
        self._seed, self._rank = seed, rank
        self._recorder = Recorder(section.trajectory_steps, is_staggered=section.stagger_trajectories)
        self._metrics = EpisodeMetrics(env.num_envs)
        self._engines = Engines(section.engine)
        self._policy: AlgoPolicy | None = None
        self._step: TimeStep | None = None

    def collect(self, epoch: int, on_step: Callable[[int, CollectStats], Any] | None = None) -> CollectStats:
        """Take the steps of one epoch.

        Args:
            epoch: Number of the epoch; with the seed it decides the policy's samples.
            on_step: Called after each vector step with the number of rows and what was
                collected so far.

        Raises:
            EnvError: If environments fail too often.
            DataError: If what they give is inconsistent, or cannot be written.
        """
        stats = CollectStats()
        faults_before = self.env.num_faults
        seed = integer_seed(self._seed, "collect", self._rank, epoch)
        with evaluation_mode(self._algo, seed, is_averaged=False):
            engine = self._engines.ready(self._algo, deterministic=self._section.deterministic, explores=True)
            step, policy = self._begin(epoch, engine)
            self._step = None  # until it is whole: after an error, the next call begins anew
            for _ in range(self._section.steps_per_epoch):
                step = self._advance(step, policy, stats)
                if on_step is not None:
                    on_step(self.env.num_envs, stats)
        self._step = step
        stats.num_faults = self.env.num_faults - faults_before
        stats.last_fault = self.env.last_fault if stats.num_faults else ""
        return stats

    def _begin(self, epoch: int, engine: Engine | None) -> tuple[TimeStep, AlgoPolicy]:
        """Return the step to go on from: the last one, or that of a reset."""
        every = self._section.reset_every_n_epochs
        if self._step is not None and self._policy is not None and not (every and epoch % every == 0):
            return self._step, self._policy
        self.cut()
        step = self.env.reset(integer_seed(self._seed, "collect", "env", self._rank, epoch))
        self._recorder.start(step)
        self._metrics = EpisodeMetrics(self.env.num_envs)
        self._policy = AlgoPolicy(
            self._algo,
            self.env.num_envs,
            deterministic=self._section.deterministic,
            exploration=self.exploration,
            engine=engine,
        )
        return step, self._policy

    def _advance(self, step: TimeStep, policy: AlgoPolicy, stats: CollectStats) -> TimeStep:
        begin = time.perf_counter()
        actions = policy(step)
        acted = time.perf_counter()
        step = self.env.step(actions)
        stepped = time.perf_counter()
        for trajectory in self._recorder.add(self.env.codec.decode(actions), step):
            self._write(trajectory)
        is_real = ~step.is_first | step.done
        if step.fault is not None:
            is_real &= ~step.fault
        names = step.env_name if is_real.all() else [n for n, real in zip(step.env_name, is_real, strict=True) if real]
        stats.env_steps.update(names)
        stats.episodes += self._metrics.add(step)
        stats.policy_s += acted - begin
        stats.env_s += stepped - acted
        stats.record_s += time.perf_counter() - stepped
        return step

    @property
    def epsilon(self) -> float:
        """Mean of the exploration's last epsilons."""
        return float(self.exploration.epsilon.mean())

    def cut(self) -> None:
        """Store unfinished episodes as pieces that end where they stand; the next call of :meth:`collect` resets."""
        if self._step is not None:
            for trajectory in self._recorder.cut():
                self._write(trajectory)
        self.cut_off()

    def cut_off(self) -> None:
        """Drop unfinished episodes; the next call of :meth:`collect` resets."""
        self._step = self._policy = None

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
