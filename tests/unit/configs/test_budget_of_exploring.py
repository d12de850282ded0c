"""What a budget makes of exploration, and of how a policy is evaluated."""

import pytest

from seqrl.configs.budget_windows import MAX_WINDOW
from tests.unit.configs.test_budget import planned


@pytest.mark.parametrize(
    ("horizon", "kind", "start", "end"),
    [
        (50, "discrete", 4 / 50, 1 / 50),
        (100, "discrete", 4 / 100, 1 / 100),
        (10, "discrete", 0.2, 0.05),
        (500, "discrete", 0.2, 0.05),
        (None, "discrete", 0.2, 0.05),
        (50, "multi_discrete", 4 / 50, 1 / 50),
        (50, "continuous", 0.2, 0.05),
    ],
)
def test_a_short_episode_has_few_random_steps(horizon, kind, start, end):
    config, derived = planned(env_steps=20_000, horizon=horizon, action_kind=kind)
    exploration = config.collect.exploration
    assert (exploration.start, exploration.end) == (pytest.approx(start), pytest.approx(end))
    is_short = kind == "discrete" and horizon is not None and horizon <= MAX_WINDOW
    assert ("algo.novelty" in derived) == is_short
    per_step = config.algo.novelty / config.train.window_steps
    assert per_step == pytest.approx(1 / horizon if is_short else 0.0, rel=0.01)


def test_episodes_that_may_become_longer_have_as_many_random_steps_as_long_ones():
    config, derived = planned(env_steps=20_000, horizon=29, lasts_as_long=False)
    assert (config.collect.exploration.start, config.collect.exploration.end) == (0.2, 0.05)
    assert "algo.novelty" not in derived


@pytest.mark.parametrize("given", [{"end": 0.1}, {"start": 0.005}, {"start": 0}, {"start": 1.0}, {"end": 0.001}])
@pytest.mark.parametrize(("horizon", "kind"), [(50, "discrete"), (500, "discrete"), (50, "continuous")])
def test_random_steps_never_become_more(given, horizon, kind):
    config, _ = planned({"collect": {"exploration": given}}, env_steps=20_000, horizon=horizon, action_kind=kind)
    exploration = config.collect.exploration
    assert exploration.end <= exploration.start
    assert all(getattr(exploration, key) == value for key, value in given.items())


def test_a_policy_over_choices_is_evaluated_by_sampling():
    config, _ = planned(env_steps=20_000, horizon=50)
    assert not config.experiment.evaluation.deterministic
    assert config.algo.distribution.choice() == ("categorical", {"min_probability_mass": 1e-4})
    for kind in ("continuous", "binary", "hybrid"):
        config, _ = planned(env_steps=20_000, horizon=50, action_kind=kind)
        assert config.experiment.evaluation.deterministic
        assert config.algo.distribution.choice()[0] == "auto"
    for given, mass in (({"type": "categorical"}, 1e-4), ({"min_probability_mass": 0.01}, 0.01)):
        config, _ = planned({"algo": {"distribution": given}}, env_steps=20_000, horizon=50)
        assert config.algo.distribution.choice() == ("categorical", {"min_probability_mass": mass})
    given = {"algo": {"distribution": {"type": "auto"}}, "experiment": {"evaluation": {"deterministic": True}}}
    config, derived = planned(given, env_steps=20_000, horizon=50)
    assert config.experiment.evaluation.deterministic
    assert config.algo.distribution.choice()[0] == "auto"
    assert not [key for key in derived if "distribution" in key or "deterministic" in key]


@pytest.mark.parametrize(
    ("horizon", "kind", "is_long"),
    [
        (500, "discrete", True),
        (None, "multi_discrete", True),
        (MAX_WINDOW, "discrete", False),
        (500, "continuous", False),
        (500, "binary", False),
    ],
)
def test_one_action_among_many_is_explored_and_judged(horizon, kind, is_long):
    config, derived = planned(env_steps=20_000, horizon=horizon, action_kind=kind)
    assert config.collect.exploration.random_episodes == (0.3 if is_long else 0.0)
    found = (config.algo.extra_gammas, config.algo.online_value, config.algo.num_critics_td)
    assert found == (([], "mean", 1) if is_long else ([0.1, 0.9], "min", 2))
    assert config.algo.optimizer.learning_rate == (2e-4 if is_long else 5e-4)
    assert config.algo.optimizer.grad_clip == (None if is_long else 1.0)
    assert config.algo.memory_dropout == (0.3 if not is_long and kind != "continuous" else 0.0)
    assert ("longer than 128 steps" in derived["algo.optimizer.learning_rate"].reason) is is_long
    offline, _ = planned({"algo_name": "iql"}, gradient_steps=20_000, horizon=horizon, action_kind=kind)
    assert (offline.algo.optimizer.learning_rate, offline.algo.optimizer.grad_clip) == (5e-4, 1.0)
