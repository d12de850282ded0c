"""What every environment must keep. :mod:`seqrl.envs.check` plays and says more; here is what counts as a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

import seqrl.envs  # noqa: F401  (registers)
from seqrl.conformance.check import Check, ConformanceError, expect, named
from seqrl.core.spaces import ActionCodec, flatten_obs, space_from_json, space_to_json
from seqrl.envs.check.environment import check_environment
from seqrl.envs.check.play import Actor, given_mask
from seqrl.envs.make import env_maker, make_env

NEEDS_GRAPHICS = {"seqrl/HalfCheetahVelocity-v0"}
_TRACE_STEPS = 200


@dataclass(frozen=True)
class EnvCase:
    """An environment to check, with its default arguments.

    Attributes:
        env_id: As gymnasium.make takes it.
    """

    env_id: str


def plays_without_problems(case: EnvCase) -> None:
    """Random play finds no problem, as ``seqrl check-env`` looks for them."""
    findings = check_environment(env_maker(case.env_id, disable_env_checker=True), num_steps=300)
    problems = [finding.text for finding in findings if finding.level == "problem"]
    expect(not problems, " ".join(problems))


def is_clean_for_gymnasium(case: EnvCase) -> None:
    """Gymnasium's own checker agrees, in its rendering too where that needs no screen."""
    if given_mask(*_first(case.env_id)) is not None:
        return  # it takes actions that the mask forbids
    modes = gym.spec(case.env_id).entry_point and make_env(case.env_id).metadata.get("render_modes", ())
    can_draw = "rgb_array" in (modes or ()) and case.env_id not in NEEDS_GRAPHICS
    env = make_env(case.env_id, render_mode="rgb_array" if can_draw else None)
    try:
        check_env(env.unwrapped, skip_render_check=not can_draw)
    except AssertionError as error:
        raise ConformanceError(f"gymnasium's check_env: {error}") from error


def _first(env_id: str) -> tuple[Any, Any, Any]:
    """Return the space of the observations, and what the first reset gives."""
    env = make_env(env_id)
    try:
        return (env.observation_space, *env.reset(seed=0))
    finally:
        env.close()


def one_seed_gives_one_course(case: EnvCase) -> None:
    """The same seed gives the same course of events, another seed another one."""
    first, second, other = (_trace(make_env(case.env_id), seed) for seed in (3, 3, 4))
    same = len(first) == len(second) and all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    expect(same, "two rollouts with the same seed and the same actions differ: draw from self.np_random only")
    differs = any(not np.array_equal(a, b) for a, b in zip(first, other, strict=False))
    expect(differs, "two seeds give the same rollout")


def spaces_survive_json(case: EnvCase) -> None:
    """Its spaces can be written into run folders and read again."""
    env = make_env(case.env_id)
    for space in (env.observation_space, env.action_space):
        expect(space_from_json(space_to_json(space)) == space, f"{space} changes when it is saved as JSON")


CHECKS: dict[str, Check[EnvCase]] = named(
    Check("plays without problems", plays_without_problems),
    Check("passes gymnasium's checks", is_clean_for_gymnasium),
    Check("gives one rollout per seed", one_seed_gives_one_course),
    Check("has spaces that survive JSON", spaces_survive_json),
)


def _trace(env: gym.Env[Any, Any], seed: int) -> list[np.ndarray]:
    """Return what a fixed script of actions sees."""

    def entries(obs: Any) -> list[np.ndarray]:
        return list(flatten_obs(env.observation_space, obs).values())

    actor = Actor(env, ActionCodec(env.action_space), seed=0)
    obs, info = env.reset(seed=seed)
    seen = entries(obs)
    for _ in range(_TRACE_STEPS):
        actor.look(obs, info)
        obs, reward, terminated, truncated, info = env.step(actor.action())
        seen += [*entries(obs), np.array([reward, terminated, truncated], np.float64)]
        if terminated or truncated:
            obs, info = env.reset()
            seen += entries(obs)
    env.close()
    return seen
