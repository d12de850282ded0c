"""The loop between policies and environments, for collecting and for evaluation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from seqrl.algo.acting import Engine, VectorPolicy
from seqrl.algo.algo import Algo
from seqrl.core.seeding import generator
from seqrl.core.types import TimeStep, Trajectory
from seqrl.envs.experts import make_expert
from seqrl.envs.exploration import Exploration
from seqrl.envs.metrics import Episode, EpisodeMetrics
from seqrl.envs.recorder import Recorder
from seqrl.envs.vector import BatchedEnv

logger = logging.getLogger(__name__)

ENDLESS_AFTER = 10_000
"""Steps without the end of an episode, after which that is said."""

OnStep = Callable[[np.ndarray | None, TimeStep], None]


class StepPolicy(Protocol):
    """Anything that acts in a :class:`BatchedEnv`."""

    def __call__(self, step: TimeStep) -> np.ndarray:
        """Return policy actions ``(E, A)`` for a time step."""


class AlgoPolicy:
    """An algorithm as a :class:`StepPolicy`.

    Args:
        algo: Gives the actions.
        num_envs: How many rows.
        deterministic: Act greedily; False samples, None does what the run's evaluations did.
        exploration: Disturbs the actions, in training environments.
        clear_at: Step of each episode before whose input everything seen is forgotten; None never does that.
        engine: Takes the steps instead of the algorithm.
    """

    def __init__(
        self,
        algo: Algo,
        num_envs: int,
        *,
        deterministic: bool | None,
        exploration: Exploration | None = None,
        clear_at: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        explores = exploration is not None
        self._vector = VectorPolicy(algo, num_envs, deterministic=deterministic, explores=explores, engine=engine)
        self._exploration = exploration
        self._clear_at = clear_at

    def __call__(self, step: TimeStep) -> np.ndarray:
        """Forget the rows that begin, then act."""
        self._vector.reset(step.is_first | step.terminated | step.truncated)  # what it does at an end is not used
        if self._clear_at is not None:
            self._vector.clear_memory(step.step == self._clear_at)
        actions = self._vector.act(step.obs, step.reward, action_mask=step.action_mask)
        if self._exploration is None:
            return actions
        executed = self._exploration(actions, step)
        if executed is not actions:
            self._vector.note_executed(executed)
        return executed

    def subgoals(self) -> dict[str, np.ndarray]:
        """Return what the rows are on their way to: entry -> ``(B, W)``; nothing without subgoals."""
        return self._vector.subgoals()


class ScriptedPolicy:
    """One scripted expert per row as a :class:`StepPolicy`. Experts read observations that are one flat array.

    Args:
        env_id: Whose expert.
        env: Where it acts.
        noise: Probability, at each step, of a uniformly random action instead of the expert's.
        seed: Of the noise.
    """

    def __init__(self, env_id: str, env: BatchedEnv, *, noise: float = 0.0, seed: int = 0) -> None:
        self._experts = [make_expert(env_id) for _ in range(env.num_envs)]
        self._codec = env.codec
        self._noise = noise
        self._rng = generator(seed, "noise")

    def __call__(self, step: TimeStep) -> np.ndarray:
        """Reset the experts of rows that begin, then ask each."""
        single = len(step.obs) == 1
        actions = []
        for row, expert in enumerate(self._experts):
            if step.is_first[row]:
                expert.reset()
            obs = {k: v[row] for k, v in step.obs.items()}
            actions.append(expert(next(iter(obs.values())) if single else obs))
        chosen = self._codec.encode(np.stack([self._codec.flat(a) for a in actions]))
        if not self._noise:
            return chosen
        is_random = self._rng.random(len(chosen)) < self._noise
        return np.where(is_random[:, None], self._codec.random(self._rng, len(chosen), step.action_mask), chosen)


def play(
    env: BatchedEnv, policy: StepPolicy, *, seed: int | None = None
) -> Iterator[tuple[np.ndarray | None, TimeStep]]:
    """Yield the first time step (with no action), then each executed policy action ``(E, A)`` and its time step."""
    step = env.reset(seed=seed)
    yield None, step
    while True:
        actions = policy(step)
        step = env.step(actions)
        yield actions, step


def collect_episodes(env: BatchedEnv, policy: StepPolicy, num_episodes: int, *, seed: int) -> Iterator[Trajectory]:
    """Yield ``num_episodes`` whole episodes.

    Each row contributes its first episodes, as evenly as possible: taking whatever ends first would favour short ones.

    Args:
        env: Where.
        policy: Who.
        num_episodes: How many.
        seed: Of the environments.
    """
    collector = EpisodeCollector(env, num_episodes)
    for actions, step in play(env, policy, seed=seed):
        collector(actions, step)
        yield from collector.taken()
        if collector.is_complete:
            return


class EpisodeCollector:
    """Records the first episodes of each row, as evenly as possible, from a stream of steps; none cut short by a fault.

    Args:
        env: What is recorded.
        num_episodes: How many; None takes all.

    Attributes:
        trajectories: What has been recorded and not been taken.
    """

    def __init__(self, env: BatchedEnv, num_episodes: int | None) -> None:
        self.trajectories: list[Trajectory] = []
        self._codec = env.codec
        self._recorder = Recorder()
        self._quota = row_quota(num_episodes, env.num_envs)

    def __call__(self, actions: np.ndarray | None, step: TimeStep) -> None:
        """Take the policy's actions and the step that they led to."""
        if actions is None:
            self._recorder.start(step)
            return
        recorded = self._recorder.add_by_row(self._codec.decode(actions), step)
        whole = _whole(step)
        wanted = (self._quota > 0) & whole
        self.trajectories += [trajectory for row, trajectory in recorded if wanted[row]]
        self._quota -= whole

    def taken(self) -> list[Trajectory]:
        """Return what has been recorded, and forget it."""
        taken, self.trajectories = self.trajectories, []
        return taken

    @property
    def is_complete(self) -> bool:
        """Whether every row has given its episodes."""
        return bool((self._quota <= 0).all())


def evaluate_episodes(
    env: BatchedEnv,
    policy: StepPolicy,
    num_episodes: int | None,
    *,
    seed: int,
    on_step: OnStep | None = None,
    max_steps: int | None = None,
) -> list[Episode]:
    """Return the results of ``num_episodes`` episodes, the first ones of each row, in the order of rows and time.

    Args:
        env: Where.
        policy: Who.
        num_episodes: How many; None takes all that end within ``max_steps``.
        seed: Of the environments.
        on_step: Called with the policy's actions (None at first) and the time step that they led to.
        max_steps: Stop after so many steps of each environment; favours short episodes.
    """
    metrics = EpisodeMetrics(env.num_envs)
    quota = row_quota(num_episodes, env.num_envs)
    episodes: list[Episode] = []
    for number, (actions, step) in enumerate(play(env, policy, seed=seed)):
        if on_step is not None:
            on_step(actions, step)
        if actions is not None:
            ended = metrics.add(step)
            episodes += [e for e in ended if quota[e.row] > 0]
            quota -= _whole(step)
        if (quota <= 0).all() or number == max_steps:
            break
        if number == ENDLESS_AFTER and not episodes:
            logger.warning(
                "no episode has ended within %d steps of each environment; if none ever does, set a limit: "
                "experiment.evaluation.max_steps in a run file, --horizon in run-trained-agent",
                ENDLESS_AFTER,
            )
    return sorted(episodes, key=lambda e: e.row)


def _whole(step: TimeStep) -> np.ndarray:
    """Return the rows whose episode ended by itself, not by a fault."""
    return step.done if step.fault is None else step.done & ~step.fault


def row_quota(num_episodes: int | None, num_rows: int) -> np.ndarray:
    """Return how many episodes each row contributes; None is no limit."""
    if num_episodes is None:
        return np.full(num_rows, np.iinfo(np.int64).max)
    return num_episodes // num_rows + (np.arange(num_rows) < num_episodes % num_rows)
