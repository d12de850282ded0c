"""Bandits whose arms are drawn anew for each episode, plain and with arms that may not always be pulled."""

from __future__ import annotations

from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from seqrl.envs.builtin.grid import AGENT, FLOOR, GOAL, require_between

Kind = Literal["bernoulli", "gaussian"]


class Bandit(gym.Env[np.ndarray, np.int64]):
    """Find the best of several arms within an episode (Duan et al., 2016).

    The arms' means are drawn anew in each episode: uniform from 0 to 1 (Bernoulli), or standard normal (Gaussian).
    Observation ``(1,)`` float32: the share of the pulls that are over; what an arm paid is the reward alone. Actions:
    the arms. The episode terminates after ``horizon`` pulls.

    ``info`` in each step: ``log/regret`` (what the best arm would have paid more so far, in expectation) and
    ``log/best_arm_share`` (of the pulls so far).

    Args:
        num_arms: Arms.
        kind: ``bernoulli`` arms pay 1 or 0, ``gaussian`` ones their mean and noise.
        horizon: Pulls in an episode.
        noise_std: Standard deviation of the noise of Gaussian arms.
        render_mode: ``rgb_array`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012  (gymnasium declares it so)

    def __init__(
        self,
        num_arms: int = 5,
        kind: Kind = "bernoulli",
        horizon: int = 100,
        noise_std: float = 1.0,
        render_mode: str | None = None,
    ) -> None:
        require_between("num_arms", num_arms, 2)
        require_between("horizon", horizon, 1)
        require_between("noise_std", noise_std, 0.0)
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(num_arms)
        self.render_mode = render_mode
        self.num_arms, self.kind, self.horizon, self.noise_std = num_arms, kind, horizon, noise_std
        self._means = np.zeros(num_arms)
        self._pulls = np.zeros(num_arms, np.int64)
        self._regret, self._num_best = 0.0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw the arms."""
        super().reset(seed=seed)
        draw = self.np_random.random if self.kind == "bernoulli" else self.np_random.standard_normal
        self._means = draw(self.num_arms)
        self._pulls = np.zeros(self.num_arms, np.int64)
        self._regret, self._num_best = 0.0, 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Pull an arm."""
        arm = int(action)
        reward = self._pull(arm, self._means[arm], self._means.max())
        return self._observation(), reward, bool(self._pulls.sum() >= self.horizon), False, self._info()

    def _pull(self, arm: int, mean: float, best: float) -> float:
        """Count a pull of an arm that pays ``mean``, where the best one pays ``best``; return the reward."""
        self._pulls[arm] += 1
        self._regret += float(best - mean)
        self._num_best += int(mean == best)
        if self.kind == "bernoulli":
            return float(self.np_random.random() < mean)
        return float(mean + self.noise_std * self.np_random.standard_normal())

    def _info(self) -> dict[str, Any]:
        return {"log/regret": self._regret, "log/best_arm_share": self._num_best / max(int(self._pulls.sum()), 1)}

    def _observation(self) -> np.ndarray:
        return np.array([self._pulls.sum() / self.horizon], np.float32)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        """Return an ``(H, W, 3)`` uint8 picture: each arm's share of the pulls as a bar, the best arm's green."""
        if self.render_mode != "rgb_array":
            return None
        height, width = 120, 24
        image = np.full((height, width * self.num_arms, 3), FLOOR, np.uint8)
        best = int(np.argmax(self._means))
        for arm, share in enumerate(self._pulls / max(int(self._pulls.sum()), 1)):
            top = height - max(2, round(float(share) * height))
            image[top:, arm * width + 2 : (arm + 1) * width - 2] = GOAL if arm == best else AGENT
        return image


class MaskedBandit(Bandit):
    """A Bernoulli bandit of which only some arms, drawn anew for each step, may be pulled.

    ``info["action_mask"]`` ``(num_arms,)`` int8 tells in each step which; pulling another one pays 0. Regret and the
    best arm are those among the legal arms. ``info`` further has ``log/illegal``, the number of illegal pulls.

    Args:
        num_arms: Arms.
        num_legal: How many of them may be pulled in each step.
        horizon: Pulls in an episode.
        render_mode: ``rgb_array`` or None.
    """

    def __init__(
        self, num_arms: int = 6, num_legal: int = 3, horizon: int = 50, render_mode: str | None = None
    ) -> None:
        require_between("num_legal", num_legal, 1, num_arms)
        super().__init__(num_arms, "bernoulli", horizon, render_mode=render_mode)
        self.num_legal = num_legal
        self._legal = np.zeros(num_arms, np.int8)
        self._num_illegal = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Draw the arms, and which are legal."""
        obs, _ = super().reset(seed=seed)
        self._num_illegal = 0
        self._draw_legal()
        return obs, {"action_mask": self._legal.copy()}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Pull an arm, and draw which are legal next."""
        arm = int(action)
        is_legal = bool(self._legal[arm])
        self._num_illegal += not is_legal
        reward = self._pull(arm, self._means[arm] if is_legal else 0.0, self._means[self._legal == 1].max())
        self._draw_legal()
        return self._observation(), reward, bool(self._pulls.sum() >= self.horizon), False, self._info()

    def _draw_legal(self) -> None:
        self._legal = np.zeros(self.num_arms, np.int8)
        self._legal[self.np_random.choice(self.num_arms, self.num_legal, replace=False)] = 1

    def _info(self) -> dict[str, Any]:
        return super()._info() | {"log/illegal": float(self._num_illegal), "action_mask": self._legal.copy()}
