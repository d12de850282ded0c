"""Settings of heads and optimiser that contradict one another are errors where they are made."""

import pytest

from seqrl.configs import config_factory
from seqrl.core.errors import ConfigError


@pytest.mark.parametrize(
    ("optimizer", "problem"),
    [
        ({"schedule": "multistep"}, r"'multistep' and milestones \[\] do not fit: multistep needs milestones"),
        ({"milestones": [3]}, r"'constant' and milestones \[3\] do not fit"),
        ({"schedule": "cosine", "milestones": [3]}, r"'cosine' and milestones \[3\] do not fit"),
        ({"schedule": "multistep", "milestones": [5, 5]}, r"milestones must rise, got \[5, 5\]"),
        ({"schedule": "multistep", "milestones": [0]}, r"milestones\.0 +must be > 0"),
        ({"decay_steps": 10}, r"decay_steps is for schedule 'linear' or 'cosine', not 'constant'"),
        ({"schedule": "linear", "final_factor": 1.5}, r"final_factor +must be <= 1"),
        ({"schedule": "exponential"}, r"optimizer\.schedule +must be one of"),
        ({"method": "sgd"}, r"optimizer\.method +must be one of"),
    ],
)
def test_what_does_not_fit_the_schedule_is_refused(optimizer, problem):
    with pytest.raises(ConfigError, match=problem):
        config_factory("bc", {"algo": {"optimizer": optimizer}})


@pytest.mark.parametrize(
    ("distribution", "problem"),
    [
        ({"type": "deterministic", "l2_weight": 0.0}, "l2_weight, l1_weight and cosine_weight are all 0"),
        ({"type": "deterministic", "cosine_weight": -1.0}, r"distribution\.cosine_weight +must be >= 0"),
        ({"type": "gaussian", "min_std": 0.5}, r"init_std 0\.5 must exceed min_std 0\.5"),
        ({"type": "gaussian", "fixed_std": 0.0}, r"distribution\.fixed_std +must be > 0"),
    ],
)
def test_heads_that_cannot_work_are_refused(distribution, problem):
    with pytest.raises(ConfigError, match=problem):
        config_factory("bc", {"algo": {"distribution": distribution}})


def test_what_fits_is_taken():
    optimizer = {"schedule": "multistep", "milestones": [3, 7], "method": "adam"}
    distribution = {"type": "deterministic", "l2_weight": 0.0, "l1_weight": 1.0}
    algo = config_factory("bc", {"algo": {"optimizer": optimizer, "distribution": distribution}}).algo
    assert algo.optimizer.milestones == [3, 7]
    assert algo.distribution.options() == {
        "is_bounded": True, "l2_weight": 0.0, "l1_weight": 1.0, "cosine_weight": 0.0
    }  # fmt: skip
