"""robosuite (Zhu et al., 2020, arXiv 2009.12293), as ``robosuite/<Task>``, with the observations that robomimic has."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

with contextlib.suppress(Exception):  # what it says when it is imported is of no use here
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
import robosuite  # type: ignore[import-not-found]

from seqrl.core.errors import EnvError, did_you_mean

PREFIX = "robosuite/"
DEFAULTS = {
    "robots": "Panda",
    "has_renderer": False,
    "use_camera_obs": False,
    "use_object_obs": True,
    "reward_shaping": False,
    "horizon": 500,
}
_RENAMED = {"object-state": "object"}
_CAMERA = "agentview"


class Robosuite(gym.Env[Any, Any]):
    """A task of robosuite in gymnasium's interface.

    Observations are named as in robomimic's files: ``object`` holds the state of the objects, the robots' own are
    ``robot0_...``, and ``<camera>_image`` and ``<camera>_depth`` are upright. ``info["success"]`` tells whether the
    task is solved, which ends nothing; the time limit (``horizon``) truncates.

    Args:
        task: Its name, such as ``Lift``.
        render_mode: ``rgb_array``, or None.
        options: Of ``robosuite.make``; controllers may be in the form of robosuite 1.4, as robomimic's files have them.

    Raises:
        EnvError: If there is no such task.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, task: str, render_mode: str | None = None, **options: Any) -> None:
        known = sorted(robosuite.ALL_ENVIRONMENTS)
        if task not in known:
            raise EnvError(f"robosuite has no task {task!r}{did_you_mean(task, known)}; it has {', '.join(known)}")
        chosen = {**DEFAULTS, **options, "ignore_done": True}
        self._horizon = int(chosen["horizon"])
        chosen["has_offscreen_renderer"] = render_mode is not None or bool(chosen["use_camera_obs"])
        _update_controllers(chosen)
        self.task = robosuite.make(task, **chosen)
        self.render_mode, self._steps = render_mode, 0
        low, high = (np.asarray(bound, np.float32) for bound in self.task.action_spec)
        if self._takes_poses():  # metres and radians, which robosuite does not clip to the bounds that it tells
            low, high = np.full_like(low, -np.inf), np.full_like(high, np.inf)
        self.action_space = spaces.Box(low, high)
        self.observation_space = spaces.Dict({k: _space(v) for k, v in _named(self.task.reset()).items()})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode; a seed decides where things lie."""
        super().reset(seed=seed)
        if seed is not None:
            # Placements and robots share the generator, so it is its state that changes.
            self.task.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        self._steps = 0
        return _named(self.task.reset()), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Act."""
        obs, reward, _, _ = self.task.step(np.asarray(action, np.float64))
        self._steps += 1
        info = {"success": self.is_success()}
        return _named(obs), float(reward), False, self._steps >= self._horizon, info

    def render(self) -> np.ndarray | None:
        """Return what the camera ``agentview`` sees."""
        if self.render_mode is None:
            return None
        return np.asarray(self.task.sim.render(camera_name=_CAMERA, height=256, width=256))[::-1]

    def get_state(self) -> dict[str, Any]:
        """Return ``model`` (XML) and ``states`` ``(S,)``, from which :meth:`reset_to` goes on."""
        return {"model": self.task.sim.model.get_xml(), "states": np.array(self.task.sim.get_state().flatten())}

    def reset_to(self, state: dict[str, Any]) -> dict[str, np.ndarray]:
        """Go to a state, and return what is observed there.

        Args:
            state: ``states`` ``(S,)``, and the ``model`` that it belongs to; without it, that of now.
        """
        if state.get("model"):
            self.task.reset()
            self.task.reset_from_xml_string(self.task.edit_model_xml(state["model"]))
            self.task.sim.reset()
            self._steps = 0
        self.task.sim.set_state_from_flattened(np.asarray(state["states"], np.float64))
        self.task.sim.forward()
        self._reset_controllers()
        return _named(self.task._get_observations(force_update=True))

    def get_reward(self) -> float:
        """Return what the state of now earns: 1 where the task is solved, or more with ``reward_shaping``."""
        return float(self.task.reward())

    def is_success(self) -> bool:
        """Tell whether the task is solved now."""
        return bool(self.task._check_success())

    def _takes_poses(self) -> bool:
        """Tell whether an action is where an arm shall be, not how far it shall move."""
        return any(getattr(part, "input_type", "delta") == "absolute" for part in self._controllers())

    def _controllers(self) -> list[Any]:
        """Return the controllers of all arms."""
        found = []
        for robot in self.task.robots:
            parts = getattr(getattr(robot, "composite_controller", None), "part_controllers", {})
            found += [part for name, part in parts.items() if name in getattr(robot, "arms", ())]
        return found

    def _reset_controllers(self) -> None:
        """Let the controllers begin from the joints of now, as after a reset."""
        for part in self._controllers():
            part.update(force=True)
            part.update_initial_joints(np.array(part.joint_pos))
            part.reset_goal()

    def close(self) -> None:
        """Close the simulation."""
        self.task.close()


def _named(obs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return observations under robomimic's names."""
    found = {}
    for name, value in obs.items():
        array = np.atleast_1d(np.asarray(value))
        if name.endswith(("_image", "_depth")):
            found[name] = array[::-1].copy()
        elif not name.endswith("proprio-state"):
            found[_RENAMED.get(name, name)] = array
    return found


def _space(value: np.ndarray) -> spaces.Space[Any]:
    if value.dtype == np.uint8:
        return spaces.Box(0, 255, value.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, value.shape, value.dtype.type)


def _update_controllers(options: dict[str, Any]) -> None:
    """Bring the controllers of robosuite 1.4 into the form of 1.5."""
    given = options.get("controller_configs")
    if not isinstance(given, dict) or "body_parts" in given or "type" not in given:
        return
    try:
        from robosuite.controllers.composite import composite_controller_factory as factory  # type: ignore[import-not-found]
    except ImportError:  # robosuite 1.4 itself
        return
    if given.get("control_delta") is False:
        given = {"input_ref_frame": "world", **given, "input_type": "absolute"}
    robots = options["robots"]
    robot = robots if isinstance(robots, str) else robots[0]
    options["controller_configs"] = factory.refactor_composite_controller_config(given, robot, ["right"])


def make(
    env_id: str,
    *,
    max_episode_steps: int | None = None,
    disable_env_checker: bool | None = None,
    **options: Any,
) -> gym.Env[Any, Any]:
    """Return a task.

    Args:
        env_id: ``robosuite/<Task>``.
        max_episode_steps: In place of ``horizon``.
        disable_env_checker: Not used.
        options: See :class:`Robosuite`.
    """
    if max_episode_steps is not None:
        options["horizon"] = max_episode_steps
    env = Robosuite(env_id.removeprefix(PREFIX), **options)
    env.spec = EnvSpec(env_id, max_episode_steps=env._horizon)
    return env
