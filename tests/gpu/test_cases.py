"""Whether the tests on a GPU leave nothing out can be told without one."""

from seqrl.algo import ALGOS
from seqrl.conformance.algorithms import CHECKS
from tests.gpu.test_gpu import MEMORIES, cases, fitting


def test_every_algorithm_meets_every_check_that_fits_it():
    met = {(case.values[0].name, case.values[1]) for case in cases()}
    fit = {
        (name, check) for name in ALGOS.names() for check in CHECKS if any(fitting(name, check, m) for m in MEMORIES)
    }
    assert met == fit
    assert len(fit) > 200
