"""Gymnasium's half-cheetah with a velocity to be found out and held (Finn et al., 2017); needs the extra ``mujoco``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from seqrl.core.errors import EnvError
from seqrl.envs.builtin.grid import require_between


class HalfCheetahVelocity(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Run at a velocity that only the reward tells; it is drawn anew, uniformly, in each episode.

    Observation and actions are those of ``HalfCheetah-v5``. The reward is minus the absolute difference of the
    velocity from the target, minus that environment's control cost.

    ``info`` in each step: ``log/target_velocity``, and over the episode so far ``log/mean_velocity`` and
    ``log/velocity_error`` (mean absolute).

    Args:
        env: The half-cheetah, within its time limit.
        min_velocity: Smallest target, in metres per second.
        max_velocity: Largest target.
    """

    def __init__(self, env: gym.Env[Any, Any], min_velocity: float, max_velocity: float) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, min_velocity=min_velocity, max_velocity=max_velocity)
        gym.Wrapper.__init__(self, env)
        require_between("max_velocity", max_velocity, min_velocity)
        self._low, self._high = min_velocity, max_velocity
        self._target = self._distance = self._error = 0.0
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw a target."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._target = float(self.np_random.uniform(self._low, self._high))
        self._distance = self._error = 0.0
        self._time = 0
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and pay for the velocity."""
        obs, _, terminated, truncated, info = self.env.step(action)
        velocity = float(info["x_velocity"])
        error = abs(velocity - self._target)
        self._time += 1
        self._distance += velocity
        self._error += error
        log = {
            "log/target_velocity": self._target,
            "log/mean_velocity": self._distance / self._time,
            "log/velocity_error": self._error / self._time,
        }
        return obs, float(info["reward_ctrl"]) - error, terminated, truncated, info | log


def make_half_cheetah_velocity(
    min_velocity: float = 0.0, max_velocity: float = 3.0, episode_steps: int = 200, render_mode: str | None = None
) -> HalfCheetahVelocity:
    """Return the environment; this is ``seqrl/HalfCheetahVelocity-v0``.

    Args:
        min_velocity: Smallest target, in metres per second.
        max_velocity: Largest target.
        episode_steps: Time limit.
        render_mode: That of the half-cheetah.

    Raises:
        EnvError: If MuJoCo is not installed.
    """
    try:
        env = gym.make(
            "HalfCheetah-v5",
            max_episode_steps=episode_steps,
            render_mode=render_mode,
            disable_env_checker=True,
            camera_name="track",  # the default one stays where it is, and the cheetah leaves the picture
            width=320,
            height=240,
        )
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        text = f"seqrl/HalfCheetahVelocity-v0 needs MuJoCo: pip install 'seqrl[mujoco]' ({error})"
        raise EnvError(text) from error
    return HalfCheetahVelocity(env, min_velocity, max_velocity)
