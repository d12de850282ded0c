"""Whether data, policy and environment speak of the same observations and actions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from seqrl.core.errors import DataError, EnvError
from seqrl.core.image_bytes import is_image_of_bytes
from seqrl.core.rotations import with_rotations
from seqrl.core.spaces import GOAL_PREFIX, ActionCodec, ObsSpec, obs_specs, space_to_json
from seqrl.data.store_info import StoreInfo


def check_observations(env_space: spaces.Space[Any], expected: Mapping[str, ObsSpec], env_id: str) -> None:
    """Check that an environment gives what a policy reads.

    Raises:
        EnvError: That names every entry which is missing or of another shape.
    """
    if problems := _missing(obs_specs(env_space), expected):
        raise EnvError(f"environment {env_id!r} does not give what the policy reads: {problems}")


def _missing(given: Mapping[str, ObsSpec], expected: Mapping[str, ObsSpec]) -> str:
    """Return what of the expected entries is missing, or of another shape; nothing if all is there."""
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
    return "; ".join(problems)


def check_data(info: StoreInfo, expected: Mapping[str, ObsSpec], action_space: spaces.Space[Any], name: str) -> None:
    """Check that data gives what a policy reads, and actions such as it gives.

    Args:
        info: Of the data.
        expected: Observation entries of the policy.
        action_space: Of the policy.
        name: Of the data, for messages.

    Raises:
        DataError: That names every entry which is missing or of another shape, or both kinds of actions.
    """
    given = obs_specs(info.observation_space)
    if not info.spaces_are_known:  # nor are its categories
        given = {k: replace(spec, nvec=expected[k].nvec) if k in expected else spec for k, spec in given.items()}
    if problems := _missing(given, expected):
        raise DataError(f"{name} does not give what the policy reads: {problems}")
    if not _is_alike(action_space, info.action_space):
        raise DataError(f"{name} has actions like {info.action_space}, but the policy gives {action_space}")


def _is_alike(acting: spaces.Space[Any], recorded: spaces.Space[Any]) -> bool:
    """Tell whether recorded actions are of the kind and shape that is acted with, with no more choices."""
    theirs, ours = ActionCodec(acting), ActionCodec(recorded)
    return (theirs.kind, theirs.shape, len(theirs.factors)) == (ours.kind, ours.shape, len(ours.factors)) and all(
        n >= m for n, m in zip(theirs.factors, ours.factors, strict=True)
    )


def check_actions(env_space: spaces.Space[Any], expected: spaces.Space[Any], env_id: str) -> None:
    """Check that an environment takes the actions that a policy gives; it may take floats of higher precision.

    Raises:
        EnvError: If the two spaces differ.
    """
    if with_rotations(_in_precision_of(expected, env_space), expected) != expected:
        raise EnvError(f"environment {env_id!r} takes {env_space}, but the data or policy has {expected}")


def _in_precision_of(expected: spaces.Space[Any], space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return a Box in the precision of another, if its own is higher; other spaces as they are."""
    if not (isinstance(space, spaces.Box) and isinstance(expected, spaces.Box)):
        return space
    precision = np.dtype(expected.dtype)
    if precision.kind != "f" or not np.can_cast(precision, np.dtype(space.dtype)):
        return space
    with np.errstate(over="ignore"):
        low, high = (bound.astype(precision) for bound in (space.low, space.high))
    return with_rotations(spaces.Box(low, high, dtype=precision.type), space)


def agreed_spaces(
    info: StoreInfo,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    env_id: str,
    *,
    reach: Callable[[], str] | None = None,
) -> StoreInfo:
    """Return the data's info with the spaces of the environment where the data does not say its own.

    Continuous actions of such data are in the environment's units, or lie in [-1, 1] and are read as scaled to its
    bounds, which is robomimic's convention.

    Args:
        info: Of the data.
        observation_space: Of the environment.
        action_space: Of the environment.
        env_id: For messages.
        reach: Tells from where to where the data's actions go, for messages.

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
    if not _is_alike(action_space, info.action_space):
        raise EnvError(
            f"environment {env_id!r} takes {action_space}, but the data's actions are like {info.action_space}"
        )
    is_bounded = ActionCodec(action_space).is_bounded
    if is_bounded and not ActionCodec(info.action_space).is_bounded and info.actions_are_scaled:
        raise EnvError(
            f"environment {env_id!r} takes {action_space}, but the actions of {info.source or 'the data'} are outside "
            f"[-1, 1]{f' (they go {reach()})' if reach else ''} and the file names no action space. If they are scaled "
            "to [-1, 1], clip them to it; if they are in the environment's units, write its space as JSON to the "
            f"attribute 'action_space' of the group 'data': {json.dumps(space_to_json(action_space))}"
        )
    same_entries = given.keys() == recorded.keys()
    return replace(
        info,
        action_space=with_rotations(action_space, info.action_space),
        observation_space=observation_space if same_entries else info.observation_space,
    )
