"""POPGym (Morad et al., 2023, arXiv 2303.01859): partially observed tasks, such as ``popgym-RepeatFirstEasy-v0``.

Its observations are Discrete, MultiDiscrete, Box and Tuple, which seqrl reads as they are: categories become one-hot.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import popgym  # type: ignore[import-not-found]  # noqa: F401  (registers the ids)


def make(env_id: str, **options: Any) -> gym.Env[Any, Any]:
    """Return ``gymnasium.make(env_id, **options)``, with POPGym's ids known."""
    return gym.make(env_id, **options)
