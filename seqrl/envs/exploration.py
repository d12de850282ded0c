"""Exploration: what disturbs the actions of training environments, all rows at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from seqrl.core.errors import PluginError
from seqrl.core.registry import EXPLORATIONS
from seqrl.core.spaces import ActionCodec
from seqrl.core.types import TimeStep

ROUNDING = 1e-6
"""By how much an epsilon may lie outside its range."""


class Exploration(ABC):
    """Replaces the policy's actions with probability epsilon, or adds noise of standard deviation epsilon.

    A subclass says epsilon for each row; register it with ``EXPLORATIONS.register(name)``, and its keyword-only
    arguments are the keys of ``collect.exploration``.

    Args:
        codec: Of the actions.
        num_envs: E.
        seed: Of all its draws.
        randomize: Multiply epsilon by a factor that each environment draws from [0, 1) at every reset.
        max_repeat: A random action (or noise) lasts up to this many steps of an episode. How many is drawn with
            probabilities proportional to ``1 / n^2``; epsilon stays the share of steps that are random.
        by_episode: Epsilon is the share of the episodes in which all actions are random, uniform ones if they are
            continuous. They last up to ``max_repeat`` steps with probabilities proportional to ``1 / n``.

    Attributes:
        num_steps: ``(E,)`` int64, steps that each environment has taken in training so far.
        factor: ``(E,)`` in [0, 1).
        epsilon: ``(E,)``, of the last actions.

    Source: Dabney et al. (2020), Temporally-extended epsilon-greedy exploration, arXiv 2006.01782, for ``max_repeat``.
    """

    def __init__(
        self,
        codec: ActionCodec,
        num_envs: int,
        seed: np.random.SeedSequence,
        *,
        randomize: bool = True,
        max_repeat: int = 1,
        by_episode: bool = False,
    ) -> None:
        self.codec = codec
        self.num_envs = num_envs
        self.randomize = randomize
        self.by_episode = by_episode
        self._is_random = np.zeros(num_envs, bool)
        weights = np.arange(1.0, max_repeat + 1.0) ** -(1.0 if by_episode else 2.0)
        self._lengths = weights / weights.sum()
        self._mean_length = float(self._lengths @ np.arange(1.0, max_repeat + 1.0))
        self._held: np.ndarray | None = None
        self._left = np.zeros(num_envs, np.int64)
        self.num_steps = np.zeros(num_envs, np.int64)
        self.factor = np.ones(num_envs)
        self.epsilon = np.zeros(num_envs)
        self._rng = np.random.Generator(np.random.PCG64(seed))

    @abstractmethod
    def schedule(self, step: TimeStep) -> np.ndarray:
        """Return the largest epsilon ``(E,)`` of each row, before its factor: at least 0, and at most 1 for choices.

        Args:
            step: What the environments are in: observations, steps of the episode, task names.
        """

    def __call__(self, actions: np.ndarray, step: TimeStep) -> np.ndarray:
        """Return the actions ``(E, A)`` to execute, legal by the action mask; ``actions`` stay as they are.

        Raises:
            PluginError: If :meth:`schedule` returns something else than it has to.
        """
        if self.randomize and step.is_first.any():
            self.factor[step.is_first] = self._rng.random(int(step.is_first.sum()))
        self.epsilon = self._scheduled(step) * self.factor
        self._count(step)
        self._left[step.is_first] = 0
        if self.by_episode:
            chosen = self._rng.random(self.num_envs) < self.epsilon
            self._is_random = np.where(step.is_first, chosen, self._is_random)
            return self.codec.executed(self._replaced(actions, self._is_random.astype(float), step))
        if self.codec.kind == "continuous":
            noise = self._kept(self._rng.standard_normal(actions.shape, np.float32), self._left == 0)
            noisy = np.clip(actions + self.epsilon[:, None].astype(np.float32) * noise, -1.0, 1.0)
            return self.codec.executed(noisy)
        return self._replaced(actions, self.epsilon, step)

    def _replaced(self, actions: np.ndarray, share: np.ndarray, step: TimeStep) -> np.ndarray:
        """Return the actions, with random ones at a share of the steps of each row."""
        begins = self._rng.random(self.num_envs) < share / (self._mean_length - share * (self._mean_length - 1.0))
        if step.action_mask is not None and self._held is not None:
            self._left[((self._held > 0) & ~step.action_mask).any(-1)] = 0
        begins &= self._left == 0
        is_random = begins | (self._left > 0)
        if not is_random.any():
            return actions
        drawn: np.ndarray = actions.copy()
        if begins.any():
            mask = None if step.action_mask is None else step.action_mask[begins]
            drawn[begins] = self.codec.random(self._rng, int(begins.sum()), mask)
        return np.where(is_random[:, None], self._kept(drawn, begins), actions)

    def _scheduled(self, step: TimeStep) -> np.ndarray:
        epsilon = np.asarray(self.schedule(step))
        most, legal = (np.inf, "finite and at least 0") if self.codec.kind == "continuous" else (1.0, "from 0 to 1")
        is_fit = epsilon.dtype.kind in "biuf" and epsilon.shape in ((self.num_envs,), ())
        if not is_fit or not ((epsilon >= -ROUNDING) & (epsilon <= most + ROUNDING) & (epsilon < np.inf)).all():
            raise PluginError(
                f"{type(self).__name__}.schedule has to return one epsilon for each of {self.num_envs} environments, "
                f"{legal}; it returned {epsilon.tolist()}"
            )
        legal_ones: np.ndarray = np.clip(epsilon, 0.0, most)
        return legal_ones

    def _kept(self, drawn: np.ndarray, is_new: np.ndarray) -> np.ndarray:
        """Return what each row does at random now: what it has just drawn, for as long as it lasts."""
        if len(self._lengths) == 1:
            return drawn
        lengths = 1 + self._rng.choice(len(self._lengths), self.num_envs, p=self._lengths)
        self._left = np.where(is_new, lengths, self._left)
        self._held = drawn if self._held is None else np.where(is_new[:, None], drawn, self._held)
        self._left = np.maximum(self._left - 1, 0)
        return self._held

    def _count(self, step: TimeStep) -> None:
        self.num_steps += ~(step.done & ~step.is_first)  # an environment that ended and waits ignores its action

    def annealed(self, start: float, end: float, anneal_steps: int) -> np.ndarray:
        """Return ``(E,)``: from ``start`` to ``end``, linear in each environment's steps, then ``end``."""
        share: np.ndarray = np.minimum(self.num_steps / anneal_steps, 1.0)
        epsilon: np.ndarray = start + (end - start) * share
        return epsilon

    def state(self) -> dict[str, Any]:
        """Return counters and generator, as JSON values."""
        return {
            "num_steps": self.num_steps.tolist(),
            "factor": self.factor.tolist(),
            "generator": self._rng.bit_generator.state,
            "held": None if self._held is None else self._held.tolist(),
            "left": self._left.tolist(),
            "is_random": self._is_random.tolist(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` gave; with another number of environments, only how far the schedule has come."""
        steps = state["num_steps"]
        if len(steps) == self.num_envs:
            self.num_steps[:], self.factor[:] = steps, state["factor"]
            self._rng.bit_generator.state = state["generator"]
            if (held := state.get("held")) is not None:
                self._held, self._left = np.asarray(held, np.float32), np.asarray(state["left"])
            self._is_random = np.broadcast_to(np.asarray(state.get("is_random", False)), self.num_envs).copy()
        else:
            self.num_steps[:] = int(np.mean(steps))


@EXPLORATIONS.register("epsilon_greedy")
class EpsilonGreedy(Exploration):
    """A random action with probability epsilon; continuous actions get noise of that standard deviation.

    Args:
        codec: Of the actions.
        num_envs: E.
        seed: Of all its draws.
        start: Epsilon at first.
        end: Epsilon in the end.
        anneal_steps: Steps of one environment until the end is reached.
        randomize: Multiply by a factor that each environment draws from [0, 1) at every reset.
        max_repeat: Steps that a random action lasts at most.
        by_episode: Whether epsilon is the share of episodes in which all actions are random.
    """

    def __init__(
        self,
        codec: ActionCodec,
        num_envs: int,
        seed: np.random.SeedSequence,
        *,
        start: float = 1.0,
        end: float = 0.05,
        anneal_steps: int = 1_000_000,
        randomize: bool = True,
        max_repeat: int = 1,
        by_episode: bool = False,
    ) -> None:
        super().__init__(codec, num_envs, seed, randomize=randomize, max_repeat=max_repeat, by_episode=by_episode)
        self._start, self._end, self._anneal_steps = start, end, anneal_steps

    def schedule(self, step: TimeStep) -> np.ndarray:
        """Fall with the steps of each environment."""
        return self.annealed(self._start, self._end, self._anneal_steps)


@EXPLORATIONS.register("bilevel")
class Bilevel(Exploration):
    """Epsilon also falls within each rollout: explore first, then use what was found (AMAGO, arXiv 2310.09971).

    Args:
        codec: Of the actions.
        num_envs: E.
        seed: Of all its draws.
        rollout_steps: Steps within a rollout over which epsilon falls.
        start: Epsilon of a rollout's first step, at first.
        end: The same in the end.
        late_start: Epsilon after ``rollout_steps``, at first.
        late_end: The same in the end.
        anneal_steps: Steps of one environment until the end is reached.
        randomize: Multiply by a factor that each environment draws from [0, 1) at every reset.
        max_repeat: Steps that a random action lasts at most.
    """

    def __init__(
        self,
        codec: ActionCodec,
        num_envs: int,
        seed: np.random.SeedSequence,
        *,
        rollout_steps: int,
        start: float = 1.0,
        end: float = 0.05,
        late_start: float = 0.8,
        late_end: float = 0.01,
        anneal_steps: int = 1_000_000,
        randomize: bool = True,
        max_repeat: int = 1,
    ) -> None:
        super().__init__(codec, num_envs, seed, randomize=randomize, max_repeat=max_repeat)
        self._rollout_steps = rollout_steps
        self._levels = ((start, end), (late_start, late_end))
        self._anneal_steps = anneal_steps

    def schedule(self, step: TimeStep) -> np.ndarray:
        """Fall with the steps of each environment, and with those of the rollout."""
        first, last = (self.annealed(*level, self._anneal_steps) for level in self._levels)
        share: np.ndarray = np.minimum(step.step / self._rollout_steps, 1.0)
        epsilon: np.ndarray = first + (last - first) * share
        return epsilon


@EXPLORATIONS.register("none")
class NoExploration(Exploration):
    """The policy's own actions."""

    def __init__(self, codec: ActionCodec, num_envs: int, seed: np.random.SeedSequence) -> None:
        super().__init__(codec, num_envs, seed, randomize=False)

    def __call__(self, actions: np.ndarray, step: TimeStep) -> np.ndarray:
        """Return the actions as they are."""
        self._count(step)
        return actions

    def schedule(self, step: TimeStep) -> np.ndarray:
        """Never explore."""
        return np.zeros(self.num_envs)
