"""What a plan has to know of an environment: how long its episodes are, and whether its actions are continuous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from seqrl.core.seeding import integer_seed
from seqrl.core.spaces import ActionCodec
from seqrl.envs.builtin.attempts import Attempts
from seqrl.envs.make import env_maker

NUM_EPISODES = 3
MAX_STEPS = 500


def horizon_and_kind(
    env_id: str, kwargs: Mapping[str, Any] | None = None, *, plugins: Sequence[str] = ()
) -> tuple[int, str, str]:
    """Return the steps of an environment's longest episodes, how that is known, and the kind of its actions.

    It is the time limit of the registered environment, or else the longest of three episodes of random actions, each of
    which is left after 500 steps.

    Raises:
        EnvError: If the environment cannot be made.
    """
    env = env_maker(env_id, kwargs, plugins=plugins)()
    try:
        kind = ActionCodec(env.action_space).kind
        limit = _limit(env)
        if limit is not None:
            return limit, "its time limit", kind
        env.action_space.seed(integer_seed(0, "horizon"))
        longest = 0
        for episode in range(NUM_EPISODES):
            env.reset(seed=episode)
            steps, is_over = 0, False
            while not is_over and steps < MAX_STEPS:
                _, _, terminated, truncated, _ = env.step(env.action_space.sample())
                steps, is_over = steps + 1, terminated or truncated
            longest = max(longest, steps)
        return longest, f"the longest of {NUM_EPISODES} with random actions", kind
    finally:
        env.close()


def _limit(env: gym.Env[Any, Any]) -> int | None:
    """Return the time limit of a whole episode, which may have several attempts of a limit each."""
    attempts, inner = 1, env
    while isinstance(inner, gym.Wrapper) and not isinstance(inner, gym.wrappers.TimeLimit):
        attempts *= inner.attempts if isinstance(inner, Attempts) else 1
        inner = inner.env
    limit = inner.spec.max_episode_steps if inner.spec is not None else None
    return None if limit is None else attempts * limit
