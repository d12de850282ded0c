"""What a run may cost, and the keys that are worked out from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Budget:
    """What a run may cost, and what it takes place in.

    Attributes:
        env_steps: Steps of all training environments of a process together; None where nothing is collected.
        gradient_steps: Of a run from fixed data; None where it collects.
        horizon: Steps of the longest episode, as far as known.
        horizon_source: How that is known.
        lasts_as_long: Whether the episodes of a trained policy are known to be as long.
        finds_nothing: Whether random episodes ended by their time limit alone, all with the same return.
        action_kind: As :class:`ActionCodec` calls it: ``discrete``, ``multi_discrete``, ``binary``, ``continuous`` or
            ``hybrid``.
        is_a_trial: Whether the run is meant to spend less than this (``--debug``); if not, that is warned of.
        transitions: Of the fixed data, as far as known.
    """

    env_steps: int | None = None
    gradient_steps: int | None = None
    horizon: int | None = None
    horizon_source: str = ""
    lasts_as_long: bool = True
    finds_nothing: bool = False
    action_kind: str = "discrete"
    is_a_trial: bool = False
    transitions: int | None = None


@dataclass(frozen=True)
class Derived:
    """One key that was worked out.

    Attributes:
        key: Dotted.
        value: JSON.
        reason: What it was worked out from.
    """

    key: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.key} = {json.dumps(self.value)}  ({self.reason})"
