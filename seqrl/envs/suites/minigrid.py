"""MiniGrid and BabyAI (Chevalier-Boisvert et al., 2023, arXiv 2306.13831), by their own ids.

MiniGrid's "image" holds categories, not brightness: kind, colour and state of each cell in view. Here it is a
MultiDiscrete, so every policy reads it one-hot; the mission, a sentence, becomes the numbers of its words.
"""

from __future__ import annotations

import os
from typing import Any, Literal

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import gymnasium as gym
import minigrid  # type: ignore[import-not-found]  # noqa: F401  (registers the ids)
import numpy as np
from gymnasium import spaces
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX  # type: ignore[import-not-found]

from seqrl.core.errors import EnvError

NUM_STATES = max(len(STATE_TO_IDX), 4)  # the agent's state is its direction
MISSION_WORDS = 40
"""Longest mission that is told whole; the longest of BabyAI has 37 words."""

# fmt: off
WORDS = (
    "a", "after", "and", "at", "avoid", "ball", "behind", "blue", "box", "door", "end", "fetch", "find", "from",
    "front", "get", "go", "goal", "green", "grey", "hallway", "in", "key", "lava", "left", "matching", "must",
    "near", "next", "object", "of", "on", "open", "opening", "pick", "purple", "put", "reach", "red", "right",
    "room", "rooms", "square", "the", "then", "to", "traverse", "unlock", "up", "use", "yellow", "you", "your",
)
# fmt: on
"""Words of all missions; number 0 is no word, and the last number any other word."""

_NUMBERS = {word: number for number, word in enumerate(WORDS, start=1)}


class CategoricalView(gym.ObservationWrapper[dict[str, np.ndarray], Any, dict[str, Any]]):
    """Observes the view as categories and the mission as numbers of words.

    Args:
        env: A MiniGrid environment with its partial or full view.
        mission: ``tokens``, or ``none`` where it never changes.

    Raises:
        EnvError: If the environment does not observe a grid of categories.
    """

    def __init__(self, env: gym.Env[Any, Any], mission: Literal["tokens", "none"] = "tokens") -> None:
        super().__init__(env)
        given = env.observation_space
        if not isinstance(given, spaces.Dict) or "image" not in given.spaces or len(given["image"].shape or ()) != 3:
            raise EnvError(f"{env} does not observe a grid of categories but {given}")
        if mission not in ("tokens", "none"):
            raise EnvError(f"mission must be 'tokens' or 'none', got {mission!r}")
        height, width, _ = given["image"].shape or ()
        nvec = np.broadcast_to([len(OBJECT_TO_IDX), len(COLOR_TO_IDX), NUM_STATES], (height, width, 3))
        seen: dict[str, spaces.Space[Any]] = {"image": spaces.MultiDiscrete(nvec.copy())}
        if "direction" in given.spaces:
            seen["direction"] = given["direction"]
        self._has_mission = mission == "tokens" and "mission" in given.spaces
        if self._has_mission:
            seen["mission"] = spaces.MultiDiscrete(np.full(MISSION_WORDS, len(WORDS) + 2))
        self._has_direction = "direction" in seen
        self.observation_space = spaces.Dict(seen)  # type: ignore[assignment]

    def observation(self, observation: dict[str, Any]) -> dict[str, np.ndarray]:
        """Return the categories."""
        seen: dict[str, Any] = {"image": observation["image"].astype(np.int64)}
        if self._has_direction:
            seen["direction"] = np.int64(observation["direction"])
        if self._has_mission:
            seen["mission"] = mission_numbers(observation["mission"])
        return seen


def mission_numbers(mission: str) -> np.ndarray:
    """Return ``(40,)`` numbers of the words of a mission, and zeros behind them."""
    words = mission.lower().replace(",", " ").split()[:MISSION_WORDS]
    numbers = [_NUMBERS.get(word, len(WORDS) + 1) for word in words]
    return np.array(numbers + [0] * (MISSION_WORDS - len(numbers)), np.int64)


class SuccessInfo(gym.Wrapper[Any, Any, Any, Any]):
    """Tells in ``info["success"]``, at an episode's end, whether there was a reward: MiniGrid gives it for the goal."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and tell."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {**info, "success": bool(terminated and float(reward) > 0)}
        return observation, reward, terminated, truncated, info


def make(env_id: str, *, mission: Literal["tokens", "none"] = "tokens", **options: Any) -> gym.Env[Any, Any]:
    """Return ``gymnasium.make(env_id, **options)`` with categorical observations and success.

    Args:
        env_id: MiniGrid's or BabyAI's.
        mission: Observe it as ``tokens``, or ``none``.
        options: Of ``gymnasium.make``.
    """
    return SuccessInfo(CategoricalView(gym.make(env_id, **options), mission))
