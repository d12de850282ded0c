"""What a plan has to know of an environment: how long its episodes are, and whether its actions are continuous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from seqrl.core.errors import EnvError
from seqrl.core.seeding import integer_seed
from seqrl.core.spaces import ActionCodec
from seqrl.envs.builtin.attempts import Attempts
from seqrl.envs.check.play import Actor, given_mask
from seqrl.envs.check.values import answer_fault
from seqrl.envs.faults import told
from seqrl.envs.make import env_maker

NUM_EPISODES = 3
MAX_STEPS, MAX_PLAYED = 500, 2_000
PLAYED = f"the longest of {NUM_EPISODES} with random actions"
"""How the steps are known of an environment without a time limit: those of a trained policy may be more."""
FIXED = f"the length of each of {NUM_EPISODES} with random actions"
NO_END = "as far as was played: an episode with random actions did not end, and there is no time limit"
"""How the steps are known of an environment whose episodes may never end."""


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
    env = env_maker(env_id, kwargs, plugins=plugins)()
    try:
        codec = ActionCodec(env.action_space)
        limit = _limit(env)
        if limit is not None:
            return limit, "its time limit", codec.action_kind
        answer = env.reset(seed=0)
        if (fault := answer_fault("reset", answer)) is not None:
            raise EnvError(f"environment {env_id!r}: {fault.text}")
        is_masked = given_mask(env.observation_space, *answer) is not None
        actor = Actor(env, codec if is_masked else None, integer_seed(0, "horizon"))
        lengths = [_length(env, actor, episode) for episode in range(NUM_EPISODES)]
        ended = [length for length in lengths if length is not None]
        if len(ended) < len(lengths):
            return MAX_STEPS, NO_END, codec.action_kind
        return max(ended), FIXED if len(set(ended)) == 1 else PLAYED, codec.action_kind
    except EnvError:
        raise
    except Exception as error:  # whatever the code of others raises
        named = " ".join([env_id, *(f"--plugin {name}" for name in plugins)])
        raise EnvError(
            f"environment {env_id!r} fails in play with random actions: {told(error)}; `seqrl check-env {named}` tells "
            "more"
        ) from error
    finally:
        env.close()


def finds_nothing(env_id: str, kwargs: Mapping[str, Any] | None, steps: int, *, plugins: Sequence[str] = ()) -> bool:
    """Tell whether three episodes of random legal actions end by their time limit alone, all with the same return.

    Single random actions then hardly explore, as in MountainCar. Episodes of more than 2,000 steps are not played, and
    an environment that fails is left to the run, which tells what is wrong.

    Args:
        env_id: As ``env.id``.
        kwargs: Its arguments.
        steps: Of its longest episodes.
        plugins: Files or modules to import first.
    """
    if steps > MAX_PLAYED:
        return False
    env = env_maker(env_id, kwargs, plugins=plugins)()
    try:
        returns = set()
        for episode in range(NUM_EPISODES):
            obs, info = env.reset(seed=episode)
            if not episode:
                is_masked = given_mask(env.observation_space, obs, info) is not None
                actor = Actor(env, ActionCodec(env.action_space) if is_masked else None, integer_seed(0, "horizon"))
            total, terminated, truncated = 0.0, False, False
            for _ in range(steps):
                actor.look(obs, info)
                obs, reward, terminated, truncated, info = env.step(actor.action())
                total += float(reward)
                if terminated or truncated:
                    break
            returns.add(total)
            if terminated or not truncated or len(returns) > 1:
                return False
        return True
    except Exception:  # whatever the code of others raises
        return False
    finally:
        env.close()


def _length(env: gym.Env[Any, Any], actor: Actor, seed: int) -> int | None:
    """Return the steps of an episode of random legal actions; None if it goes on for too long."""
    obs, info = env.reset(seed=seed)
    for step in range(MAX_STEPS):
        actor.look(obs, info)
        obs, _, terminated, truncated, info = env.step(actor.action())
        if terminated or truncated:
            return step + 1
    return None


def _limit(env: gym.Env[Any, Any]) -> int | None:
    """Return the time limit of a whole episode, which may have several attempts of a limit each."""
    attempts, inner = 1, env
    while isinstance(inner, gym.Wrapper) and not isinstance(inner, gym.wrappers.TimeLimit):
        attempts *= inner.attempts if isinstance(inner, Attempts) else 1
        inner = inner.env
    limit = inner.spec.max_episode_steps if inner.spec is not None else None
    return None if limit is None else attempts * limit
