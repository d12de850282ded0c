"""What every registered exploration has to do, in every action space."""

import pytest

from seqrl.conformance.explorations import CHECKS, cases
from seqrl.core.registry import EXPLORATIONS

OPTIONS = {
    "bilevel": {"rollout_steps": 5, "max_repeat": 3},
    "epsilon_greedy": {"anneal_steps": 15, "by_episode": True, "max_repeat": 4},
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", EXPLORATIONS.names())
def test_exploration(name, check):
    for case in cases(name, OPTIONS.get(name)):
        CHECKS[check](case)
