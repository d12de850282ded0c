"""Exploration of one's own: in the corridor of a T-Maze a single wrong step is fatal, so explore where it is not.

seqrl train --config tmaze_online.json --plugin examples/corridor_exploration_plugin.py \
    --set collect.exploration.type=corridor --set collect.exploration.corridor_length=20
"""

from __future__ import annotations

import numpy as np
from pydantic import Field, PositiveInt

from seqrl.configs import Section
from seqrl.core.registry import EXPLORATIONS
from seqrl.core.spaces import ActionCodec
from seqrl.core.types import TimeStep
from seqrl.envs.exploration import Exploration


class CorridorSection(Section):
    """Epsilon at the oracle and at the junction, and so much less in the corridor that half of the walks arrive."""

    type: str = "corridor"
    corridor_length: PositiveInt = Field(description="Steps from the start to the junction.")
    start: float = Field(1.0, ge=0.0, le=1.0, description="Epsilon at the junction at first.")
    end: float = Field(0.05, ge=0.0, le=1.0, description="Epsilon at the junction in the end.")
    anneal_steps: PositiveInt = Field(1000, description="Steps of one environment until epsilon reaches its end value.")


@EXPLORATIONS.register("corridor", section=CorridorSection)
class CorridorExploration(Exploration):
    """Explores at the junction, and hardly on the way to it; observations are those of ``seqrl/TMaze*-v0``."""

    def __init__(
        self,
        codec: ActionCodec,
        num_envs: int,
        seed: np.random.SeedSequence,
        *,
        corridor_length: int,
        start: float = 1.0,
        end: float = 0.05,
        anneal_steps: int = 1000,
    ) -> None:
        super().__init__(codec, num_envs, seed, randomize=False)
        self._in_corridor = 1 - 0.5 ** (1 / corridor_length)
        self._start, self._end, self._anneal_steps = start, end, anneal_steps

    def schedule(self, step: TimeStep) -> np.ndarray:
        """Return epsilon by where each row stands: the third feature says that it is at the junction."""
        at_junction = step.obs["obs"][:, 2] > 0.5
        epsilon = self.annealed(self._start, self._end, self._anneal_steps)
        return np.where(at_junction, epsilon, np.minimum(epsilon, self._in_corridor))
