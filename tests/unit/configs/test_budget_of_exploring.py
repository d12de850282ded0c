"""What a budget makes of exploration, and of how a policy is evaluated."""

import itertools
import json

import pytest

from seqrl.configs import ActorCriticConfig, config_factory, register_config
from seqrl.configs.budget import continued, with_budget
from seqrl.configs.budget_windows import MAX_WINDOW
from seqrl.configs.derived import Budget
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


HARD = {"env_steps": 20_000, "horizon": 500, "finds_nothing": True}


def is_for_hard_exploration(config):
    """Tell whether all settings for hard exploration are there; it fails if only some are."""
    algo = config.algo
    found = [
        config.collect.exploration.by_episode,
        config.collect.exploration.max_repeat == 32,
        algo.extra_gammas == [],
        algo.num_critics_td == 1,
        algo.online_value == "mean",
        algo.memory_dropout == 0.0,
        algo.optimizer.learning_rate == 2e-4,
        algo.optimizer.grad_clip is None,
    ]
    assert len(set(found)) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("budget", "given", "is_hard"),
    [
        (HARD, {}, True),
        (HARD | {"horizon": None, "action_kind": "multi_discrete"}, {}, True),
        (HARD | {"finds_nothing": False}, {}, False),
        (HARD, {"algo_name": "multitask"}, True),
        (HARD, {"train": {"window_steps": 499}}, True),
        (HARD, {"train": {"window_steps": 500}}, False),
        (HARD | {"horizon": MAX_WINDOW}, {}, False),
        (HARD | {"horizon": 100}, {"train": {"window_steps": 32}}, False),
        (HARD | {"action_kind": "binary"}, {}, False),
    ],
)
def test_the_worth_of_one_action_among_many_is_learned(budget, given, is_hard):
    config, derived = planned(given, **budget)
    assert is_for_hard_exploration(config) is is_hard
    assert ("episodes of more than 128 steps" in derived["algo.optimizer.learning_rate"].reason) is is_hard


@pytest.mark.parametrize("algo", ["bc", "iql", "cql", "decision_transformer"])
def test_only_agents_explore_by_episodes(algo):
    for kind in ("discrete", "continuous"):
        config, derived = planned({"algo_name": algo}, **HARD, action_kind=kind)
        assert not config.collect.exploration.by_episode
        assert (config.algo.optimizer.learning_rate, config.algo.optimizer.grad_clip) == (5e-4, 1.0)
        assert not any("returned the same" in entry.reason for entry in derived.values())
    offline, _ = planned(gradient_steps=20_000, horizon=500)
    assert (offline.algo.optimizer.learning_rate, offline.algo.optimizer.grad_clip) == (5e-4, 1.0)


@pytest.mark.parametrize(
    "given",
    [
        {"collect": {"exploration": {"start": 0.0}}},
        {"collect": {"exploration": {"end": 0.01}}},
        {"collect": {"exploration": {"max_repeat": 4}}},
        {"collect": {"exploration": {"type": "bilevel", "rollout_steps": 100}}},
        {"train": {"init_from": "runs/other"}},
        {"train": {"data": [{"path": "demos.hdf5"}]}},
    ],
)
def test_who_says_how_much_to_explore_or_begins_with_a_policy_or_data_explores_by_steps(given):
    values, _ = with_budget({"algo_name": "actor_critic", **given}, Budget(**HARD))
    assert "by_episode" not in values["collect"]["exploration"]
    assert values["algo"]["optimizer"]["learning_rate"] == 2e-4


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (0.8, 0.2, 32)),
        ({"start": 0.0}, (0.0, 0.0, 32)),
        ({"end": 0.01}, (0.8, 0.01, 32)),
        ({"max_repeat": 4}, (0.8, 0.2, 4)),
    ],
)
def test_who_asks_for_whole_episodes_gets_their_shares(given, expected):
    for budget in (HARD, HARD | {"horizon": 50}, HARD | {"action_kind": "continuous"}):
        config, derived = planned({"collect": {"exploration": {"by_episode": True, **given}}}, **budget)
        explored = config.collect.exploration
        assert (explored.start, explored.end, explored.max_repeat) == expected
        assert "collect.exploration.by_episode" not in derived
        assert not any("returned the same" in e.reason for key, e in derived.items() if "exploration" in key)


@pytest.mark.parametrize(
    ("budget", "given", "by_episode"),
    [
        (HARD, {}, True),
        (HARD | {"env_steps": 17_000}, {}, False),
        (HARD, {"collect": {"start_epoch": 10}}, False),  # only then does it collect
    ],
)
def test_the_share_of_random_episodes_has_to_be_able_to_fall(budget, given, by_episode):
    config, _ = planned(given, **budget)
    explored = config.collect.exploration
    assert explored.by_episode is by_episode
    assert (explored.start, explored.end) == ((0.8, 0.2) if by_episode else (0.2, 0.05))
    assert config.algo.extra_gammas == []


def test_keys_that_are_given_win_where_exploring_is_hard_too():
    exploration = {"by_episode": False}
    given = {"algo": {"extra_gammas": [0.5], "online_value": "min"}, "collect": {"exploration": exploration}}
    config, derived = planned(given, **HARD)
    assert (config.algo.extra_gammas, config.algo.online_value) == ([0.5], "min")
    explored = config.collect.exploration
    assert (explored.by_episode, explored.start, explored.end, explored.max_repeat) == (False, 0.2, 0.05, 1)
    assert config.algo.num_critics_td == 1
    assert not {"algo.extra_gammas", "collect.exploration.by_episode"} & derived.keys()


def test_a_run_of_before_goes_on_as_it_began():
    began = json.loads(json.dumps(planned(**HARD)[0].to_json()))
    began["collect"]["exploration"].pop("by_episode")
    began["collect"]["exploration"] |= {"start": 0.2, "end": 0.05, "max_repeat": 1}
    began["algo"] |= {"extra_gammas": [0.1, 0.9], "num_critics_td": 2, "online_value": "min", "memory_dropout": 0.3}
    began["algo"]["optimizer"] |= {"learning_rate": 5e-4, "grad_clip": 1.0}
    values, _ = continued({"algo_name": "actor_critic"}, Budget(**HARD), began)
    went_on = config_factory("actor_critic", values).to_json()
    assert went_on["algo"] == began["algo"]
    assert went_on["collect"]["exploration"].pop("by_episode") is False
    assert went_on["collect"]["exploration"] == began["collect"]["exploration"]


WIDE, HELD = {"train": {"window_steps": 200}}, {"collect": {"exploration": {"max_repeat": 4}}}


@pytest.mark.parametrize("algo", ["actor_critic", "iql"])
@pytest.mark.parametrize("given", [{}, WIDE, HELD], ids=["nothing", "wide", "held"])
@pytest.mark.parametrize("horizon", [50, 150, 500])
def test_exploration_and_learning_stay_whatever_is_measured_later(algo, given, horizon):
    given, plan = {"algo_name": algo, **given}, Budget(env_steps=60_000, horizon=horizon, finds_nothing=horizon > 100)
    began = config_factory(algo, with_budget(given, plan)[0]).to_json()
    for steps, measured, flag in itertools.product((10_000, 60_000), (50, 150, 500, None), (True, False)):
        later = Budget(env_steps=steps, horizon=measured, finds_nothing=flag, lasts_as_long=flag)
        went_on = config_factory(algo, continued(given, later, began)[0]).to_json()
        assert went_on["collect"]["exploration"] == began["collect"]["exploration"]
        assert went_on["algo"] == began["algo"]


def test_a_subclass_gets_the_plan_of_its_class(registries_as_before):
    @register_config("my_agent")
    class MyAgentConfig(ActorCriticConfig):
        """Run file."""

    for budget in (HARD, {"env_steps": 20_000, "horizon": 50}, {**HARD, "action_kind": "continuous"}):
        given = {"algo": {"sequence_encoder": {"type": "feedforward"}}}
        own, theirs = (
            with_budget({"algo_name": n, **given}, Budget(**budget))[1] for n in ("my_agent", "actor_critic")
        )
        assert own == theirs
