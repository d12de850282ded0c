"""What every registered action distribution has to do, in every action space that it can represent."""

import pytest

from seqrl.conformance.cases import ACTION_SPACES
from seqrl.conformance.distributions import CHECKS, cases
from seqrl.core.registry import DISTRIBUTIONS

CASES = [case for name in DISTRIBUTIONS.names() if name != "auto" for case in cases(name)]
FITTING = [
    pytest.param(CHECKS[check], case, id=f"{case.name}-{case.actions}-{check}")
    for case in CASES
    for check in CHECKS
    if CHECKS[check].fits(case)
]


@pytest.mark.parametrize(("check", "case"), FITTING)
def test_distribution(check, case):
    check(case)


def test_every_kind_of_action_has_a_distribution():
    assert {case.actions for case in CASES} == set(ACTION_SPACES)
