"""What a plan has to know of an environment: how long episodes are, the kind of actions, what random play finds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium as gym

from seqrl.core.errors import EnvError
from seqrl.core.seeding import integer_seed
from seqrl.core.spaces import ActionCodec
from seqrl.envs.builtin.attempts import Attempts
from seqrl.envs.check.play import Actor, given_mask
from seqrl.envs.check.values import answer_fault
from seqrl.envs.faults import told
from seqrl.envs.make import env_maker

logger = logging.getLogger(__name__)

NUM_EPISODES, MAX_STEPS = 3, 500
"""Random episodes that tell how long they are without a time limit, and after how many steps each is left."""
MOST_TRIED, MAX_PLAYED = 20, 2_000
"""Random episodes that may find something, and the length above which none is played for that."""
PLAYED = f"the longest of {NUM_EPISODES} with random actions"
"""How the steps are known of an environment without a time limit: those of a trained policy may be more."""
FIXED = f"the length of each of {NUM_EPISODES} with random actions"
NO_END = "as far as was played: an episode with random actions did not end, and no time limit is known"
"""How the steps are known of an environment whose episodes may never end."""


class Episode(NamedTuple):
    """What random actions came to.

    Attributes:
        steps: That were taken.
        total: Sum of their rewards.
        end: ``terminated`` or ``truncated``; empty if it was left before its end.
    """

    steps: int
    total: float
    end: str


def horizon_and_kind(
    env_id: str, kwargs: Mapping[str, Any] | None = None, *, plugins: Sequence[str] = ()
) -> tuple[int, str, str]:
    """Return the steps of an environment's longest episodes, how that is known, and the kind of its actions.

    It is the time limit of the registered environment, or else the longest of three episodes of random legal actions,
    each of which is left after 500 steps.

    Args:
        env_id: As ``env.id``.
        kwargs: Its arguments.
        plugins: Files or modules to import first.

    Raises:
        EnvError: If the environment cannot be made, or fails in these episodes.
    """
    with _played(env_id, kwargs, plugins) as player:
        kind = player.codec.action_kind
        if (limit := _limit(player.env)) is not None:
            return limit, "its time limit", kind
        episodes = [player.play(seed, MAX_STEPS) for seed in range(NUM_EPISODES)]
        if not all(episode.end for episode in episodes):
            return MAX_STEPS, NO_END, kind
        lengths = {episode.steps for episode in episodes}
        return max(lengths), FIXED if len(lengths) == 1 else PLAYED, kind


def finds_nothing(
    env_id: str,
    kwargs: Mapping[str, Any] | None,
    steps: int,
    *,
    num_episodes: int = MOST_TRIED,
    plugins: Sequence[str] = (),
) -> bool:
    """Tell whether episodes of random legal actions are all truncated after ``steps``, and all have the same return.

    Single random actions then hardly explore, as in MountainCar. The first other episode is the last that is played.
    Episodes of more than 2,000 steps are not, and an environment that fails in play is left to the run, with a warning.

    Args:
        env_id: As ``env.id``.
        kwargs: Its arguments.
        steps: Of its longest episodes.
        num_episodes: Played at most.
        plugins: Files or modules to import first.
    """
    if steps > MAX_PLAYED:
        return False
    try:
        with _played(env_id, kwargs, plugins) as player:
            first = player.play(0, steps)
            if (first.steps, first.end) != (steps, "truncated"):
                return False
            return all(player.play(seed, steps) == first for seed in range(1, num_episodes))
    except EnvError as error:
        logger.warning("%s. The run is planned as if random play found something", error)
        return False


class _Player:
    """Plays episodes of random legal actions."""

    def __init__(self, env_id: str, env: gym.Env[Any, Any]) -> None:
        self._env_id, self.env, self.codec = env_id, env, ActionCodec(env.action_space)
        self._actor: Actor | None = None

    def play(self, seed: int, most: int) -> Episode:
        """Play an episode, up to ``most`` steps of it."""
        answer = self.env.reset(seed=seed)
        if self._actor is None:
            if (fault := answer_fault("reset", answer)) is not None:
                raise EnvError(f"environment {self._env_id!r}: {fault.text}")
            is_masked = given_mask(self.env.observation_space, *answer) is not None
            self._actor = Actor(self.env, self.codec if is_masked else None, integer_seed(0, "horizon"))
        (obs, info), total = answer, 0.0
        for step in range(1, most + 1):
            self._actor.look(obs, info)
            obs, reward, terminated, truncated, info = self.env.step(self._actor.action())
            total += float(reward)
            if terminated or truncated:
                return Episode(step, total, "terminated" if terminated else "truncated")
        return Episode(most, total, "")


@contextmanager
def _played(env_id: str, kwargs: Mapping[str, Any] | None, plugins: Sequence[str]) -> Iterator[_Player]:
    """Yield a player of an environment, which is closed afterwards; whatever its code raises is an EnvError."""
    env = env_maker(env_id, kwargs, plugins=plugins)()
    try:
        try:
            yield _Player(env_id, env)
        finally:
            env.close()
    except EnvError:
        raise
    except Exception as error:  # whatever the code of others raises
        named = " ".join([env_id, *(f"--plugin {name}" for name in plugins)])
        raise EnvError(
            f"environment {env_id!r} fails in play with random actions: {told(error)}; `seqrl check-env {named}` tells "
            "more"
        ) from error


def _limit(env: gym.Env[Any, Any]) -> int | None:
    """Return the time limit of a whole episode, which may have several attempts of a limit each."""
    attempts, inner = 1, env
    while isinstance(inner, gym.Wrapper) and not isinstance(inner, gym.wrappers.TimeLimit):
        attempts *= inner.attempts if isinstance(inner, Attempts) else 1
        inner = inner.env
    limit = inner.spec.max_episode_steps if inner.spec is not None else None
    return None if limit is None else attempts * limit
