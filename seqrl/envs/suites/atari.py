"""Atari games (Bellemare et al., 2013) of the package ale-py by their own ids, such as ``ALE/Pong-v5``."""

from __future__ import annotations

from typing import Any

import ale_py  # type: ignore[import-not-found,unused-ignore]
import gymnasium as gym
import numpy as np
from gymnasium import spaces
from PIL import Image

from seqrl.core.spaces import MASK_KEY

gym.register_envs(ale_py)
SCREEN_KEY = "screen"
"""Observation entry of the image, where there is one of the legal actions beside it."""


class AtariView(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats each action, and observes the brighter of the last two frames, smaller.

    Args:
        env: An environment of ale-py that takes one frame a step.
        frame_skip: Frames that an action lasts.
        screen_size: Height and width of the image in pixels; None leaves 210 x 160.
        is_gray: Observe one channel instead of three; ale-py gives it by its ``obs_type``.
        end_at_life_loss: End an episode when a life is lost.
        all_actions: Whether the space holds all 18 actions; then those of the game are told as ``action_mask``, so
            that games share one space.

    Source: Machado et al. (2018), Revisiting the Arcade Learning Environment, arXiv 1709.06009.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        frame_skip: int,
        screen_size: int | None,
        is_gray: bool,
        end_at_life_loss: bool,
        all_actions: bool,
    ) -> None:
        super().__init__(env)
        self._frame_skip, self._size, self._ends_at_life_loss = frame_skip, screen_size, end_at_life_loss
        self._ale: Any = env.unwrapped.ale  # type: ignore[attr-defined]
        height, width = (screen_size, screen_size) if screen_size else (210, 160)
        screen = spaces.Box(0, 255, (height, width, 1 if is_gray else 3), np.uint8)
        self.observation_space = screen
        self._mask: np.ndarray | None = None
        if all_actions:
            own = set(self._ale.getMinimalActionSet())
            self._mask = np.array([action in own for action in self._ale.getLegalActionSet()], np.int8)
            self.observation_space = spaces.Dict({SCREEN_KEY: screen, MASK_KEY: spaces.MultiBinary(len(self._mask))})

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin a game."""
        frame, info = self.env.reset(**options)
        return self._seen(frame), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Repeat an action."""
        total, lives = 0.0, self._ale.lives()
        frames: list[np.ndarray] = []
        for _ in range(self._frame_skip):
            frame, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            frames = [*frames[-1:], frame]
            lost = self._ends_at_life_loss and self._ale.lives() < lives
            if terminated or truncated or lost:
                break
        return self._seen(np.maximum.reduce(frames)), total, bool(terminated or lost), truncated, info

    def _seen(self, frame: np.ndarray) -> Any:
        if self._size is not None:
            frame = np.asarray(Image.fromarray(frame).resize((self._size, self._size), Image.Resampling.BOX))
        frame = frame.reshape(*frame.shape[:2], -1)
        return frame if self._mask is None else {SCREEN_KEY: frame, MASK_KEY: self._mask.copy()}


def make(
    env_id: str,
    *,
    frame_skip: int = 4,
    screen_size: int | None = 84,
    grayscale: bool = True,
    end_at_life_loss: bool = False,
    all_actions: bool = False,
    **options: Any,
) -> gym.Env[Any, Any]:
    """Return a game as :class:`AtariView` shows it.

    Args:
        env_id: That of ale-py.
        frame_skip: Frames that an action lasts.
        screen_size: Height and width of the image; None leaves it.
        grayscale: Observe one channel.
        end_at_life_loss: End an episode when a life is lost.
        all_actions: Take all 18 actions, and observe which of them the game has: for several games in one run.
        options: Of ``gymnasium.make``, such as ``mode``, ``difficulty`` and ``repeat_action_probability``.
    """
    kind = "grayscale" if grayscale else "rgb"
    limit = options.pop("max_episode_steps", None)
    env = gym.make(env_id, frameskip=1, obs_type=kind, full_action_space=all_actions, **options)
    view = AtariView(
        env,
        frame_skip=frame_skip,
        screen_size=screen_size,
        is_gray=grayscale,
        end_at_life_loss=end_at_life_loss,
        all_actions=all_actions,
    )
    return view if limit is None else gym.wrappers.TimeLimit(view, limit)
