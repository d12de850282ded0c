"""gymnax (Lange, 2022): classic control, bsuite, MinAtar and bandits in JAX, as ``gymnax/<its id>``."""

from __future__ import annotations

import functools
import json
from typing import Any

import gymnasium as gym
import gymnax
import jax.numpy as jnp
import numpy as np
from gymnax.environments.spaces import gymnax_space_to_gym_space

from seqrl.core.errors import EnvError, did_you_mean
from seqrl.envs.single import SingleOfVector
from seqrl.envs.suites.jax_vector import JaxVector, Moved

PREFIX = "gymnax/"
DRAWN = (
    "CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Catch-bsuite",
    "Asterix-MinAtar", "Breakout-MinAtar", "Freeway-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar",
    "Pong-misc", "PointRobot-misc", "MetaMaze-misc", "FourRooms-misc",
)  # fmt: skip
"""Those that gymnax draws."""


class GymnaxRules:
    """An environment of gymnax.

    Args:
        name: gymnax's id.
        options: Parameters, such as ``max_steps_in_episode``, and arguments of the environment, such as ``num_bits``.

    Raises:
        EnvError: If there is no such environment.
    """

    data = None

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        if name not in gymnax.registered_envs:
            raise EnvError(f"gymnax has no environment {name!r}{did_you_mean(name, gymnax.registered_envs)}")
        fields = gymnax.make(name)[1].__dataclass_fields__
        self._env, params = gymnax.make(name, **{k: v for k, v in options.items() if k not in fields})
        self._params = params.replace(**{k: v for k, v in options.items() if k in fields})
        self.observation_space = gymnax_space_to_gym_space(self._env.observation_space(self._params))
        self.action_space = gymnax_space_to_gym_space(self._env.action_space(self._params))
        limit = getattr(self._params, "max_steps_in_episode", None)
        self.max_steps = None if limit is None else int(limit)
        self.can_render = self._env.name in DRAWN

    def begin(self, data: Any, key: Any, state: Any, is_new: Any) -> tuple[Any, Any]:
        """Return state and observation at the beginning of an episode."""
        obs, state = self._env.reset_env(key, self._params)
        return state, obs

    def step(self, key: Any, state: Any, action: Any) -> Moved:
        """Return what an action leads to."""
        obs, state, reward, terminated, _ = self._env.step_env(key, state, action, self._params)
        terminated = jnp.reshape(terminated, ()).astype(bool)
        truncated = jnp.reshape(self._env.is_truncated(state, self._params), ()).astype(bool) & ~terminated
        return Moved(state, obs, jnp.reshape(reward, ()), terminated, truncated, terminated | truncated, {})

    def render(self, state: Any) -> np.ndarray:
        """Draw with gymnax's own visualizer."""
        from gymnax.visualize.vis_gym import SUPPORTED_GYM_ENVS, render_gym_frame
        from gymnax.visualize.visualizer import Visualizer
        from matplotlib import pyplot as plt

        if self._env.name in SUPPORTED_GYM_ENVS:
            return np.asarray(render_gym_frame(self._env.name, state, self._params))
        shown = Visualizer(self._env, self._params, [state])
        try:
            shown.init()
            shown.fig.canvas.draw()
            return np.array(shown.fig.canvas.buffer_rgba())[..., :3]
        finally:
            plt.close(shown.fig)


@functools.lru_cache(maxsize=32)
def _rules(name: str, options: str) -> GymnaxRules:
    return GymnaxRules(name, json.loads(options))


def make_vector(
    env_id: str,
    num_envs: int,
    *,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    **options: Any,
) -> JaxVector:
    """Return ``num_envs`` rows of an environment of gymnax.

    Args:
        env_id: ``gymnax/<its id>``.
        num_envs: How many.
        max_episode_steps: Steps of an episode; null is gymnax's own limit.
        render_mode: ``rgb_array`` or null.
        options: Of the environment.
    """
    if max_episode_steps is not None:
        options["max_steps_in_episode"] = max_episode_steps
    rules = _rules(env_id.removeprefix(PREFIX), json.dumps(options, sort_keys=True))
    return JaxVector(rules, num_envs, env_id, render_mode)


def make(env_id: str, *, disable_env_checker: bool | None = None, **options: Any) -> gym.Env[Any, Any]:
    """Return a single environment: a vector of one row."""
    return SingleOfVector(make_vector(env_id, 1, **options))
