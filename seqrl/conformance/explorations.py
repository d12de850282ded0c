"""What every exploration must keep: actions that can be executed, and the same course after a resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

import seqrl.envs.exploration  # noqa: F401  (registers)
from seqrl.conformance.cases import ACTION_SPACES
from seqrl.conformance.check import Check, expect, named
from seqrl.core.errors import ConfigError, PluginError
from seqrl.core.registry import EXPLORATIONS
from seqrl.core.seeding import seed_sequence
from seqrl.core.spaces import ActionCodec
from seqrl.core.types import TimeStep

ROWS, STEPS = 4, 12


@dataclass(frozen=True)
class ExplorationCase:
    """An exploration to check.

    Attributes:
        name: Registered name.
        actions: Name of an action space in :data:`~seqrl.conformance.cases.ACTION_SPACES`.
        options: Over its defaults.
    """

    name: str
    actions: str
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def build(self, seed: int) -> Any:
        """Return the exploration of some rows."""
        codec = ActionCodec(ACTION_SPACES[self.actions])
        return EXPLORATIONS.get(self.name)(codec, ROWS, seed_sequence(seed), **self.options)


def cases(name: str, options: Mapping[str, Any] | None = None) -> list[ExplorationCase]:
    """Return the cases of an exploration: the action spaces that it takes; none if it needs its own environment."""
    return [case for space in ACTION_SPACES if _can_be_played(case := ExplorationCase(name, space, options or {}))]


def _can_be_played(case: ExplorationCase) -> bool:
    try:
        list(_played(case.build(0), range(1)))
    except PluginError:
        return True  # and its checks fail
    except (ConfigError, LookupError):  # refuses such actions; reads observations or task names that are not here
        return False
    return True


def actions_can_be_executed(case: ExplorationCase) -> None:
    """It returns actions that the environment takes, and leaves those of the policy as they are."""
    codec = ActionCodec(ACTION_SPACES[case.actions])
    given: list[Any] = []
    for policy, executed in _played(case.build(0), range(STEPS), given):
        expect(executed.shape == policy.shape, f"gives shape {executed.shape}, expected {policy.shape}")
        actions = codec.decode(executed)
        legal = all(codec.space.contains(codec.nested(a.astype(codec.dtype))) for a in actions)
        expect(legal, f"gives actions outside {codec.space!r}")
    same = all(np.array_equal(policy, copy) for policy, copy in given)
    expect(same, "changes the array of the policy's actions: return a new one")


def goes_on_after_a_resume(case: ExplorationCase) -> None:
    """With ``state`` and ``load_state``, by way of JSON, it goes on as if it had not stopped."""
    whole = case.build(0)
    list(_played(whole, range(STEPS)))
    resumed = case.build(1)
    resumed.load_state(json.loads(json.dumps(whole.state())))
    pairs = zip(_played(whole, range(STEPS, 2 * STEPS)), _played(resumed, range(STEPS, 2 * STEPS)), strict=True)
    same = all(np.array_equal(a, b) for (_, a), (_, b) in pairs) and np.array_equal(whole.epsilon, resumed.epsilon)
    expect(same, "goes on differently after a resume: what changes as it runs belongs into state() and load_state()")


CHECKS: dict[str, Check[ExplorationCase]] = named(
    Check("gives actions that can be executed", actions_can_be_executed, cheap=True),
    Check("goes on after a resume as if it had not stopped", goes_on_after_a_resume, cheap=True),
)


def _played(exploration: Any, steps: range, given: list[Any] | None = None) -> Any:
    """Yield policy actions and what is executed; episodes begin in some row now and then."""
    codec = exploration.codec
    for t in steps:
        policy = codec.random(np.random.default_rng(t), ROWS)
        if given is not None:
            given.append((policy, policy.copy()))
        yield policy, exploration(policy, _step(t))


def _step(t: int) -> TimeStep:
    first = (np.arange(ROWS) + t) % 5 == 0
    zeros, none = np.zeros(ROWS, np.float32), np.zeros(ROWS, bool)
    obs = {"obs": np.full((ROWS, 3), t, np.float32)}
    return TimeStep(
        obs=obs, final_obs=obs, reward=zeros, terminated=none, truncated=none, is_first=first,
        step=(np.arange(ROWS) + t) % 5, env_name=("seqrl/PointRecall-v0",) * ROWS, success=none, success_known=none,
    )  # fmt: skip
