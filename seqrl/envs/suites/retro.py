"""stable-retro: games of consoles, as ``retro/<Game>``, in the pixels that policies for Atari read."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import stable_retro  # type: ignore[import-not-found]
from gymnasium.envs.registration import EnvSpec

from seqrl.core.errors import EnvError, did_you_mean

PREFIX = "retro/"


def make(
    env_id: str,
    *,
    actions: Literal["filtered", "discrete", "multi_discrete", "all"] = "filtered",
    frame_skip: int = 4,
    screen_size: int | None = 84,
    grayscale: bool = True,
    max_episode_steps: int | None = None,
    disable_env_checker: bool | None = None,
    render_mode: str | None = "rgb_array",
    **options: Any,
) -> gym.Env[Any, Any]:
    """Return a game.

    A process can hold one emulator only, so environments need processes of their own (``env.vectorization=async``).

    Args:
        env_id: ``retro/<Game>``; its ROM has to be imported first (``python -m stable_retro.import``).
        actions: Buttons as bits without useless combinations, or ``all``; or as one or several numbers.
        frame_skip: Frames for which an action is held; the brighter of the last two is observed.
        screen_size: Height and width of the picture; None leaves it as it is.
        grayscale: One channel instead of three.
        max_episode_steps: Longest episode.
        disable_env_checker: Not used.
        render_mode: ``rgb_array``; a game is never shown in a window.
        options: Of ``stable_retro.make``, such as ``state`` and ``scenario``.

    Raises:
        EnvError: If there is no such game, its ROM is missing, or an emulator is open in this process.
    """
    game, known = env_id.removeprefix(PREFIX), stable_retro.data.list_games()
    if game not in known:
        raise EnvError(f"stable-retro has no game {game!r}{did_you_mean(game, known)}")
    if actions not in ("filtered", "discrete", "multi_discrete", "all"):
        raise EnvError(f"actions must be filtered, discrete, multi_discrete or all, got {actions!r}")
    kind = stable_retro.Actions[actions.upper()]
    try:
        env = stable_retro.make(game, use_restricted_actions=kind, render_mode=render_mode or "rgb_array", **options)
    except FileNotFoundError as error:
        raise EnvError(f"{env_id!r}: its ROM is missing; python -m stable_retro.import FOLDER") from error
    except RuntimeError as error:
        raise EnvError(f"{env_id!r}: {error}; set env.vectorization to async") from error
    env = gym.wrappers.MaxAndSkipObservation(env, skip=frame_skip) if frame_skip > 1 else env
    env = env if screen_size is None else gym.wrappers.ResizeObservation(env, (screen_size, screen_size))
    env = gym.wrappers.GrayscaleObservation(env, keep_dim=True) if grayscale else env
    env.unwrapped.spec = EnvSpec(env_id, max_episode_steps=max_episode_steps)
    return env if max_episode_steps is None else gym.wrappers.TimeLimit(env, max_episode_steps)
