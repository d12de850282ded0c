"""Whether data, policy and environment speak of the same observations and actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import EnvError
from seqrl.core.image_bytes import is_image_of_bytes
from seqrl.core.rotations import with_rotations
from seqrl.core.spaces import GOAL_PREFIX, ActionCodec, ObsSpec, obs_specs
from seqrl.data.store_info import StoreInfo


def check_observations(env_space: spaces.Space[Any], expected: Mapping[str, ObsSpec], env_id: str) -> None:
    """Check that an environment gives what a policy reads.

    Raises:
        EnvError: That names every entry which is missing or of another shape.
    """
    given = obs_specs(env_space)
    problems = []
    for name, spec in expected.items():
        if name not in given and name.startswith(GOAL_PREFIX):
            continue  # goals may come otherwise; the policy says so if they do not
        if name not in given:
            problems.append(f"{name} is missing (it has {', '.join(given)})")
        elif (given[name].shape, given[name].nvec) != (spec.shape, spec.nvec) and spec.nvec is not None:
            problems.append(f"{name} has categories {given[name].nvec}, not {spec.nvec}")
        elif given[name].shape != spec.shape:
            problems.append(f"{name} has shape {given[name].shape}, not {spec.shape}")
        elif is_image_of_bytes(np.dtype(given[name].dtype), spec.shape, spec.dtype):
            problems.append(f"{name} is an image of uint8 (0 to 255), not of {spec.dtype} as in training")
    if problems:
        raise EnvError(f"environment {env_id!r} does not give what the policy reads: {'; '.join(problems)}")


def check_actions(env_space: spaces.Space[Any], expected: spaces.Space[Any], env_id: str) -> None:
    """Check that an environment takes the actions that a policy gives.

    Raises:
        EnvError: If the two spaces differ.
    """
    if with_rotations(env_space, expected) != expected:
        raise EnvError(f"environment {env_id!r} takes {env_space}, but the data or policy has {expected}")


def agreed_spaces(
    info: StoreInfo, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], env_id: str
) -> StoreInfo:
    """Return the data's info with the spaces of the environment where the data does not say its own.

    Continuous actions of such data are in the environment's units, or lie in [-1, 1] and are read as scaled to its
    bounds, which is robomimic's convention.

    Raises:
        EnvError: If the environment gives other observations or takes other actions.
    """
    if info.spaces_are_known:
        check_observations(observation_space, obs_specs(info.observation_space), env_id)
        check_actions(action_space, info.action_space, env_id)
        return info
    given = obs_specs(observation_space)
    recorded = obs_specs(info.observation_space)
    read = {k: replace(spec, nvec=given[k].nvec) if k in given else spec for k, spec in recorded.items()}
    check_observations(observation_space, read, env_id)
    theirs, ours = ActionCodec(action_space), ActionCodec(info.action_space)
    if (
        theirs.kind != ours.kind
        or theirs.shape != ours.shape
        or any(n < m for n, m in zip(theirs.factors, ours.factors, strict=True))
    ):
        raise EnvError(
            f"environment {env_id!r} takes {action_space}, but the data's actions are like {info.action_space}"
        )
    if theirs.is_bounded and not ours.is_bounded and info.actions_are_scaled:
        raise EnvError(
            f"environment {env_id!r} takes {action_space}, but the data's actions are outside [-1, 1] and the file "
            "names no action space: write the space as JSON to the attribute 'action_space' of the group 'data'"
        )
    same_entries = given.keys() == recorded.keys()
    return replace(
        info,
        action_space=with_rotations(action_space, info.action_space),
        observation_space=observation_space if same_entries else info.observation_space,
    )
