"""A budget sets whatever depends on it, explicit keys win, and what comes out is an ordinary run file."""

import dataclasses
import json

import pytest

import seqrl.models  # noqa: F401  (registers the memories)
from seqrl.configs import config_factory, get_all_registered_configs
from seqrl.configs.budget import continued, with_budget
from seqrl.configs.budget_windows import MAX_WINDOW
from seqrl.configs.derived import Budget
from seqrl.core.errors import ConfigError
from seqrl.core.registry import SEQUENCE_ENCODERS
from seqrl.envs.horizon import horizon_and_kind
from seqrl.scripts import collect_dataset, train


def planned(values=None, **budget):
    values, derived = with_budget({"algo_name": "actor_critic", **(values or {})}, Budget(**budget))
    return config_factory(values["algo_name"], values), {entry.key: entry for entry in derived}


@pytest.mark.parametrize("algo", sorted(get_all_registered_configs()))
@pytest.mark.parametrize("steps", [1_000, 60_000, 2_000_000])
def test_every_algorithm_has_a_plan_that_spends_the_budget(algo, steps):
    config, derived = planned({"algo_name": algo}, env_steps=steps, horizon=50)
    spent = config.train.num_epochs * config.collect.steps_per_epoch * config.collect.num_envs
    assert 0.9 * steps < spent <= steps
    updates = config.train.num_epochs * config.train.steps_per_epoch
    assert updates == pytest.approx(0.5 * min(1, 10_000 / steps) ** 0.75 * spent, rel=0.1)
    assert config.algo.optimizer.warmup_steps <= max(1, updates / 10)
    assert config.collect.exploration.anneal_steps * config.collect.num_envs == pytest.approx(steps / 2, rel=0.02)
    assert all(entry.reason for entry in derived.values())
    offline, _ = planned({"algo_name": algo}, gradient_steps=steps, horizon=50)
    assert offline.train.num_epochs * offline.train.steps_per_epoch == pytest.approx(steps, rel=0.05)
    assert offline.collect.steps_per_epoch == 0


def test_what_is_given_stays_and_what_hangs_on_it_follows():
    given = {
        "train": {"num_epochs": 10, "window_steps": 20, "replay_ratio": 0.5},
        "collect": {"num_envs": 4, "exploration": {"type": "none"}},
        "algo": {"gamma": 0.5, "sequence_encoder": {"type": "gru", "d_hidden": 16}},
    }
    before = json.dumps(given)
    config, derived = planned(given, env_steps=8_000, horizon=50)
    assert (config.train.num_epochs, config.collect.num_envs, config.collect.steps_per_epoch) == (10, 4, 200)
    assert config.train.steps_per_epoch == 400
    assert config.train.batch_size == 64
    assert (config.algo.gamma, config.algo.sequence_encoder.d_hidden) == (0.5, 16)
    assert not derived.keys() & {"algo.gamma", "train.num_epochs", "algo.sequence_encoder.d_hidden"}
    assert json.dumps(given) == before


@pytest.mark.parametrize(
    ("budget", "episodes", "every"),
    [
        ({"env_steps": 10_000, "horizon": 50}, 100, 4),
        ({"env_steps": 50_000, "horizon": 500}, 50, 4),
        ({"env_steps": 10_000, "horizon": 1_000}, 10, 8),
        ({"env_steps": 1_000, "horizon": 1_000}, 10, 20),
        ({"env_steps": 50_000}, 10, 4),
        ({"gradient_steps": 5_000, "horizon": 200}, 50, 4),
    ],
)
def test_evaluations_of_long_episodes_do_not_cost_more_than_learning(budget, episodes, every):
    config, derived = planned(**budget)
    assert config.experiment.evaluation.episodes == episodes
    assert config.experiment.evaluation.every_n_epochs == every
    assert derived["experiment.evaluation.every_n_epochs"].reason
    assert derived["experiment.evaluation.episodes"].reason


def test_every_task_is_evaluated():
    tasks = {"env": {"tasks": [{"id": f"ALE/Game{i}-v5"} for i in range(26)]}}
    config, derived = planned(tasks, env_steps=1_000_000, horizon=27_000)
    assert config.experiment.evaluation.episodes == 26
    assert "one for each task" in derived["experiment.evaluation.episodes"].reason


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"collect": {"num_envs": 0}}, r"collect\.num_envs"),
        ({"train": {"window_steps": "abc"}}, r"train\.window_steps"),
        ({"train": {"window_steps": 0}}, r"train\.window_steps"),
        ({"train": {"replay_ratio": "high"}}, r"train\.replay_ratio"),
        ({"algo": {"gamma": "high"}}, r"algo\.gamma"),
    ],
)
def test_a_value_that_cannot_be_planned_with_is_named(values, message):
    with pytest.raises(ConfigError, match=message):
        planned(values, env_steps=10_000, horizon=50)


def test_what_is_derived_fits_what_is_given():
    config, _ = planned({"collect": {"replay": {"max_transitions": 1000}}}, env_steps=10_000_000, horizon=50)
    assert config.collect.replay.min_transitions == 500
    assert planned(env_steps=1_000_000_000, horizon=50)[0].train.replay_ratio > 0
    config, _ = planned({"train": {"num_epochs": 400}}, env_steps=60_000, horizon=50)
    assert config.experiment.evaluation.every_n_epochs == 40
    _, derived = planned({"observation": {"timestep_encoder": {"type": "cnn"}}}, env_steps=60_000, horizon=50)
    assert "observation.timestep_encoder.d_hidden" not in derived


def test_every_task_has_an_environment():
    tasks = [{"id": f"Task{number}-v0"} for number in range(5)]
    config, _ = planned({"env": {"tasks": tasks}}, env_steps=2_000)
    assert config.collect.num_envs == 5


def test_only_what_remembers_knows_a_time_limit():
    ends = {}
    for memory, horizon in (("gru", 50), ("gru", 500), ("feedforward", 50), ("identity", 50)):
        given = {"algo": {"sequence_encoder": {"type": memory}}}
        ends[memory, horizon] = planned(given, env_steps=8_000, horizon=horizon)[0].algo.time_limits
    assert ends == {
        ("gru", 50): "end",
        ("gru", 500): "bootstrap",
        ("feedforward", 50): "bootstrap",
        ("identity", 50): "bootstrap",
    }


def test_calibration_gets_whole_episodes_and_one_discount():
    """Cal-QL compares with the returns of whole episodes."""
    for calibrate in (False, True):
        values = {"algo_name": "cql", "algo": {"calibrate": calibrate}}
        config, _ = planned(values, env_steps=20_000, horizon=200, action_kind="continuous")
        found = (config.collect.trajectory_steps, config.algo.extra_gammas)
        assert found == ((None, []) if calibrate else (64, [0.1, 0.9]))


def test_returns_that_are_told_are_those_of_whole_episodes():
    values = {"algo_name": "decision_transformer"}
    assert planned(values, env_steps=20_000, horizon=200)[0].collect.trajectory_steps is None


def test_exploration_falls_in_the_epochs_that_collect(caplog):
    config, _ = planned({"collect": {"start_epoch": 10}}, env_steps=20_000, horizon=50)
    steps = (config.train.num_epochs - 10) * config.collect.steps_per_epoch
    assert config.collect.exploration.anneal_steps == pytest.approx(steps / 2, rel=0.05)
    assert not caplog.text
    planned({"collect": {"start_epoch": 30}}, env_steps=20_000, horizon=50)
    assert "of its budget, because its run file or command sets collect.start_epoch\n" in caplog.text
    with pytest.raises(ConfigError, match="start_epoch is not below 40 epochs"):
        planned({"collect": {"start_epoch": 40}}, env_steps=20_000, horizon=50)
    given = {"algo_name": "actor_critic", "train": {"num_epochs": 100}, "collect": {"start_epoch": 50}}
    budget = Budget(20_000, horizon=50)
    began, _ = with_budget(given, budget)
    went_on, _ = continued(given, budget, config_factory("actor_critic", began).to_json())
    assert went_on["collect"]["steps_per_epoch"] == began["collect"]["steps_per_epoch"]


def test_only_epochs_that_learn_count_as_gradient_steps():
    full, half = (planned({"train": {"start_epoch": n}}, env_steps=8_000, horizon=50)[0].algo for n in (0, 20))
    assert half.optimizer.warmup_steps == full.optimizer.warmup_steps / 2


def test_a_run_file_that_collects_nothing_is_told():
    with pytest.raises(ConfigError, match=r"collect\.steps_per_epoch is 0, so none of 20000 environment"):
        planned({"collect": {"steps_per_epoch": 0}}, env_steps=20_000, horizon=50)


@pytest.mark.parametrize(("kind", "dropout"), [("discrete", 0.3), ("continuous", 0.0), ("hybrid", 0.0)])
def test_continuous_actions_are_judged_without_noise_in_the_memory(kind, dropout):
    config, _ = planned(env_steps=8_000, horizon=50, action_kind=kind)
    assert config.algo.memory_dropout == dropout
    assert config.observation.prev_dropout == 0.25


@pytest.mark.parametrize(
    ("memory", "horizon", "kind", "given", "expected"),
    [
        ("gru", 500, "discrete", {}, 8),
        ("mamba", 500, "binary", {}, 8),
        ("gru", None, "discrete", {}, 8),
        ("gru", 50, "discrete", {}, 0),
        ("gru", 500, "continuous", {}, 0),
        ("gru", 500, "hybrid", {}, 0),
        ("gru", 500, "discrete", {"train": {"window_steps": 100}}, 25),
        ("gru", 500, "discrete", {"train": {"window_steps": 500}}, 0),
        ("gru", 500, "discrete", {"train": {"burn_in_steps": 0}}, 0),
        ("gru", 500, "discrete", {"collect": {"replay": {"relabel": {"type": "hindsight"}}}}, 0),
        ("gru", 500, "discrete", {"train": {"data": [{"path": "a"}, {"path": "b", "relabel": "hindsight"}]}}, 0),
        ("gru", 500, "discrete", {"train": {"data": [{"path": "a", "relabel": None}]}}, 8),
        *((memory, 500, "discrete", {}, 0) for memory in ("transformer", "hybrid", "feedforward", "identity")),
    ],
)
def test_recurrent_memories_that_act_longer_than_a_window_are_burned_in(memory, horizon, kind, given, expected):
    values = {"algo_name": "actor_critic", "algo": {"sequence_encoder": {"type": memory}}, **given}
    planned_values, derived = with_budget(values, Budget(env_steps=60_000, horizon=horizon, action_kind=kind))
    assert planned_values["train"].get("burn_in_steps", 0) == expected
    assert bool(expected) == ("train.burn_in_steps" in {entry.key for entry in derived})


@pytest.mark.parametrize("is_recurrent", [False, True])
def test_a_memory_of_ones_own_is_burned_in_if_it_says_so(is_recurrent, monkeypatch):
    own = type("Own", (), {"is_recurrent": is_recurrent})
    monkeypatch.setitem(SEQUENCE_ENCODERS._entries, "own", own)
    _, derived = with_budget(
        {"algo_name": "actor_critic", "algo": {"sequence_encoder": {"type": "own"}}}, Budget(env_steps=60_000)
    )
    assert ("train.burn_in_steps" in {entry.key for entry in derived}) is is_recurrent


def test_every_registered_memory_is_burned_in_if_it_is_recurrent():
    for memory in SEQUENCE_ENCODERS.names():
        config, _ = planned({"algo": {"sequence_encoder": {"type": memory}}}, env_steps=60_000, horizon=500)
        assert (config.train.burn_in_steps > 0) is SEQUENCE_ENCODERS.get(memory).is_recurrent, memory


@pytest.mark.parametrize(
    ("transitions", "memory", "expected"),
    [
        (4_000, "gru", (0.3, 0.25)),
        (40_000, "gru", (0.3, 0.25)),
        (50_000, "gru", (0.0, 0.0)),
        (None, "gru", (0.0, 0.0)),
        (4_000, "feedforward", (0.0, 0.0)),
    ],
)
def test_a_memory_that_sees_fixed_data_many_times_does_not_learn_it_by_heart(transitions, memory, expected):
    values = {"algo_name": "iql", "algo": {"sequence_encoder": {"type": memory}}}
    config, derived = planned(values, gradient_steps=4_000, horizon=7, transitions=transitions)
    assert (config.algo.memory_dropout, config.observation.prev_dropout) == expected
    if any(expected):
        assert f"{4_000 * 64 * 16 / transitions:,.0f} passes" in derived["algo.memory_dropout"].reason
    given = {**values, "algo": {**values["algo"], "memory_dropout": 0.1}, "train": {"batch_size": 16}}
    config, _ = planned(given, gradient_steps=4_000, horizon=7, transitions=transitions)
    assert config.algo.memory_dropout == 0.1
    assert config.observation.prev_dropout == (0.25 if transitions == 4_000 and memory == "gru" else 0.0)


@pytest.mark.parametrize(
    ("horizon", "window", "pieces"),
    [(10, 16, None), (50, 50, None), (128, 128, None), (None, 32, 64), (5_000, 32, 64)],
)
def test_the_window_follows_the_episodes_and_long_ones_come_in_pieces(horizon, window, pieces):
    config, _ = planned(env_steps=20_000, horizon=horizon)
    assert config.train.window_steps == window <= MAX_WINDOW
    assert config.collect.trajectory_steps == pieces
    assert 500 < config.train.batch_size * window < 2_000


@pytest.mark.parametrize(
    ("memory", "horizon", "kind", "steps_of_a_batch"),
    [("identity", 1_000, "continuous", 256), ("feedforward", 1_000, "continuous", 256),
     ("gru", 1_000, "continuous", 1536),
     ("feedforward", 1_000, "discrete", 1536), ("feedforward", 1_000, "hybrid", 1536),
     ("feedforward", 50, "continuous", 1500)],
)  # fmt: skip
def test_without_a_memory_gradient_steps_are_small_and_many(memory, horizon, kind, steps_of_a_batch):
    given = {"algo": {"sequence_encoder": {"type": memory}}}
    config, _ = planned(given, env_steps=100_000, horizon=horizon, action_kind=kind)
    assert config.train.window_steps * config.train.batch_size == steps_of_a_batch
    seen = config.train.replay_ratio * steps_of_a_batch
    assert seen == pytest.approx(136, rel=0.03)
    assert config.algo.n_step < config.train.window_steps
    is_small = steps_of_a_batch == 256
    assert config.observation.use_prev_action is config.observation.use_prev_reward is not is_small
    assert (config.algo.distribution.model_dump().get("min_log_std") == -1.5) is is_small
    short, _ = planned(given, env_steps=10_000, horizon=horizon, action_kind=kind)
    assert short.train.replay_ratio == (1.0 if is_small else 0.5)


@pytest.mark.parametrize("given", [{"entropy": {}}, {"distribution": {"type": "beta"}}])
def test_what_explores_otherwise_keeps_its_distribution(given):
    values = {"algo": {"sequence_encoder": {"type": "feedforward"}, **given}}
    config, derived = planned(values, env_steps=100_000, horizon=1_000, action_kind="continuous")
    assert not [key for key in derived if key.startswith("algo.distribution")]
    assert config.train.batch_size == 32


@pytest.mark.parametrize(
    ("algo", "given"),
    [("diffusion_policy", {}), ("gl", {}), ("iql", {}), ("actor_critic", {"train": {"window_steps": 64}}),
     ("actor_critic", {"train": {"batch_size": 64}})],
)  # fmt: skip
def test_other_algorithms_and_given_windows_keep_the_usual_plan(algo, given):
    values = {"algo_name": algo, "algo": {"sequence_encoder": {"type": "feedforward"}}, **given}
    config, _ = planned(values, env_steps=20_000, horizon=200, action_kind="continuous")
    assert config.train.window_steps >= 32
    assert config.train.replay_ratio < 0.5


def test_a_budget_that_cannot_be_planned_with_is_refused():
    for budget in ({}, {"env_steps": 5, "gradient_steps": 5}):
        with pytest.raises(ConfigError):
            planned(**budget)
    for budget in ({"env_steps": 5}, {"gradient_steps": 5}):
        with pytest.raises(ConfigError, match=r"5 .* steps are too few for .*6 epochs of at least 1"):
            planned({"train": {"num_epochs": 6}}, **budget)


@pytest.mark.parametrize("steps", [1, 3, 30, 45, 60, 79, 150, 200, 999, 5_000, 12_345])
def test_the_budget_is_spent(steps):
    for values, num_envs in (
        ({}, None),
        ({"collect": {"num_envs": 1}}, 1),
        ({"collect": {"steps_per_epoch": 1}}, None),
    ):
        config, _ = planned(values, env_steps=steps, horizon=50)
        assert num_envs in (None, config.collect.num_envs)
        taken = config.train.num_epochs * config.collect.num_envs * config.collect.steps_per_epoch
        assert 0.95 * steps <= taken <= steps
    config, _ = planned(gradient_steps=steps)
    assert 0.95 * steps <= config.train.num_epochs * config.train.steps_per_epoch <= steps


def test_a_ratio_that_is_off_gives_the_steps_instead():
    config, derived = planned({"train": {"replay_ratio": None}}, env_steps=10_000, horizon=50)
    assert config.train.steps_per_epoch == derived["train.steps_per_epoch"].value == 125
    nothing, _ = planned({"train": {"steps_per_epoch": 0}}, env_steps=12_000, horizon=50)
    assert nothing.train.steps_per_epoch == 0


def test_the_longest_of_several_tasks_counts_with_its_own_arguments():
    tasks = [{"id": "seqrl/TMazePassive-v0", "kwargs": {"corridor_length": 60}}, {"kwargs": {"corridor_length": 9}}]
    words = ["--algo", "actor_critic", "--env", "seqrl/TMazePassive-v0", "--env-steps", "12k"]
    args = train.parser().parse_args([*words, "--set", "env.tasks=" + json.dumps(tasks)])
    assert train.resolve_config(args)[0].train.window_steps == 61


def test_tasks_with_other_kinds_of_actions_are_planned_for_both():
    tasks = [{"id": "Pendulum-v1"}, {"id": "MountainCar-v0"}]  # 200 steps
    args = train.parser().parse_args(
        ["--algo", "actor_critic", "--memory", "feedforward", "--env-steps", "20k", "--set", "env.common_space=on",
         "--set", "env.tasks=" + json.dumps(tasks)]
    )  # fmt: skip
    config, _ = train.resolve_config(args)
    assert config.algo.memory_dropout == 0.0
    assert config.train.window_steps == 32
    both = json.dumps([{"id": "seqrl/Bandit-v0"}, {"id": "seqrl/MultiDiscreteRecall-v0"}])
    args = train.parser().parse_args(["--algo", "actor_critic", "--env-steps", "20k", "--set", f"env.tasks={both}"])
    assert train.resolve_config(args)[0].algo.distribution.choice()[0] == "categorical"


def test_the_replay_ratio_sets_the_gradient_steps():
    collect = {"steps_per_epoch": 100, "num_envs": 3}
    config = config_factory("actor_critic", {"train": {"replay_ratio": 0.1}, "collect": collect})
    assert config.train.steps_per_epoch == 30
    assert config_factory("actor_critic", config.to_json()) == config
    with pytest.raises(ConfigError, match="give one of the two"):
        config_factory("actor_critic", {"train": {"replay_ratio": 0.1, "steps_per_epoch": 31}, "collect": collect})
    with pytest.raises(ConfigError, match="runs that collect"):
        config_factory("bc", {"train": {"replay_ratio": 0.1}})


def test_the_length_of_episodes_is_the_time_limit_or_seen():
    assert horizon_and_kind("CartPole-v1") == (500, "its time limit", "discrete")
    assert horizon_and_kind("Pendulum-v1") == (200, "its time limit", "continuous")
    steps, source, _ = horizon_and_kind("seqrl/TMazePassive-v0", {"corridor_length": 20})
    assert (steps, "random" in source) == (21, True)


def test_the_command_line_plans_and_tells(capsys):
    words = ["--algo", "actor_critic", "--env", "seqrl/TMazePassive-v0", "--memory", "gru", "--env-steps", "12k"]
    assert train.main([*words, "--set", "algo.gamma=0.9", "--print-config"]) == 0
    out, err = capsys.readouterr()
    config = json.loads(out)
    assert config["env"]["id"] == "seqrl/TMazePassive-v0"
    assert config["algo"]["gamma"] == 0.9
    assert "train.window_steps = 51  (episodes of up to 51 steps, the length of each of 3 with random actions)" in err
    assert "algo.gamma =" not in err
    config, notes = train.resolve_config(train.parser().parse_args([*words, "--debug"]))
    assert config.train.steps_per_epoch == 2
    assert config.collect.steps_per_epoch == 64
    assert (config.train.window_steps, config.train.batch_size) == (16, 2)
    assert any(note.startswith("derived: ") for note in notes)
    assert len(capsys.readouterr().err.splitlines()) == 1
    two = json.dumps([{"kwargs": {"corridor_length": n}} for n in (5, 6)])
    small = [*words[:-1], "30", "--debug", "--set", f"env.tasks={two}", "--set", "collect.start_epoch=9"]
    assert train.resolve_config(train.parser().parse_args(small))[0].collect.steps_per_epoch == 7


@pytest.mark.parametrize(
    ("more", "dropout"), [([], 0.3), ([{"scripted": "seqrl/PointRecall-v0", "episodes": 10**6}], 0.0)]
)
def test_the_command_line_counts_the_passes_over_files(more, dropout, tmp_path, capsys):
    file = tmp_path / "recall.hdf5"
    collected = ["--env", "seqrl/PointRecall-v0", "--episodes", "6", "--output", str(file)]
    assert collect_dataset.main(collected) == 0
    words = ["--algo", "iql", "--memory", "gru", "--gradient-steps", "200", "--print-config"]
    capsys.readouterr()
    assert train.main([*words, "--set", f"train.data={json.dumps([{'path': str(file)}, *more])}"]) == 0
    assert json.loads(capsys.readouterr().out)["algo"]["memory_dropout"] == dropout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env-steps", "many"], "must be a number of at least 1, such as 50k"),
        (["--env-steps", "5k"], "--env-steps needs an environment: give --env ID"),
        (["--gradient-steps", "5k"], "--gradient-steps is for fixed data: give --dataset"),
        (["--env-steps", "5k", "--gradient-steps", "5k"], "not both"),
        (
            ["--env-steps", "10", "--env", "CartPole-v1", "--set", "train.num_epochs=11"],
            "10 environment steps are too few for 1 environment, each with 11",
        ),
        (
            ["--env-steps", "15", "--env", "CartPole-v1", "--set", "collect.num_envs=16"],
            "15 environment steps are too few for 16",
        ),
        (
            ["--env-steps", "5k", "--env", "CartPole-v1", "--set", "collect.steps_per_epoch=5001"],
            "epochs of at least 5001",
        ),
        (["--env-steps", "5k", "--env", "CartPole-v1", "--set", "train.num_epochs=0"], "at least one epoch"),
        (["--env-steps", "5k", "--set", "env=nonsense"], "the run file: 1 problem\n  env  must be an object"),
    ],
)
def test_the_command_line_says_what_is_missing(words, message, capsys):
    with pytest.raises(SystemExit) as end:  # argparse ends by itself
        raise SystemExit(train.main(["--algo", "actor_critic", *words]))
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("budget", "values", "message"),
    [
        (
            {"env_steps": 1_000_000},
            {"train": {"num_epochs": 40}, "collect": {"steps_per_epoch": 30}},
            "takes 14400 of the 1000000 environment",
        ),
        (
            {"gradient_steps": 100_000},
            {"train": {"num_epochs": 40, "steps_per_epoch": 200}},
            "takes 8000 of the 100000 gradient steps",
        ),
    ],
)
def test_a_run_file_that_leaves_most_of_the_budget_is_told_and_planned_as_it_is(budget, values, message, caplog):
    config, _ = planned(values, horizon=20, **budget)
    assert message in caplog.text
    assert config.collect.replay.min_transitions <= 14400 // 50
    assert config.algo.optimizer.warmup_steps <= 8000 // 20


LATER = {"collect": {"steps_per_epoch": 20, "exploration": {"type": "none"}}}
LONG = {"train": {"window_steps": 9}, "experiment": {"evaluation": {"episodes": 7}}, "env": {"kwargs": {"size": 3}}}


@pytest.mark.parametrize("steps", [1_000, 2_047, 60_001])
@pytest.mark.parametrize("kind", ["env_steps", "gradient_steps"])
@pytest.mark.parametrize("memory", ["gru", "feedforward"])
@pytest.mark.parametrize("given", [{}, LATER, LONG], ids=["nothing", "later", "long"])
@pytest.mark.parametrize("horizon", [20, 114, 500])
@pytest.mark.parametrize("actions", ["continuous", "discrete"])
def test_a_run_that_goes_on_keeps_what_it_began_with(kind, steps, memory, given, horizon, actions):
    given = {"algo_name": "actor_critic", "algo": {"sequence_encoder": {"type": memory}}, **given}
    plan = Budget(**{kind: steps}, horizon=horizon, horizon_source="measured", action_kind=actions)
    values, _ = with_budget(given, plan)
    began = config_factory("actor_critic", values).to_json()

    def resumed(given, **changes):
        values, kept = continued(given, dataclasses.replace(plan, **changes), began)
        return config_factory("actor_critic", values).to_json(), kept

    for measured in (17, 128, 129, 400):
        for known in (True, False):
            assert resumed(given, horizon=measured, lasts_as_long=known)[0] == began
    longer, kept = resumed(given, **{kind: 2 * steps})
    assert longer["train"].pop("num_epochs") >= 2 * began["train"]["num_epochs"]
    changed = {entry.key for entry in kept}
    asked = {**given, "train": {**given.get("train", {}), "num_epochs": began["train"]["num_epochs"] + 5}}
    assert resumed({**given, "train": {"window_steps": 3}})[0]["train"]["window_steps"] == 3  # which is refused
    more = resumed(asked)[0]
    assert more["train"].pop("num_epochs") == began["train"].pop("num_epochs") + 5
    assert more == longer == began
    assert changed or kind == "gradient_steps"


def test_what_is_derived_is_told_as_run_files_have_it():
    _, derived = planned(env_steps=60_000, horizon=500, finds_nothing=True)
    assert str(derived["algo.optimizer.grad_clip"]).startswith("algo.optimizer.grad_clip = null  (")
    assert str(derived["algo.boltzmann"]).startswith('algo.boltzmann = {"share": 0.2, "temperature": 0.1}  (')


@pytest.mark.parametrize("kind", ["env_steps", "gradient_steps"])
def test_a_larger_budget_is_not_lost_in_rounding(kind):
    given, plan = {"algo_name": "actor_critic"}, Budget(**{kind: 480}, horizon=20)
    began = config_factory("actor_critic", with_budget(given, plan)[0]).to_json()
    longer = continued(given, dataclasses.replace(plan, **{kind: 720}), began)[0]
    assert longer["train"]["num_epochs"] == 1.5 * began["train"]["num_epochs"]
