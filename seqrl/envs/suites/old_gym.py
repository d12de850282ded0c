"""Environments of the package gym, gymnasium's predecessor, as ``gym/<id>`` through shimmy's adapters."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

gym = importlib.import_module("gym")
adapters = importlib.import_module("shimmy.openai_gym_compatibility")


def make(
    env_id: str, *, render_mode: str | None = None, disable_env_checker: bool | None = None, **options: Any
) -> gymnasium.Env[Any, Any]:
    """Return an environment of gym.

    Args:
        env_id: ``gym/`` and gym's id, such as ``gym/CartPole-v1`` or ``gym/module:Env-v0``.
        render_mode: That of gymnasium.
        disable_env_checker: Not heeded: gym's checker needs numpy 1, so it is off.
        options: Of ``gym.make``.
    """
    name = env_id.removeprefix("gym/")
    made: gymnasium.Env[Any, Any]
    if hasattr(gym.Env, "render_mode"):  # gym 0.26
        options |= {"disable_env_checker": True, "render_mode": render_mode}
        made = adapters.GymV26CompatibilityV0(env_id=name, make_kwargs=options)
    else:
        made = adapters.GymV21CompatibilityV0(env_id=name, make_kwargs=options, render_mode=render_mode)
    limit = getattr(made.spec, "max_episode_steps", None)
    made.spec = EnvSpec(env_id, entry_point=None, max_episode_steps=limit)  # gym's own lacks what gymnasium reads
    return made
