"""From what data and environments give to what networks read: goals among the observations, and scaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqrl.configs import BaseConfig
from seqrl.core.errors import ConfigError, DataError
from seqrl.core.obs_entry import BEYOND_UNIT, UNIT_LIMIT, ObsEntry, Values
from seqrl.core.spaces import GOAL_PREFIX, ActionCodec, ObsSpec
from seqrl.core.tensors import SeqBatch, SeqInputs
from seqrl.core.types import ColumnStats
from seqrl.models.data_normalizer import DataNormalizer

Array = TypeVar("Array")


def with_goals(
    keys: tuple[str, ...], obs: Mapping[str, Array], goal: Mapping[str, Array], problem: Callable[[str], str]
) -> dict[str, Array]:
    """Return observations with the goals that a policy reads among them, as entries ``goal/<key>``.

    A goal is given, or an entry ``goal/<key>`` of the observation, or ``desired_goal`` beside ``achieved_goal`` (the
    convention of gymnasium's goal environments).

    Args:
        keys: Entries whose goal is read.
        obs: Name -> array or tensor.
        goal: Entry -> its goal.
        problem: From an entry to the text of the error where its goal is missing.

    Raises:
        DataError: If a goal is missing.
    """
    goals: dict[str, Array] = {}
    for key in keys:
        name = GOAL_PREFIX + key
        if key in goal:
            goals[name] = goal[key]
        elif name not in obs and key == "achieved_goal" and "desired_goal" in obs:
            goals[name] = obs["desired_goal"]
        elif name not in obs:
            raise DataError(problem(key))
    return {**obs, **goals}


def entry_label(name: str) -> str:
    """Return how messages name an observation entry."""
    key = name.removeprefix(GOAL_PREFIX)
    return f"observation {name!r}" if key == name else f"goal {key!r}"


def obs_entries(obs: Mapping[str, ObsSpec], values: Mapping[str, Values]) -> dict[str, ObsEntry]:
    """Return what a policy reads of an observation.

    Args:
        obs: Name -> spec.
        values: Of some entries, which numbers they may hold; of the others, finite ones.
    """
    return {
        name: ObsEntry(entry_label(name), spec.shape, spec.dtype, spec.nvec, values.get(name, "finite"))
        for name, spec in obs.items()
    }


def check_masks(batch: SeqBatch, codec: ActionCodec) -> None:
    """Refuse masks of another width, without a legal action, or that forbid what was done."""
    mask = batch.inputs.action_mask
    if mask is None or codec.kind == "continuous":
        return
    legal = codec.legal(mask.cpu().numpy(), *mask.shape[:2])
    illegal = (batch.actions.cpu().numpy() > 0.5) & ~legal[:, :-1] & batch.mask.cpu().numpy()[..., None]
    for what, where in (
        ("leaves no legal action", codec.stuck(legal)),
        ("forbids the action", illegal.any(-1)),
    ):
        if where.any():
            row, step = np.argwhere(where)[0]
            raise DataError(f"action_mask of row {row} {what} at step {step}")


class Inputs:
    """What stands between a batch or an observation and the networks; the same for training and acting.

    Args:
        config: The whole run file.
        obs: Name -> spec of the observation entries that the policy reads.
        codec: Describes the policy's actions.
        device: Where the statistics live.
        may_be_unbounded: Whether the policy can give actions beyond [-1, 1].
        has_values: Whether the algorithm has critics, for the message where it may not.

    Attributes:
        normalizer: Scales by the data's statistics, if the run file asks for it.
        values: Which numbers the entries may hold, where that is more than to be finite; the networks know.

    Raises:
        ConfigError: If the actions cannot be scaled as the run file asks.
    """

    def __init__(
        self,
        config: BaseConfig,
        obs: Mapping[str, ObsSpec],
        codec: ActionCodec,
        device: torch.device,
        *,
        may_be_unbounded: bool,
        has_values: bool,
    ) -> None:
        train = config.train
        self.obs = dict(obs)
        self.goal_keys = tuple(config.observation.goal_keys)
        is_continuous = codec.kind == "continuous"
        if train.normalize_actions == "none":
            codec.check_bounded()
        elif not is_continuous:
            raise ConfigError(f"train.normalize_actions: actions of {codec.space!r} are not continuous; use 'none'")
        elif train.normalize_actions == "gaussian" and not may_be_unbounded:
            raise ConfigError(
                "train.normalize_actions: 'gaussian' makes actions beyond [-1, 1], which "
                + ("critics do not read" if has_values else "this policy cannot give")
                + "; use 'min_max', or to imitate with an unbounded policy, such as "
                "algo.distribution.type='gaussian' with algo.distribution.is_bounded=false"
            )
        d_action = codec.dim if is_continuous and train.normalize_actions != "none" else 0
        _, options = config.observation.timestep_encoder.choice()
        own = {k: kind for k, (kind, _) in options.get("modalities", {}).items()}  # vectors only are scaled
        scaled = {k: v for k, v in self.obs.items() if own.get(k, "vector") == "vector"}
        normalizer = DataNormalizer(scaled, d_action, train.normalize_obs, train.normalize_actions)
        is_needed = normalizer.names or d_action
        self.normalizer: DataNormalizer | None = normalizer.to(device) if is_needed else None
        self.values: Mapping[str, Values] = {}
        self._has_seen_images = False

    def batch(self, batch: SeqBatch) -> SeqBatch:
        """Return a batch as the networks know it.

        Raises:
            DataError: If the policy reads goals, and the batch has none, or images of floats look like bytes.
        """

        def problem(key: str) -> str:
            return (
                f"the policy reads a goal of {key!r} (observation.goal_keys), and the data has none: set "
                "train.goal_mode to 'last', or use data with goals"
            )

        obs = with_goals(self.goal_keys, batch.inputs.obs, batch.inputs.goal, problem)
        self._check_images(obs)
        inputs = self.scaled(replace(batch.inputs, obs=obs))
        extras = dict(batch.extras)
        if "next_action" in extras:  # zeros stay where nothing follows
            extras["next_action"] = self.scaled_actions(extras["next_action"]) * extras["has_next_action"].unsqueeze(-1)
        before = batch.before
        if before is not None:
            before = self.scaled(replace(before, obs=with_goals(self.goal_keys, before.obs, before.goal, problem)))
        actions = self.scaled_actions(batch.actions)
        return replace(batch, inputs=inputs, actions=actions, extras=extras, before=before)

    def _check_images(self, obs: Mapping[str, Tensor]) -> None:
        """Refuse bytes as images of floats in the first batch: they show there, and a look costs time."""
        if self._has_seen_images:
            return
        names = [name for name, values in self.values.items() if values == "unit" and name in obs]
        largest = {name: float(obs[name].max()) for name in names}
        for name, value in largest.items():
            if value > UNIT_LIMIT:
                raise DataError(f"the data's {entry_label(name)} has {value:g}, {BEYOND_UNIT}")
        self._has_seen_images = not names or any(largest.values())  # a blank batch says nothing

    def scaled(self, inputs: SeqInputs) -> SeqInputs:
        """Return inputs scaled as the networks know them (``train.normalize_obs``, ``train.normalize_actions``)."""
        normalizer = self.normalizer
        if normalizer is None:
            return inputs
        known = {k: v for k, v in inputs.obs.items() if k in self.obs}
        has_action = (inputs.step > 0).unsqueeze(-1)  # an episode's first input follows no action: zeros
        prev_action = torch.where(has_action, normalizer.scaled_actions(inputs.prev_action), 0.0)
        return replace(inputs, obs={**inputs.obs, **normalizer.scaled_obs(known)}, prev_action=prev_action)

    def scaled_actions(self, actions: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead A"]:
        """Return policy actions as the networks know them."""
        return actions if self.normalizer is None else self.normalizer.scaled_actions(actions)

    def own_actions(self, actions: Float[Tensor, "*lead A"]) -> Float[Tensor, "*lead A"]:
        """Return what the networks gave as policy actions: the inverse of :meth:`scaled_actions`."""
        return actions if self.normalizer is None else self.normalizer.own_actions(actions)

    def use_statistics(self, obs: Mapping[str, ColumnStats], action: ColumnStats | None) -> None:
        """Take the statistics of the training data.

        Args:
            obs: Of every scaled observation entry.
            action: Of policy actions.
        """
        if self.normalizer is not None:
            goals = {GOAL_PREFIX + k: obs[k] for k in self.goal_keys if k in obs}
            self.normalizer.use({**goals, **obs}, action)
