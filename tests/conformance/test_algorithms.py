"""What every registered algorithm has to do, on every memory, kind of actions and timestep encoder.

`make test` meets every pair of an algorithm, a check, a memory, an action space and an encoder; `make test-all` all.
"""

import pytest

from seqrl.algo import ALGOS
from seqrl.conformance.algorithms import CHECKS, AlgoCase
from seqrl.conformance.cases import ACTION_SPACES
from seqrl.core.registry import SEQUENCE_ENCODERS, TIMESTEP_ENCODERS
from tests.grids import pairwise

GRID = pairwise(
    ALGOS.names(),
    list(CHECKS),
    SEQUENCE_ENCODERS.names(),
    list(ACTION_SPACES),
    [name for name in TIMESTEP_ENCODERS.names() if name != "auto"],  # it is one of the others
    keep=lambda name, check, *case: CHECKS[check].fits(AlgoCase(name, *case)),
)


@pytest.mark.parametrize(("name", "check", "memory", "actions", "encoder"), GRID)
def test_algorithm(name, check, memory, actions, encoder):
    CHECKS[check](AlgoCase(name, memory, actions, encoder))
