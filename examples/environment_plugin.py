"""An environment of one's own: a plain gymnasium one that asks for a memory, registered on import.

seqrl check-env examples/Lock-v0 --plugin examples/environment_plugin.py
seqrl train --algo actor_critic --env examples/Lock-v0 --plugin examples/environment_plugin.py --memory gru \
    --env-steps 60k
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Lock(gym.Env[np.ndarray, np.int64]):
    """Open a lock whose code is drawn anew for each episode: a wrong digit closes it, and the search begins again.

    Observation ``(2,)`` float32: the share of the digits that are in place, and whether the last press was wrong. The
    digits that were pressed are not shown: policies of seqrl read their last action anyway. Actions: the digits. The
    reward is 1 / length for each place that is reached for the first time. An open lock ends the episode, the clock
    truncates it.

    ``info`` at the end: ``success``, and ``log/wrong``, the number of wrong presses.

    Args:
        length: Digits of the code.
        num_digits: Different digits.
        time_limit: Steps of an episode.
        render_mode: None; it cannot be drawn.
    """

    def __init__(
        self, length: int = 3, num_digits: int = 4, time_limit: int = 30, render_mode: str | None = None
    ) -> None:
        if length < 1 or num_digits < 2 or time_limit < length:
            raise ValueError(
                f"need 1 <= length <= time_limit and 2 <= num_digits; got {length}, {time_limit}, {num_digits}"
            )
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(num_digits)
        self.render_mode = render_mode
        self.length, self.num_digits, self.time_limit = length, num_digits, time_limit

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw a code."""
        super().reset(seed=seed)  # np_random: everything that is drawn comes from it
        self._code = self.np_random.integers(self.num_digits, size=self.length)
        self._place = self._furthest = self._time = self._wrong = 0
        return self._observation(is_wrong=False), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Press a digit."""
        is_wrong = bool(action != self._code[self._place])
        self._place = 0 if is_wrong else self._place + 1
        self._wrong += is_wrong
        reward = float(self._place > self._furthest) / self.length
        self._furthest = max(self._furthest, self._place)
        self._time += 1
        is_open = self._place == self.length
        is_late = not is_open and self._time >= self.time_limit
        info = {"success": is_open, "log/wrong": self._wrong} if is_open or is_late else {}
        return self._observation(is_wrong=is_wrong), reward, is_open, is_late, info

    def _observation(self, *, is_wrong: bool) -> np.ndarray:
        return np.array([self._place / self.length, is_wrong], np.float32)


gym.register("examples/Lock-v0", entry_point=lambda **kwargs: Lock(**kwargs))
