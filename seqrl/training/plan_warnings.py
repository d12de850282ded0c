"""What is likely to go wrong with a plan, told before it costs anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import gymnasium as gym

from seqrl.configs import BaseConfig
from seqrl.configs.sections.agent import ValueSection
from seqrl.configs.sections.algo import AlgoSection
from seqrl.configs.sections.exploration import BilevelSection, EpsilonGreedySection
from seqrl.core.spaces import ObsSpec
from seqrl.rollout.environments import Task
from seqrl.training.sources import burn_in_steps

WAITS_ABOVE = 0.99
PIXELS = 1000
FEWEST_STEPS = 200
"""Of shorter runs nobody expects a policy."""


def plan_warnings(
    config: BaseConfig, obs: Mapping[str, ObsSpec], tasks: Sequence[Task], gradient_steps: int, steps_per_env: int
) -> list[str]:
    """Return one sentence for each thing that looks wrong in a run that begins.

    Args:
        config: The run file.
        obs: What the policy reads.
        tasks: Environments to collect in.
        gradient_steps: Of the whole run.
        steps_per_env: Steps of each training environment in the whole run; 0 where nothing is collected.
    """
    found = _flattened(config, obs)
    optimizer, collect = config.algo.optimizer, config.collect
    if gradient_steps >= FEWEST_STEPS and optimizer.warmup_steps > gradient_steps / 10:
        found.append(
            f"the learning rate warms up for {optimizer.warmup_steps} of {gradient_steps} gradient steps; a twentieth "
            f"is usual: algo.optimizer.warmup_steps={max(1, gradient_steps // 20)}"
        )
    if config.train.burn_in_steps and not burn_in_steps(config):
        memory = config.algo.sequence_encoder.choice()[0]
        found.append(f"train.burn_in_steps has no effect: the memory {memory!r} is not recurrent (is_recurrent)")
    found += _subgoals(config)
    if not steps_per_env:
        return found
    exploration = collect.exploration
    if (
        isinstance(exploration, EpsilonGreedySection | BilevelSection)
        and exploration.start > exploration.end
        and exploration.anneal_steps > 2 * steps_per_env
    ):
        share = steps_per_env / exploration.anneal_steps
        end = exploration.start + (exploration.end - exploration.start) * share
        found.append(
            f"exploration hardly falls: from {exploration.start:.3g} to {end:.3g} in {steps_per_env} steps of each "
            f"environment; half of them is usual: collect.exploration.anneal_steps={max(1, steps_per_env // 2)}"
        )
    limits = [_time_limit(task) for task in tasks]
    found += _stored_late(config, limits, steps_per_env if gradient_steps >= FEWEST_STEPS else math.inf)
    return found + (_waiting(config.algo) if any(limits) else [])


def _stored_late(config: BaseConfig, limits: Sequence[int | None], steps_per_env: float) -> list[str]:
    """Return a warning where episodes are so long that none may end in the first epochs, or in the whole run."""
    collect, known = config.collect, [limit for limit in limits if limit is not None]
    if not known or (collect.trajectory_steps is not None and collect.trajectory_steps <= steps_per_env):
        return []
    needs_whole = getattr(config.algo, "calibrate", False) or hasattr(config.algo, "target_return")
    pieces = max(2 * config.train.window_steps, collect.steps_per_epoch)
    if len(known) == len(limits) and min(known) > steps_per_env:
        return [
            f"each environment takes {steps_per_env} steps in the whole run, and episodes may take {min(known)}: "
            "nothing may be stored, as episodes are stored when they end; collect more steps, or lower collect.num_envs"
            + ("" if needs_whole else f", or set collect.trajectory_steps to at most {steps_per_env}")
        ]
    if collect.trajectory_steps is not None or max(known) <= pieces:
        return []
    mend = f"collect.trajectory_steps={pieces} stores pieces as they come"
    return [
        f"episodes may take {max(known)} steps and are stored when they end, and an epoch has "
        f"{collect.steps_per_epoch}: there may be nothing to learn from in the first epochs; "
        + ("take a larger collect.steps_per_epoch" if needs_whole else mend)
    ]


def _flattened(config: BaseConfig, obs: Mapping[str, ObsSpec]) -> list[str]:
    """Return a warning where the pixels of an image are read one by one."""
    images = [k for k, spec in obs.items() if len(spec.shape) == 3 and math.prod(spec.shape) >= PIXELS]
    if not images or config.observation.timestep_encoder.choice()[0] != "mlp":
        return []
    pixels = math.prod(obs[images[0]].shape)
    return [
        f"observation {images[0]!r} looks like an image, and mlp reads its {pixels} numbers without a CNN: "
        "observation.timestep_encoder.type=auto gives it one"
    ]


def _subgoals(config: BaseConfig) -> list[str]:
    """Return a warning where windows are too short to show what a planner shall predict."""
    planner, window = getattr(config.algo, "planner", None), config.train.window_steps
    if planner is None or planner.subgoal_steps < window:
        return []
    return [
        f"windows of {window} steps do not show where demonstrators are {planner.subgoal_steps} steps ahead, so the "
        f"planner learns the ends of episodes only: train.window_steps={2 * planner.subgoal_steps} shows it at half of "
        "the steps"
    ]


def _waiting(section: AlgoSection) -> list[str]:
    """Return a warning where a policy may find that waiting for a time limit is as good as finishing."""
    if not isinstance(section, ValueSection) or section.time_limits == "end" or section.gamma <= WAITS_ABOVE:
        return []
    return [
        f"values continue after a time limit: where waiting costs nothing, with a discount of {section.gamma} it is "
        'nearly as good as finishing; set algo.gamma to 0.99 or less, or algo.time_limits to "end", if it waits'
    ]


def _time_limit(task: Task) -> int | None:
    """Return the time limit of an environment that is registered with one, or is given one."""
    if (spec := gym.registry.get(task.env_id)) is None:
        return None
    limit = task.kwargs.get("max_episode_steps", spec.max_episode_steps)
    return limit if limit is not None and limit > 0 else None
