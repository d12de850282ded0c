"""What every registered algorithm has to do, on every memory, kind of actions and timestep encoder.

`make test` meets every pair of an algorithm, a check, a memory and an action space, and every encoder with an agent;
`make test-all` a fifth of the other cases. Memories that are stacks of layers differ in their layers alone: they meet
every check with behaviour cloning, in `make test` one of them each, and every other algorithm meets one of them in one
check.
"""

import itertools

import pytest

from seqrl.algo import ALGOS
from seqrl.conformance.algorithms import CHECKS, AlgoCase, nonfinite_batch_moves_nothing, resumed_equals_uninterrupted
from seqrl.conformance.cases import ACTION_SPACES
from seqrl.core.registry import SEQUENCE_ENCODERS, TIMESTEP_ENCODERS
from seqrl.models.sequence_encoders.layers import Stack
from tests.grids import each_once, pairwise

ENCODERS = [name for name in TIMESTEP_ENCODERS.names() if name != "auto"]  # it is one of the others


def fits(name, check, *case):
    return CHECKS[check].fits(AlgoCase(name, *case))


SAMPLED = ("actor_critic", "gru", "discrete")
STACKS = [name for name in SEQUENCE_ENCODERS.names() if issubclass(SEQUENCE_ENCODERS.get(name), Stack)]
MEMORIES = [name for name in SEQUENCE_ENCODERS.names() if name not in STACKS]
ACTIONS = list(ACTION_SPACES)
GRID = [
    *pairwise(ALGOS.names(), list(CHECKS), MEMORIES, ACTIONS, ["mlp"], keep=fits, every=5),
    *each_once(["bc"], list(CHECKS), STACKS, ["discrete"], ["mlp"], keep=fits),
    *(
        pytest.param(*case)
        for case in zip(
            ALGOS.names(),
            itertools.cycle(CHECKS),
            itertools.cycle(STACKS),
            itertools.cycle(["box", "discrete"]),
            itertools.repeat("mlp"),
        )
        if case[0] != "bc" and fits(*case)
    ),
    *(
        pytest.param(*case, marks=[] if (case[0], *case[2:4]) == SAMPLED else pytest.mark.slow)
        for case in itertools.product(ALGOS.names(), list(CHECKS), MEMORIES, ACTIONS, sorted({*ENCODERS} - {"mlp"}))
        if fits(*case)
    ),
]


@pytest.mark.parametrize(("name", "check", "memory", "actions", "encoder"), GRID)
def test_algorithm(name, check, memory, actions, encoder):
    CHECKS[check](AlgoCase(name, memory, actions, encoder))


@pytest.mark.parametrize(
    ("name", "values"), [("bcq", {"perturbation": 0.1}), ("cql", {"target_gap": 5.0}), ("iris", {"memory_bypass": 0.5})]
)
@pytest.mark.parametrize("check", [resumed_equals_uninterrupted, nonfinite_batch_moves_nothing])
def test_what_only_some_settings_have_is_saved_and_kept(check, name, values):
    check(AlgoCase(name, "gru", "box", values=values))
