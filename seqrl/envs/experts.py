"""Scripted experts: policies that know how to solve an environment from its observations alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from seqrl.core.errors import EnvError
from seqrl.core.registry import Registry


class Expert(Protocol):
    """A scripted policy for one environment; it may keep a memory between steps of an episode."""

    def reset(self) -> None:
        """Forget the last episode."""

    def __call__(self, obs: Any) -> Any:
        """Return the environment's action for its observation."""


EXPERTS: Registry[Callable[[], Expert]] = Registry("scripted expert")
"""Environment id -> class of its expert; those of the built-in environments stand in :mod:`seqrl.envs.builtin`."""

register_expert = EXPERTS.register


def make_expert(env_id: str) -> Expert:
    """Return a fresh expert for an environment.

    Raises:
        EnvError: If the environment has none.
    """
    name = env_id.split(":")[-1]
    if name not in EXPERTS:
        raise EnvError(
            f"environment {env_id!r} has no scripted expert; those that have: {', '.join(EXPERTS.names())}. Write one "
            "in a plug-in (seqrl.envs.register_expert), or let a policy act (--agent)"
        )
    return EXPERTS.get(name)()
