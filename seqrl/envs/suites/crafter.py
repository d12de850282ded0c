"""Crafter (Hafner, 2022, arXiv 2109.06780): an open world in pixels, with 22 achievements."""

from __future__ import annotations

from typing import Any

import crafter  # type: ignore[import-not-found]
import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from seqrl.core.errors import EnvError

IDS = {"Crafter-v1": True, "CrafterNoReward-v1": False}


class Crafter(gym.Env[np.ndarray, Any]):
    """Crafter in gymnasium's interface: death terminates, the time limit truncates.

    At an episode's end ``info`` has ``log/achievement_<name>``, 1 for each that was unlocked, whose mean is the paper's
    success rate; and ``log/achievements``, how many were.

    Args:
        size: Height and width of the picture.
        length: Longest episode.
        reward: Whether an achievement is worth 1, and a lost or regained point of health -0.1 or 0.1; else 0.
        render_mode: ``rgb_array``, or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, size: int = 64, length: int = 10_000, *, reward: bool = True, render_mode: str | None = None
    ) -> None:
        self._options = {"size": (size, size), "length": length, "reward": reward}
        self._game = crafter.Env(**self._options)
        self.observation_space = spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = spaces.Discrete(len(self._game.action_names))
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in a world of its own; a seed decides all that follow."""
        super().reset(seed=seed)
        if seed is not None:
            self._game = crafter.Env(**self._options, seed=seed)
        return self._game.reset(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Act."""
        obs, reward, is_over, told = self._game.step(int(action))
        is_dead = is_over and told["discount"] == 0
        info: dict[str, Any] = {}
        if is_over:
            unlocked = {name: float(count > 0) for name, count in told["achievements"].items()}
            info = {f"log/achievement_{name}": value for name, value in unlocked.items()}
            info["log/achievements"] = sum(unlocked.values())
        return obs, float(reward), bool(is_dead), bool(is_over and not is_dead), info

    def render(self) -> np.ndarray | None:
        """Return a picture of 256 x 256."""
        return None if self.render_mode is None else np.asarray(self._game.render((256, 256)))


def make(
    env_id: str,
    *,
    max_episode_steps: int | None = None,
    disable_env_checker: bool | None = None,
    length: int = 10_000,
    **options: Any,
) -> gym.Env[Any, Any]:
    """Return a world.

    Args:
        env_id: ``Crafter-v1`` or ``CrafterNoReward-v1``.
        max_episode_steps: In place of ``length``.
        disable_env_checker: Not used.
        length: Longest episode.
        options: ``size`` and ``render_mode``.

    Raises:
        EnvError: If the id is none of the two.
    """
    if env_id not in IDS:
        raise EnvError(f"Crafter has {' and '.join(IDS)}, not {env_id!r}")
    env = Crafter(length=max_episode_steps or length, reward=IDS[env_id], **options)
    env.spec = EnvSpec(env_id, max_episode_steps=max_episode_steps or length)
    return env
