"""Environments of the package gym, gymnasium's predecessor, as ``gym/<id>`` through shimmy's adapter."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium

from seqrl.envs.specs import named_spec

importlib.import_module("gym")  # first, so that a missing package is named
adapters = importlib.import_module("shimmy.openai_gym_compatibility")


def make(env_id: str, *, disable_env_checker: bool | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    """Return an environment of gym.

    Args:
        env_id: ``gym/`` and gym's id, such as ``gym/CartPole-v1`` or ``gym/module:Env-v0``.
        disable_env_checker: Not heeded: gym's checker needs numpy 1, so it is off.
        options: Of ``gym.make``; those that are None are left out.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given["disable_env_checker"] = True
    made: gymnasium.Env[Any, Any] = adapters.GymV26CompatibilityV0(
        env_id=env_id.removeprefix("gym/"), make_kwargs=given
    )
    limit = getattr(made.spec, "max_episode_steps", None)
    made.spec = named_spec(env_id, limit)  # gym's own lacks what gymnasium reads
    return made
