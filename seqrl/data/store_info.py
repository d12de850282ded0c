"""What a store says of all its trajectories: the content of ``store.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces

from seqrl.core.action_codecs import action_codec
from seqrl.core.errors import DataError, format_problem
from seqrl.core.rotations import with_rotations
from seqrl.core.spaces import ActionCodec, space_from_json, space_to_json

FORMAT_VERSION = 1


@dataclass(frozen=True)
class StoreInfo:
    """What a store knows about all its trajectories.

    Attributes:
        observation_space: Of one environment.
        action_space: Of one environment.
        env_id: gymnasium id, or None if unknown.
        env_kwargs: Arguments it was made with.
        has_next_obs: Whether the last input of a trajectory is a true observation; without it, algorithms that
            bootstrap must refuse the data.
        has_rewards: Whether the data has rewards; else all of them are 0.
        spaces_are_known: Whether the data says its spaces; else they are inferred from its values.
        actions_are_scaled: Of data that does not: whether continuous actions in [-1, 1] stand for the environment's
            bounds; else they are what the environment takes.
        filters: Filter key -> names of the episodes it selects.
        source: Where the data came from, in words.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    env_id: str | None = None
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    has_next_obs: bool = True
    has_rewards: bool = True
    spaces_are_known: bool = True
    actions_are_scaled: bool = True
    filters: dict[str, list[str]] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse what is of another type: these come from files that others may have written.

        Raises:
            DataError: That names the attributes.
        """
        filters = self.filters.values() if isinstance(self.filters, dict) else [None]
        flags = ("has_next_obs", "has_rewards", "spaces_are_known", "actions_are_scaled")
        types = {
            "env_id": self.env_id is None or isinstance(self.env_id, str),
            "env_kwargs": isinstance(self.env_kwargs, dict),
            ", ".join(flags): all(type(getattr(self, flag)) is bool for flag in flags),
            "filters": all(isinstance(f, list) and all(isinstance(n, str) for n in f) for f in filters),
            "source": isinstance(self.source, str),
        }
        if wrong := [name for name, is_right in types.items() if not is_right]:
            raise DataError(f"{self.source}: of the wrong type: {', '.join(wrong)}")

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``store.json``."""
        return {
            "format_version": FORMAT_VERSION,
            "observation_space": space_to_json(self.observation_space),
            "action_space": space_to_json(self.action_space),
            "env_id": self.env_id,
            "env_kwargs": self.env_kwargs,
            "has_next_obs": self.has_next_obs,
            "has_rewards": self.has_rewards,
            "spaces_are_known": self.spaces_are_known,
            "actions_are_scaled": self.actions_are_scaled,
            "filters": self.filters,
            "source": self.source,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], source: str) -> StoreInfo:
        """Return the info that :meth:`to_json` wrote.

        Raises:
            DataError: If it is of another format, or lacks something.
        """
        version = value.get("format_version") if isinstance(value, dict) else None
        if version != FORMAT_VERSION:
            raise DataError(f"{source}: {format_problem('store format', version, FORMAT_VERSION)}")
        try:
            return cls(
                observation_space=space_from_json(value["observation_space"]),
                action_space=space_from_json(value["action_space"]),
                **{k: value.get(k, True) for k in ("has_rewards", "spaces_are_known", "actions_are_scaled")},
                **{k: value[k] for k in ("env_id", "env_kwargs", "has_next_obs", "filters", "source")},
            )
        except KeyError as error:
            raise DataError(f"{source}: lacks the key {error}") from error


def codec_for(info: StoreInfo, action_space: spaces.Space[Any]) -> ActionCodec:
    """Return what encodes a store's actions for a policy that acts in an environment's space.

    Choices are those of the environment, and continuous actions in its units are scaled by its bounds; others by the
    bounds of the data.
    """
    codec = action_codec(action_space)
    if codec.kind != "continuous" or not (info.spaces_are_known or info.actions_are_scaled):
        return codec
    return action_codec(with_rotations(info.action_space, action_space))
